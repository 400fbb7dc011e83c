//! Tests that connections adapt to paths that silently drop datagrams of the assumed size.

use super::memory::{S, at, atomic, export, fetch, get, put};
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{FetchOpKind, Rights};

const MS: Duration = Duration::from_millis(1);

fn carrying(mtu: usize) -> LinkConfig {
    LinkConfig {
        delay: MS,
        mtu: Some(mtu),
        ..LinkConfig::default()
    }
}

fn connected(mtu: usize) -> Sim {
    let mut sim = Sim::new(carrying(mtu), 1, Config::default(), Config::default());
    sim.connect();
    sim
}

/// Uses every carrier of payload at once: nothing is lost, and nothing stalls.
fn move_all(sim: &mut Sim) {
    let words = sim.b.words(&[7; 512]);
    let place = export(sim, words, Rights::ALL);
    let target = sim.b.empty(200_000);
    let written = export(sim, target, Rights::WRITE);
    let now = sim.now();
    let lengths = [0, 100, 1_000, 5_000, 16_000, 300_000];
    let receives: Vec<_> = lengths
        .into_iter()
        .map(|len| {
            let target = sim.b.empty(len.max(1));
            let to = sim.b.c().post_receive(now, target).expect("posted");
            let source = sim.a.filled(len, len);
            let from = sim.a.c().post_send(now, source, Delivery::Polled);
            (from.expect("posted"), to, target, len)
        })
        .collect();
    let puts: Vec<_> = [8, 500, 1_100, 1_192, 4_000, 16_000, 100_000]
        .into_iter()
        .scan(0, |end, len| {
            let start = *end;
            *end += len;
            Some((start, len))
        })
        .map(|(start, len)| (put(sim, at(written, start), len, len, None), start, len))
        .collect();
    let gets: Vec<_> = [8, 1_104, 1_192, 4_000]
        .into_iter()
        .map(|len| get(sim, place, len))
        .collect();
    let fetched = fetch(sim, place, atomic(FetchOpKind::Add, 0, 0));
    sim.run_until(60 * S, |sim| {
        receives.iter().all(|it| sim.b.outcomes(it.1) > 0)
            && puts.iter().all(|it| sim.a.outcomes(it.0) > 0)
            && gets.iter().all(|it| sim.a.outcomes(it.0) > 0)
            && sim.a.outcomes(fetched) > 0
    });
    for (_, to, target, len) in receives {
        assert_eq!(sim.b.received(to), Some(len));
        assert!(sim.b.holds(target, len, len), "Transfer of {len} bytes");
    }
    for (_, start, len) in puts {
        assert!(
            sim.b.holds(target.part(start, len), len, len),
            "put of {len} bytes"
        );
    }
    for (id, into) in gets {
        assert_eq!(sim.a.received(id), Some(into.len));
        assert_eq!(
            sim.a.bytes(into)[into.len as usize - 8],
            7,
            "got {} bytes",
            into.len
        );
    }
}

#[test]
fn connection__over_a_path_below_the_base() {
    for mtu in [1_279, 1_200, 1_100, 1_000, 576] {
        let mut sim = connected(mtu);
        move_all(&mut sim);
        sim.run_for(10 * S);
        for host in [&mut sim.a, &mut sim.b] {
            let carried = [1_200, 1_100, 1_006, 576].into_iter().find(|it| *it <= mtu);
            assert_eq!(Some(host.c().path_datagram() + 28), carried, "MTU {mtu}");
        }
        move_all(&mut sim);
    }
}

#[test]
fn connection__whose_path_shrinks_below_the_base_in_the_middle() {
    for mtu in [1_200, 1_100, 576] {
        for after in [Duration::ZERO, 3 * MS, 100 * MS] {
            let mut sim = connected(1_500);
            sim.run_for(S);
            let posted = sim.now();
            let source = sim.a.filled(3, 3_000_000);
            let target = sim.b.empty(3_000_000);
            let to = sim.b.c().post_receive(posted, target).expect("posted");
            let sent = sim.a.c().post_send(posted, source, Delivery::Polled);
            sent.expect("posted");
            sim.run_for(after);
            for side in Side::BOTH {
                sim.net.link_mut(side).set_config(carrying(mtu));
            }
            move_all(&mut sim);
            sim.run_until(60 * S, |sim| sim.b.outcomes(to) > 0);
            assert!(sim.b.holds(target, 3, 3_000_000));
        }
    }
}

/// Loss says nothing about a size while nothing else is heard either.
#[test]
fn path__that_was_down_is_not_taken_for_narrow() {
    let mut sim = connected(1_500);
    sim.run_for(S);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_up(false);
    }
    sim.run_for(5 * S);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_up(true);
    }
    move_all(&mut sim);
    sim.run_for(S);
    assert_eq!(sim.a.c().path_datagram(), 1_472);
}

/// The path was narrow only for a while.
#[test]
fn path__that_widens_is_used_again() {
    let mut sim = connected(1_100);
    sim.run_for(10 * S);
    assert_eq!(sim.a.c().path_datagram(), 1_100 - 28);
    for side in Side::BOTH {
        sim.net.link_mut(side).set_config(carrying(1_500));
    }
    sim.run_for(limits::PROBE_RAISE_INTERVAL + S);
    assert_eq!(sim.a.c().path_datagram(), 1_472);
}

/// Puts one behind the other, the last with an immediate, before the path is known to be narrow.
#[test]
fn immediate__over_a_path_below_the_base() {
    for mtu in [1_200, 1_100, 576] {
        let mut sim = connected(mtu);
        let target = sim.b.empty(80_000);
        let place = export(&mut sim, target, Rights::WRITE);
        let mut puts = vec![];
        for round in 0..4 {
            let mut start = round * 20_000;
            for (len, immediate) in [(700, None), (8_301, None), (10_999, Some(round as u32))] {
                puts.push(put(&mut sim, at(place, start), len, len, immediate));
                start += len;
            }
        }
        sim.run_until(60 * S, |sim| puts.iter().all(|&it| sim.a.outcomes(it) > 0));
        for n in 0..4 {
            assert!(
                sim.b.events.contains(&Event::Immediate { value: n }),
                "{n}, MTU {mtu}"
            );
        }
        sim.run_for(S);
    }
}
