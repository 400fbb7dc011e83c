//! Tests that connections adapt to paths that silently drop datagrams of the assumed size.

use super::bare_messages;
use super::memory::{S, at, atomic, export, fetch, get, put};
use super::seeds::each;
use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;
use zerolane_wire::encapsulation::Encapsulation;
use zerolane_wire::{FetchOpKind, Profile, Profiles, Reason, Rights};

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
            assert!(sim.b.is_shown(n), "{n}, MTU {mtu}");
        }
        sim.run_for(S);
    }
}

/// Sends `len` bytes from A to B.
fn send(sim: &mut Sim, len: u64) -> TransferId {
    let now = sim.now();
    let target = sim.b.empty(len);
    sim.b.c().post_receive(now, target).expect("posted");
    let source = sim.a.filled(len, len);
    let sent = sim.a.c().post_send(now, source, Delivery::Polled);
    sent.expect("posted")
}

/// Puts `lengths` from A to B, one behind the other.
fn put_all(sim: &mut Sim, lengths: &[u64]) -> TransferId {
    let target = sim.b.empty(lengths.iter().sum());
    let place = export(sim, target, Rights::WRITE);
    let mut start = 0;
    let mut last = None;
    for &len in lengths {
        last = Some(put(sim, at(place, start), len, len, None));
        start += len;
    }
    last.expect("some")
}

/// Gets `len` bytes from B to A.
fn get_all(sim: &mut Sim, len: u64) -> TransferId {
    let source = sim.b.filled(len, len);
    let place = export(sim, source, Rights::READ);
    get(sim, place, len).0
}

/// Both ends over a path that carries `mtu`, with `encapsulation`.
fn connected_by(encapsulation: Encapsulation, mtu: usize, profile: Profile) -> Sim {
    let config = Config {
        encapsulation,
        profiles: Profiles::only(profile),
        ..Config::default()
    };
    let mut sim = Sim::new(carrying(mtu), 1, config.clone(), config);
    sim.connect();
    sim
}

#[test]
fn connection__over_a_path_below_the_least_ends_and_says_so() {
    let posts: [fn(&mut Sim) -> TransferId; 9] = [
        |sim| send(sim, 300_000),
        |sim| send(sim, 5_000),
        |sim| send(sim, 1_200),
        |sim| put_all(sim, &[100_000]),
        |sim| put_all(sim, &[4_720]),
        |sim| put_all(sim, &[161; 20]),
        |sim| get_all(sim, 100_000),
        |sim| get_all(sim, 4_720),
        |sim| {
            let whole = sim.a.c().path_datagram() - 60;
            get_all(sim, whole as u64)
        },
    ];
    for (encapsulation, least) in [(Encapsulation::UdpV4, 576), (Encapsulation::UdpV6, 1280)] {
        for mtu in [least / 2, least - 49] {
            for post in posts {
                for settled in [false, true] {
                    let mut sim = connected_by(encapsulation, mtu, Profile::Extended);
                    if settled {
                        sim.run_for(20 * S);
                    }
                    let posted = post(&mut sim);
                    sim.run_until(60 * S, |sim| sim.a.closed().is_some());
                    let why = CloseReason::PathTooNarrow { mtu: least as u32 };
                    assert_eq!(sim.a.failed(posted), Some(TransferError::Closed(why)));
                    sim.run_until(S, |sim| sim.b.closed().is_some());
                    let of_b = sim.b.closed();
                    let told = Some(CloseReason::Peer(Reason::TimedOut));
                    // Its own probes fail, too, but perhaps later.
                    assert!(of_b == Some(why) || !settled && of_b == told, "{of_b:?}");
                }
            }
        }
    }
    let mut sim = connected_by(Encapsulation::UdpV4, 288, Profile::Classic);
    send(&mut sim, 300_000);
    sim.run_until(60 * S, |sim| sim.a.closed().is_some());
    let why = CloseReason::PathTooNarrow { mtu: 576 };
    assert_eq!(sim.a.closed(), Some(why), "classic");
}

/// A router reports what it drops. Linux believes no report of less than 552 bytes, so reports do not end.
#[test]
fn connection__over_a_path_below_the_least_that_is_reported_ends_and_says_so() {
    let mut sim = connected(500);
    send(&mut sim, 300_000);
    for _ in 0..6_000 {
        sim.run_for(10 * MS);
        if sim.a.closed().is_some() {
            break;
        }
        let now = sim.now();
        sim.a.c().set_path_datagram(now, 524);
    }
    let why = CloseReason::PathTooNarrow { mtu: 576 };
    assert_eq!(sim.a.closed(), Some(why));
}

/// What is short and arrives hides nothing.
#[test]
fn connection__over_a_path_below_the_least_ends_while_short_messages_arrive() {
    let mut sim = connected(500);
    let posted = send(&mut sim, 300_000);
    for seed in 0..1_200 {
        if sim.a.failed(posted).is_some() {
            break;
        }
        bare_messages::receive(&mut sim, Side::B, 100);
        bare_messages::send(&mut sim, Side::A, seed, 100, false);
        sim.run_for(50 * MS);
    }
    let why = CloseReason::PathTooNarrow { mtu: 576 };
    assert_eq!(sim.a.failed(posted), Some(TransferError::Closed(why)));
}

/// One direction shrinks in the middle.
#[test]
fn connection__whose_path_shrinks_below_the_least_ends_and_says_so() {
    let mut sim = connected(1_500);
    sim.run_for(S);
    send(&mut sim, 30_000_000);
    sim.run_for(20 * MS);
    sim.net.link_mut(Side::A).set_config(carrying(500));
    sim.run_until(60 * S, |sim| sim.a.closed().is_some());
    let why = CloseReason::PathTooNarrow { mtu: 576 };
    assert_eq!(sim.a.closed(), Some(why));
    sim.run_until(S, |sim| sim.b.closed().is_some());
    assert_eq!(sim.b.closed(), Some(CloseReason::Peer(Reason::TimedOut)));
}

/// What fits goes on, in spite of loss.
#[test]
fn connection__over_a_path_below_the_least_carries_what_is_short() {
    each(5, |seed| {
        let link = LinkConfig {
            loss: Loss::Random(0.05),
            ..carrying(500)
        };
        let mut sim = Sim::new(link, seed, Config::default(), Config::default());
        sim.connect();
        for _ in 0..200 {
            let posted = put_all(&mut sim, &[8, 100]);
            sim.run_until(20 * S, |sim| sim.a.outcomes(posted) > 0);
            sim.run_for(100 * MS);
        }
        assert_eq!((sim.a.closed(), sim.b.closed()), (None, None));
        let now = sim.now();
        let state = sim.a.c().path_state(now);
        assert!(state.too_narrow && state.mtu_probed, "{state:?}");
    });
}

/// Nothing but length ends a connection: not loss, not silence.
#[test]
fn connection__over_a_path_of_the_least_size_that_loses_a_fifth_goes_on() {
    each(10, |seed| {
        for (encapsulation, mtu) in [(Encapsulation::UdpV4, 576), (Encapsulation::UdpV6, 1280)] {
            let config = Config {
                encapsulation,
                ..Config::default()
            };
            let link = LinkConfig {
                loss: Loss::Random(0.2),
                ..carrying(mtu)
            };
            let mut sim = Sim::new(link, seed, config.clone(), config);
            sim.connect();
            for round in 0..20 {
                let posted = [send(&mut sim, 30_000), put_all(&mut sim, &[400; 20])];
                sim.run_until(60 * S, |sim| {
                    posted.iter().all(|&it| sim.a.outcomes(it) > 0)
                });
                assert_eq!((sim.a.closed(), sim.b.closed()), (None, None));
                for side in Side::BOTH {
                    sim.net.link_mut(side).set_up(round % 5 != 0);
                }
                sim.run_for(S);
                for side in Side::BOTH {
                    sim.net.link_mut(side).set_up(true);
                }
            }
        }
    });
}
