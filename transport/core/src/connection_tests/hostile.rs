//! Tests that forged datagrams change nothing: from unauthenticated peers, a man in the middle, and a hostile peer.

use super::seeds::{Dice, each};
use super::sim::Sim;
use crate::ExportAs;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::time::Duration;
use zerolane_wire::{FetchOpKind, HEADER_LEN, OPTIONS_LEN, Profile, Profiles, Rights};

const S: Duration = Duration::from_secs(1);

fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(200),
        rate_bits_per_s: Some(100_000_000),
        ..LinkConfig::default()
    }
}

/// Knowledge of an attacker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Knows {
    /// Without the keys.
    Nothing,
    /// Ports and keys, and everything that was sent.
    Everything,
}

/// A forged datagram, from a recorded one or from nothing.
fn forge(dice: &mut Dice, recorded: &[(Side, Vec<u8>)], to: Side, knows: Knows) -> Vec<u8> {
    let mut bytes = if dice.chance(20) || recorded.is_empty() {
        let len = dice.pick(&[0, 1, 39, 40, 41, 72, 73, 300, 1472]);
        (0..len).map(|_| dice.next() as u8).collect()
    } else {
        recorded[dice.below(recorded.len() as u64) as usize]
            .1
            .clone()
    };
    match dice.below(4) {
        0 => bytes.truncate(dice.below(bytes.len() as u64 + 1) as usize),
        1 => bytes.extend_from_slice(&[0x55; OPTIONS_LEN]),
        _ => {}
    }
    for _ in 0..dice.below(4) {
        mutate(dice, &mut bytes);
    }
    if bytes.len() >= 12 {
        stamp(&mut bytes, recorded, to, knows);
    }
    bytes
}

/// Changes a field, most often to a boundary value.
fn mutate(dice: &mut Dice, bytes: &mut [u8]) {
    if bytes.len() < HEADER_LEN {
        return;
    }
    let words = (bytes.len() / 4).min((HEADER_LEN + OPTIONS_LEN) / 4) as u64;
    let at = 4 * dice.below(words) as usize;
    let old = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let flipped = old ^ 1 << dice.below(32);
    let random = dice.next() as u32;
    let near = [
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old.wrapping_add(1000),
    ];
    let value = match dice.below(4) {
        0 => dice.pick(&[0, 1, u32::MAX, u32::MAX - 1, 1 << 31]),
        1 => dice.pick(&near),
        2 => flipped,
        _ => random,
    };
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Sets ports and key of `to`, correct or wrong, and omits the checksum.
fn stamp(bytes: &mut [u8], recorded: &[(Side, Vec<u8>)], to: Side, knows: Knows) {
    if bytes.len() >= 14 {
        bytes[12..14].fill(0);
    }
    let last = recorded.iter().rev().find(|(from, _)| *from == to.other());
    if let Some((_, real)) = last {
        bytes[4..12].copy_from_slice(&real[4..12]);
        if knows == Knows::Nothing {
            bytes[8] ^= 0x40;
        }
    }
}

/// Uses persistent memory: `private` may be read; another region may also be written.
fn work_on_memory(sim: &mut Sim, private: Span) {
    let now = sim.now();
    let flags = WorkFlags::default();
    let open = sim.b.empty(9_000);
    let readable = sim.b.c().export(private, Rights::READ, ExportAs::Handle);
    let writable = sim.b.c().export(open, Rights::ALL, ExportAs::Handle);
    let place = |(handle, mx), address| RemotePlace {
        handle,
        mx,
        address,
    };
    let (Ok(readable), Ok(writable)) = (readable, writable) else {
        panic!("established");
    };
    for n in 0..20 {
        let span = sim.a.filled(n, if n == 7 { 5_000 } else { 100 });
        let to = place(writable, 100 * n);
        let put = sim.a.c().post_put(now, to, span, Some(1), flags);
        let add = Atomic {
            kind: FetchOpKind::Add,
            word: zerolane_wire::Word::U64,
            operand: 1,
            comparand: 0,
        };
        let add = sim.a.c().post_fetch_op(now, place(writable, 8), add, flags);
        let target = sim.a.empty(300 * n);
        let get = sim.a.c().post_get(now, place(readable, 0), target, flags);
        assert!(put.is_ok() && add.is_ok() && get.is_ok());
    }
    let message = sim.a.c().post_message(now, &[1; 10], None, flags);
    let control = sim.b.empty(128);
    let receive = sim.b.c().post_message_receive(control, None);
    assert!(message.is_ok() && receive.is_ok());
}

/// Transfers in both directions under attack. Returns their outcome.
fn attacked(seed: u64, knows: Knows) -> (Sim, bool) {
    let mut dice = Dice::new(seed);
    let config = Config {
        profiles: match dice.below(3) {
            0 => Profiles::only(Profile::Classic),
            _ => Profiles::BOTH,
        },
        block: 40_000,
        ..Config::default()
    };
    let mut sim = Sim::new(link(), seed, config.clone(), config);
    sim.connect();
    sim.trace = Some(vec![]);
    let private = [sim.a.filled(900, 5000), sim.b.filled(901, 5000)];
    sim.a.freeze(private[0]);
    sim.b.freeze(private[1]);
    work_on_memory(&mut sim, private[1]);
    let mut posted = vec![];
    for n in 0..6 {
        let from = dice.pick(&Side::BOTH);
        let (now, length) = (sim.now(), dice.below(60_000));
        let source = sim.host(from).filled(n, length);
        let target = sim.host(from.other()).empty(length);
        let (source_id, target_id) = if n == 5 {
            let offer = sim.host(from).c().post_offer(now, source, Delivery::Polled);
            (offer, sim.host(from.other()).c().post_read(now, target))
        } else {
            let send = sim.host(from).c().post_send(now, source, Delivery::Polled);
            (send, sim.host(from.other()).c().post_receive(now, target))
        };
        posted.push((from, source_id, target_id, target, n, length));
    }
    for _ in 0..300 {
        let recorded = sim.trace.take().unwrap_or_default();
        let to = dice.pick(&Side::BOTH);
        let datagram = forge(&mut dice, &recorded, to, knows);
        sim.trace = Some(recorded);
        sim.inject(to, &datagram);
        if dice.chance(40) {
            sim.run_for(Duration::from_micros(dice.below(300)));
        }
    }
    sim.run_for(5 * S);
    let mut all = true;
    for (from, source_id, target_id, target, content, length) in posted {
        let (Ok(source_id), Ok(target_id)) = (source_id, target_id) else {
            all = false;
            continue;
        };
        let sent = sim.host(from).sent(source_id);
        let host = sim.host(from.other());
        let received = host.received(target_id) == Some(length);
        all &= sent && received && host.holds(target, content, length);
    }
    for host in [&mut sim.a, &mut sim.b] {
        host.assert_guards();
        host.assert_frozen();
        host.c().assert_bounded();
    }
    (sim, all)
}

#[test]
fn attack__without_the_key_changes_nothing() {
    each(150, |seed| {
        let (mut sim, all) = attacked(seed, Knows::Nothing);
        assert!(all, "an honest transfer did not complete");
        for host in [&mut sim.a, &mut sim.b] {
            let counters = *host.c().counters();
            let seen =
                counters.dropped(DropReason::WrongKey) + counters.dropped(DropReason::Malformed);
            assert!(seen > 0, "counted");
        }
    });
}

#[test]
fn attack__with_the_key_stays_inside_live_grants() {
    each(300, |seed| {
        attacked(seed, Knows::Everything);
    });
}
