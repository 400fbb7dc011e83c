//! Tests that persistent memory stays correct over bad links and with dead peers, against an oracle.

use super::memory::{MS, S, at, atomic, export, fetch, get, put};
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of, content};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::{FetchOpKind, Profile, Profiles, Reason, Rights};

pub(super) fn bad() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(300),
        loss: Loss::Random(0.1),
        duplicate: 0.1,
        reorder: Reorder {
            probability: 0.1,
            by: 2 * MS,
        },
        ..LinkConfig::default()
    }
}

fn connected(link: LinkConfig, seed: u64) -> Sim {
    let profiles = match seed % 4 {
        0 => Profiles::only(Profile::Classic),
        _ => Profiles::BOTH,
    };
    let config = Config {
        profiles,
        classic_block_log2: 12,
        block: 10_000,
        ..Config::default()
    };
    let mut sim = Sim::new(link, seed, config.clone(), config);
    sim.connect();
    // Numbers wrap in the middle.
    if seed.is_multiple_of(3) {
        for host in [&mut sim.a, &mut sim.b] {
            host.c().age_operations(u32::MAX - 20);
        }
    }
    sim
}

#[test]
fn fetch_op__exactly_once_under_loss_and_duplication() {
    each(30, |seed| {
        let mut sim = connected(bad(), seed);
        let words = sim.b.words(&[0, 1000]);
        let place = export(&mut sim, words, Rights::ATOMIC);
        let back = sim.a.words(&[0]);
        let (handle, mx) = sim
            .a
            .c()
            .export(back, Rights::ATOMIC, ExportAs::Handle)
            .unwrap();
        let here = RemotePlace {
            handle,
            mx,
            address: 0,
        };
        let count = 150;
        let mut ids = vec![];
        let mut theirs = vec![];
        for n in 0..count {
            let kind = match n % 2 {
                0 => atomic(FetchOpKind::Add, n, 0),
                _ => atomic(FetchOpKind::Increment, 0, 0),
            };
            ids.push(fetch(&mut sim, place, kind));
            let now = sim.now();
            let flags = WorkFlags::default();
            let add = atomic(FetchOpKind::Add, 3, 0);
            theirs.push(sim.b.c().post_fetch_op(now, here, add, flags).unwrap());
        }
        let (last, their_last) = (ids[ids.len() - 1], theirs[theirs.len() - 1]);
        sim.run_until(200 * S, |sim| {
            sim.a.fetched(last).is_some() && sim.b.fetched(their_last).is_some()
        });
        let mut counter = 0;
        for (n, &id) in (0..count).zip(&ids) {
            assert_eq!(sim.a.fetched(id), Some(counter), "fetch-op {n}");
            assert_eq!(sim.a.outcomes(id), 1);
            counter += if n % 2 == 0 { n } else { 1 };
        }
        sim.run_for(S);
        assert_eq!(
            sim.b.word(words.part(0, 8)),
            counter,
            "the counter is exact"
        );
        assert_eq!(sim.b.word(words.part(8, 8)), 1000, "the word beside it");
        assert_eq!(sim.a.word(back), 3 * count);
    });
}

/// Content of the peer's memory after everything posted so far.
struct Oracle {
    bytes: Vec<u8>,
    checks: Vec<Check>,
}

enum Check {
    Got(TransferId, Span, Vec<u8>),
    Fetched(TransferId, u64),
    Sent(TransferId),
}

const ROOM: u64 = 60_000;
/// log2 of the target's buffers in the classic profile; otherwise they are as large as the region.
const BUFFER_LOG2: u8 = 12;

/// The last kind of operation, which decides whether the next one needs a fence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    /// Small operations: ordered among themselves.
    Small,
    /// A get: it may see later operations.
    Get,
    /// A long put: gets see it, everything else overlaps with it.
    LongPut,
}

/// Posts an operation, and records its expected result.
fn operate(
    sim: &mut Sim,
    dice: &mut Dice,
    place: RemotePlace,
    oracle: &mut Oracle,
    follows: Follows,
) -> Follows {
    let (now, seed) = (sim.now(), dice.next());
    let kind = dice.below(10);
    let get = matches!(kind, 1 | 6 | 7);
    let fence = match follows {
        Follows::Small => dice.chance(10),
        Follows::Get => true,
        Follows::LongPut => !get,
    };
    let flags = WorkFlags {
        fence,
        ..WorkFlags::default()
    };
    let len = match kind {
        0 | 1 => 1_500 + dice.below(20_000),
        _ => dice.below(600),
    };
    let offset = dice.below(ROOM - len);
    let slice = offset as usize..(offset + len) as usize;
    match kind {
        // Long puts overlap with everything before them, unless fenced.
        0 | 2..=5 => {
            let first = at(place, offset).address >> BUFFER_LOG2;
            let last = (at(place, offset).address + len.max(1) - 1) >> BUFFER_LOG2;
            // A put across a boundary is not small.
            let long = kind == 0 || first != last;
            let flags = WorkFlags {
                fence: flags.fence || long,
                ..flags
            };
            let to = at(place, offset);
            let id = match len <= limits::MAX_INLINE as u64 {
                true => {
                    let bytes = bytes_of(seed, len);
                    sim.a.c().post_inline(now, to, &bytes, None, flags)
                }
                false => {
                    let span = sim.a.filled(seed, len);
                    sim.a.c().post_put(now, to, span, None, flags)
                }
            };
            let id = id.expect("room");
            oracle.checks.push(Check::Sent(id));
            for (i, byte) in (0..).zip(&mut oracle.bytes[slice]) {
                *byte = content(seed, i);
            }
            match long {
                true => Follows::LongPut,
                false => Follows::Small,
            }
        }
        1 | 6 | 7 => {
            let span = sim.a.empty(len);
            let from = at(place, offset);
            let id = sim.a.c().post_get(now, from, span, flags).unwrap();
            let expected = oracle.bytes[slice].to_vec();
            oracle.checks.push(Check::Got(id, span, expected));
            Follows::Get
        }
        _ => {
            let offset = offset & !7;
            let slice = offset as usize..offset as usize + 8;
            let before = u64::from_ne_bytes(oracle.bytes[slice.clone()].try_into().unwrap());
            let on = at(place, offset);
            let add = atomic(FetchOpKind::Add, seed, 0);
            let id = sim.a.c().post_fetch_op(now, on, add, flags).unwrap();
            oracle.checks.push(Check::Fetched(id, before));
            oracle.bytes[slice].copy_from_slice(&before.wrapping_add(seed).to_ne_bytes());
            Follows::Small
        }
    }
}

#[test]
fn model__everything_takes_effect_once_and_in_order() {
    each(60, |seed| {
        let mut dice = Dice::new(seed);
        let mut link = bad();
        link.loss = Loss::Random(dice.pick(&[0.0, 0.02, 0.1]));
        link.queue_packets = dice.pick(&[40, 100_000]);
        link.rate_bits_per_s = dice.pick(&[None, Some(200_000_000)]);
        let mut sim = connected(link, seed);
        let target = sim.b.empty(ROOM);
        let place = export(&mut sim, target, Rights::ALL);
        let mut oracle = Oracle {
            bytes: sim.b.bytes(target).to_vec(),
            checks: vec![],
        };
        let mut follows = Follows::Small;
        for _ in 0..80 {
            follows = operate(&mut sim, &mut dice, place, &mut oracle, follows);
            if dice.chance(30) {
                sim.run_for(Duration::from_micros(dice.below(3_000)));
            }
        }
        let over = |sim: &Sim| {
            oracle.checks.iter().all(|check| match check {
                Check::Sent(id) | Check::Got(id, ..) | Check::Fetched(id, _) => {
                    sim.a.outcomes(*id) == 1
                }
            })
        };
        sim.run_until(400 * S, over);
        for check in &oracle.checks {
            match check {
                Check::Sent(id) => assert!(sim.a.sent(*id)),
                Check::Got(id, span, expected) => {
                    assert_eq!(sim.a.received(*id), Some(span.len));
                    assert!(sim.a.bytes(*span) == expected, "get {id}");
                }
                Check::Fetched(id, before) => assert_eq!(sim.a.fetched(*id), Some(*before)),
            }
        }
        assert!(sim.b.bytes(target) == oracle.bytes, "memory at the end");
        for host in [&sim.a, &sim.b] {
            host.assert_guards();
        }
        sim.run_for(5 * S);
        assert!(over(&sim), "nothing ends twice");
    });
}

#[test]
fn message__none_lost_none_twice_in_order() {
    each(30, |seed| {
        let mut sim = connected(bad(), seed);
        let mut dice = Dice::new(seed);
        // The thesis's repair is slow: a lost STU costs its Block and a fixed wait.
        let most = if seed.is_multiple_of(4) { 1_500 } else { 9_000 };
        let mut receives = vec![];
        let mut ids = vec![];
        for n in 0..60 {
            let now = sim.now();
            let payload = [None, Some(1 + dice.below(most))][dice.below(2) as usize];
            let control = bytes_of(n, 20);
            let body = payload.map(|len| sim.a.filled(500 + n, len));
            let flags = WorkFlags::default();
            ids.push(sim.a.c().post_message(now, &control, body, flags).unwrap());
            let (control, room) = (sim.b.empty(128), sim.b.empty(9_000));
            let id = sim.b.c().post_message_receive(control, Some(room)).unwrap();
            receives.push((id, control, room, payload.unwrap_or(0)));
            sim.run_for(Duration::from_micros(dice.below(2_000)));
        }
        sim.run_until(400 * S, |sim| {
            receives.iter().all(|it| sim.b.outcomes(it.0) == 1)
                && ids.iter().all(|&id| sim.a.sent(id))
        });
        for (n, (id, control, room, length)) in (0..).zip(receives) {
            let event = Event::Message {
                id,
                control: 20,
                payload: length,
            };
            assert!(sim.b.events.contains(&event), "{n}");
            assert!(sim.b.holds(control, n, 20) && sim.b.holds(room, 500 + n, length));
        }
        sim.b.assert_guards();
    });
}

/// After `revoke` returned, no late packet writes a byte: every packet that A ever sent is replayed, to the region's
/// memory and to another region exported in its place.
#[test]
fn revoke__no_captured_packet_writes_any_more() {
    each(60, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = connected(bad(), seed);
        sim.trace = Some(vec![]);
        let target = sim.b.empty(100_000);
        let place = export(&mut sim, target, Rights::ALL);
        let mut ids = vec![];
        for n in 0..20 {
            let len = dice.pick(&[8, 500, 30_000]);
            ids.push(put(&mut sim, at(place, 64 * n), n, len, None));
            ids.push(fetch(
                &mut sim,
                at(place, 8 * n),
                atomic(FetchOpKind::Add, n, 0),
            ));
            ids.push(get(&mut sim, place, len).0);
        }
        sim.run_for(Duration::from_micros(dice.below(200_000)));
        let now = sim.now();
        assert!(sim.b.c().revoke(now, place.handle));
        assert!(!sim.b.c().revoke(now, place.handle), "only once");
        sim.b.freeze(target);
        let other = sim.b.filled(77, 100_000);
        let next = export(&mut sim, other, Rights::ALL);
        assert_ne!(next.handle, place.handle, "a handle is used once");
        sim.b.freeze(other);
        for id in ids {
            sim.run_until(200 * S, |sim| sim.a.outcomes(id) > 0);
            let fine = sim
                .a
                .failed(id)
                .is_none_or(|error| error == TransferError::Refused(Reason::Revoked));
            assert!(fine, "{:?}", sim.a.failed(id));
        }
        for (side, datagram) in sim.trace.take().unwrap() {
            sim.inject(side.other(), &datagram);
        }
        sim.run_for(S);
        sim.b.assert_frozen();
        sim.b.assert_guards();
        let (id, all) = get(&mut sim, next, 100_000);
        sim.run_until(200 * S, |sim| sim.a.outcomes(id) == 1);
        assert!(sim.a.holds(all, 77, 100_000), "the connection goes on");
    });
}

#[test]
fn peer__killed_with_operations_outstanding() {
    let mut sim = connected(LinkConfig::default(), 1);
    let target = sim.b.empty(500_000);
    let place = export(&mut sim, target, Rights::ALL);
    let ids = [
        fetch(&mut sim, place, atomic(FetchOpKind::Clear, 0, 0)),
        put(&mut sim, place, 1, 8, Some(1)),
        put(&mut sim, place, 1, 400_000, Some(1)),
        put(&mut sim, place, 1, 8, None),
        get(&mut sim, place, 8).0,
        get(&mut sim, place, 80_000).0,
    ];
    assert_fail_with_a_dead_peer(&mut sim, &ids);
}

/// B is gone: all of A's requests fail, once each.
pub(super) fn assert_fail_with_a_dead_peer(sim: &mut Sim, ids: &[TransferId]) {
    sim.b.connection = None;
    sim.busy = true;
    sim.run_until(120 * S, |sim| sim.a.closed().is_some());
    for &id in ids {
        let error = TransferError::Closed(CloseReason::PeerDead);
        assert_eq!((sim.a.outcomes(id), sim.a.failed(id)), (1, Some(error)));
    }
}

#[test]
fn loss__of_one_operation_is_found_without_a_timeout() {
    let mut sim = connected(
        LinkConfig {
            delay: Duration::from_micros(100),
            ..LinkConfig::default()
        },
        1,
    );
    sim.run_for(S);
    let target = sim.b.empty(1_000);
    let place = export(&mut sim, target, Rights::WRITE);
    put(&mut sim, place, 1, 100, None);
    let now = sim.now();
    sim.a.c().poll_transmit(now, BurstLimit::default());
    let id = put(&mut sim, at(place, 100), 2, 100, None);
    sim.trace = Some(vec![]);
    sim.run_until(S, |sim| sim.a.sent(id));
    assert!(sim.now() - now < 2 * MS, "sooner than any timeout");
    assert_eq!(
        sim.spoken(),
        "A Data 0, B State again from 0, A Data of 2, B State below 2"
    );
    assert_eq!(sim.a.c().counters().timeouts, 0);
    let early = sim.host(Side::B).c().counters().dropped(DropReason::Early);
    assert_eq!(early, 1);
}

/// Earlier timeouts of other kinds do not delay the detection of a loss.
#[test]
fn loss__is_found_soon_whatever_else_timed_out() {
    let link = LinkConfig {
        delay: Duration::from_micros(100),
        ..LinkConfig::default()
    };
    let mut sim = connected(link, 1);
    sim.run_for(S);
    let target = sim.b.empty(1_000);
    let place = export(&mut sim, target, Rights::ALL);
    for _ in 0..6 {
        sim.a.c().cx.recovery.back_off();
    }
    let lost = [
        put(&mut sim, place, 1, 100, None),
        get(&mut sim, place, 100).0,
    ];
    let now = sim.now();
    let limit = BurstLimit::default();
    while sim.a.c().poll_transmit(now, limit).is_some() {}
    for id in lost {
        sim.run_until(S, |sim| sim.a.outcomes(id) > 0);
    }
    assert!(sim.now() - now < 100 * MS, "{:?}", sim.now() - now);
    assert!(!sim.a.c().cx.recovery.is_backed_off(), "something moved");
}

/// A repeated value is no burst of payload, whatever its number: bursts are still reported by their numbers, and losses
/// among them are retransmitted.
#[test]
fn fetch_op__a_value_that_comes_again_is_no_burst() {
    let link = LinkConfig {
        delay: Duration::from_micros(100),
        ..LinkConfig::default()
    };
    let mut sim = connected(link, 1);
    let words = sim.b.words(&[0]);
    let place = export(&mut sim, words, Rights::ATOMIC);
    sim.trace = Some(vec![]);
    for _ in 0..40 {
        let id = fetch(&mut sim, place, atomic(FetchOpKind::Add, 1, 0));
        sim.run_until(S, |sim| sim.a.fetched(id).is_some());
    }
    for (side, datagram) in sim.trace.take().unwrap() {
        sim.inject(side.other(), &datagram);
    }
    sim.run_for(S);
    let (from, to) = (sim.b.filled(3, 100_000), sim.a.empty(100_000));
    let now = sim.now();
    let id = sim.a.c().post_receive(now, to).unwrap();
    let send = sim.b.c().post_send(now, from, Delivery::Interrupt).unwrap();
    sim.run_until(S, |sim| {
        sim.b.connection.as_ref().is_some_and(Connection::has_data)
    });
    let now = sim.now();
    assert!(!sim.b.outgoing(now).is_empty(), "lost");
    sim.run_until(S, |sim| sim.a.received(id).is_some() && sim.b.sent(send));
    assert!(sim.a.holds(to, 3, 100_000));
    assert_eq!(sim.b.word(words), 40);
    assert_eq!(sim.b.c().counters().dropped(DropReason::Unexpected), 0);
}

fn delayed(delay: Duration) -> LinkConfig {
    LinkConfig {
        delay,
        ..LinkConfig::default()
    }
}

fn set_delay(sim: &mut Sim, delay: Duration) {
    for side in Side::BOTH {
        sim.net.link_mut(side).set_config(delayed(delay));
    }
}

/// Connected over a round trip of 1 ms, with memory exported by B.
fn of_short_delay() -> (Sim, RemotePlace) {
    let mut sim = Sim::new(delayed(MS / 2), 1, Config::default(), Config::default());
    sim.connect();
    let target = sim.b.empty(1_000);
    let place = export(&mut sim, target, Rights::ALL);
    (sim, place)
}

#[test]
fn operations__over_a_path_that_became_longer_are_not_repeated_for_ever() {
    let (mut sim, place) = of_short_delay();
    let put_all = |sim: &mut Sim| {
        for seed in 0..20 {
            let id = put(sim, place, seed, 100, None);
            sim.run_until(S, |sim| sim.a.outcomes(id) > 0);
        }
        sim.a.c().counters().timeouts
    };
    assert_eq!(put_all(&mut sim), 0);
    set_delay(&mut sim, 40 * MS);
    let learning = put_all(&mut sim);
    assert!(learning > 0, "the path is longer than a repeat waits");
    assert_eq!(put_all(&mut sim), learning);
}

#[test]
fn operations__that_are_confirmed_ever_later_are_not_repeated() {
    let (mut sim, place) = of_short_delay();
    // As at a peer that serves more and more connections.
    for step in 1..200 {
        set_delay(&mut sim, MS / 5 * step);
        let id = put(&mut sim, place, u64::from(step), 100, None);
        sim.run_until(S, |sim| sim.a.outcomes(id) > 0);
    }
    assert_eq!(sim.a.c().counters().timeouts, 0);
    assert_eq!(sim.b.c().counters().dropped(DropReason::Duplicate), 0);
}
