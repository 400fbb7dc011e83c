//! Tests that puts sent as Transfers overlap with everything except gets, messages and immediates behind them.

use super::memory::{MS, S, at, atomic, export, fetch, get, put};
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::{FetchOpKind, Profile, Profiles, Reason, Rights};

const MIB: u64 = 1 << 20;
const FENCED: WorkFlags = WorkFlags {
    signalled: true,
    fence: true,
    awaited: true,
};

/// Connected over a path with a round trip of 10 ms.
pub(super) fn far() -> Sim {
    let link = LinkConfig {
        delay: 5 * MS,
        ..LinkConfig::default()
    };
    let mut sim = Sim::new(link, 1, Config::default(), Config::default());
    sim.connect();
    sim.run_for(S);
    sim
}

/// Time until `done`.
pub(super) fn time_until(sim: &mut Sim, done: impl FnMut(&Sim) -> bool) -> Duration {
    let start = sim.now();
    sim.run_until(20 * S, done);
    sim.now() - start
}

fn shown(sim: &Sim, value: u32) -> bool {
    sim.b.is_shown(value)
}

#[test]
fn immediate__of_a_long_put_is_there_with_its_last_byte() {
    let mut sim = far();
    let target = sim.b.empty(MIB);
    let place = export(&mut sim, target, Rights::WRITE);
    let id = put(&mut sim, place, 1, MIB, Some(7));
    sim.run_until(20 * S, |sim| sim.b.holds(target, 1, MIB));
    let later = time_until(&mut sim, |sim| shown(sim, 7));
    assert!(later <= MS / 10, "{later:?}");
    sim.run_until(S, |sim| sim.a.sent(id));
    sim.run_for(S);
    assert!(sim.b.immediates().eq([(7, place.handle, MIB)]));
    assert_eq!(sim.a.outcomes(id), 1);
}

#[test]
fn overlap__small_operations_do_not_wait_for_a_long_put() {
    let mut sim = far();
    let target = sim.b.empty(MIB);
    let words = sim.b.words(&[40]);
    let place = export(&mut sim, target.part(0, MIB - 8), Rights::WRITE);
    let small = export(&mut sim, target.part(MIB - 8, 8), Rights::WRITE);
    let counter = export(&mut sim, words, Rights::ATOMIC);
    let long = put(&mut sim, place, 1, MIB - 8, None);
    put(&mut sim, small, 2, 8, None);
    let added = fetch(&mut sim, counter, atomic(FetchOpKind::Add, 2, 0));
    let took = time_until(&mut sim, |sim| sim.b.holds(target.part(MIB - 8, 8), 2, 8));
    assert!(took < Duration::from_micros(5_200), "{took:?}");
    sim.run_until(S, |sim| sim.a.fetched(added).is_some());
    assert_eq!((sim.b.word(words), sim.a.outcomes(long)), (42, 0));
    sim.run_until(20 * S, |sim| sim.a.sent(long));
    assert!(sim.b.holds(target, 1, MIB - 8));
}

#[test]
fn overlap__a_long_put_does_not_wait_for_small_ones() {
    let mut sim = far();
    let target = sim.b.empty(20_008);
    let place = export(&mut sim, target, Rights::WRITE);
    put(&mut sim, at(place, 20_000), 1, 8, None);
    put(&mut sim, place, 2, 20_000, None);
    let took = time_until(&mut sim, |sim| sim.b.holds(target, 2, 20_000));
    assert!(
        took < Duration::from_micros(15_500),
        "an announcement, a grant, the payload: {took:?}"
    );
}

#[test]
fn fence__orders_long_puts_and_small_operations() {
    let mut sim = far();
    let target = sim.b.empty(50_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let now = sim.now();
    for (seed, len) in [(1, 100), (2, 50_000), (3, 40_000), (4, 100)] {
        let span = sim.a.filled(seed, len);
        let id = sim.a.c().post_put(now, place, span, None, FENCED).unwrap();
        if seed == 4 {
            sim.run_until(20 * S, |sim| sim.a.sent(id));
        }
    }
    for (seed, from, to) in [(4, 0, 100), (3, 100, 40_000), (2, 40_000, 50_000)] {
        let expected = |i: u64| super::sim::content(seed, i);
        let bytes = sim.b.bytes(target);
        assert!((from..to).all(|i| bytes[i as usize] == expected(i)));
    }
}

/// A message announces the puts before it.
#[test]
fn message__meets_its_receive_when_the_long_puts_before_it_are_placed() {
    let mut sim = far();
    let target = sim.b.empty(MIB);
    let place = export(&mut sim, target, Rights::WRITE);
    let control = sim.b.empty(limits::MAX_CONTROL.into());
    let receive = sim.b.c().post_message_receive(control, None).unwrap();
    put(&mut sim, place, 1, MIB, None);
    let (now, bytes) = (sim.now(), bytes_of(2, 20));
    let flags = WorkFlags::default();
    sim.a.c().post_message(now, &bytes, None, flags).unwrap();
    sim.run_until(20 * S, |sim| sim.b.outcomes(receive) == 1);
    assert!(sim.b.holds(target, 1, MIB) && sim.b.holds(control, 2, 20));
}

#[test]
fn immediate__of_a_small_put_follows_long_puts_and_costs_no_round_trip() {
    let mut sim = far();
    let target = sim.b.empty(MIB);
    let place = export(&mut sim, target, Rights::WRITE);
    put(&mut sim, place, 1, MIB - 100, None);
    put(&mut sim, at(place, MIB - 100), 2, 50, Some(1));
    put(&mut sim, at(place, MIB - 50), 3, 50, Some(2));
    sim.run_until(20 * S, |sim| sim.b.holds(target, 1, MIB - 100));
    let later = time_until(&mut sim, |sim| shown(sim, 2));
    assert!(later <= MS / 2, "{later:?}");
    assert!(sim.b.holds(target.part(MIB - 100, 50), 2, 50));
    assert!(shown(&sim, 1) && sim.b.holds(target.part(MIB - 50, 50), 3, 50));
}

/// The immediate of a long put is announced; the bytes of small puts are not, and keep their order.
#[test]
fn order__small_puts_stay_in_order_whatever_their_immediates_wait_for() {
    each(20, |seed| {
        let mut dice = Dice::new(seed);
        let mut sim = Sim::new(
            any_link(&mut dice),
            seed,
            Config::default(),
            Config::default(),
        );
        sim.connect();
        let target = sim.b.empty(MIB);
        let place = export(&mut sim, target.part(20_000, MIB - 20_000), Rights::WRITE);
        let small = export(&mut sim, target.part(0, 20_000), Rights::WRITE);
        put(&mut sim, place, 1, MIB - 20_000, None);
        let mut last = 0;
        for n in 0..20 {
            let immediate = dice.chance(50).then_some(n);
            let len = dice.pick(&[100, 1_000]);
            put(&mut sim, small, 10 + u64::from(n), len, immediate);
            last = put(&mut sim, small, 100 + u64::from(n), 1_000, None);
            sim.run_for(Duration::from_micros(dice.below(500)));
        }
        sim.run_until(400 * S, |sim| sim.a.sent(last));
        assert!(sim.b.holds(target.part(0, 1_000), 119, 1_000));
        sim.run_until(400 * S, |sim| {
            !sim.a.connection.as_ref().is_some_and(Connection::is_busy)
        });
        assert!(sim.b.holds(target.part(0, 1_000), 119, 1_000), "and stays");
        assert!(
            sim.b
                .holds(target.part(20_000, MIB - 20_000), 1, MIB - 20_000)
        );
    });
}

/// Refused or revoked along with its bytes: the separately announced immediate is not shown, and the put ends once.
#[test]
fn immediate__announced_apart_ends_with_its_put() {
    for revoke in [false, true] {
        let mut sim = far();
        let (target, other) = (sim.b.empty(MIB), sim.b.empty(1_000));
        let place = export(&mut sim, target, Rights::WRITE);
        let rights = if revoke { Rights::WRITE } else { Rights::READ };
        let bad = export(&mut sim, other, rights);
        let long = put(&mut sim, place, 1, MIB, None);
        let ids = [1, 2].map(|n| put(&mut sim, bad, u64::from(n), 1_000, Some(n)));
        if revoke {
            sim.run_for(4 * MS);
            let now = sim.now();
            assert!(sim.b.c().revoke(now, bad.handle));
            sim.b.freeze(other);
        }
        let last = put(&mut sim, place, 3, 8, Some(3));
        sim.run_until(20 * S, |sim| {
            shown(sim, 3) && sim.a.sent(last) && sim.a.sent(long)
        });
        sim.run_for(S);
        let why = if revoke {
            Reason::Revoked
        } else {
            Reason::Denied
        };
        for id in ids {
            let failed = Some(TransferError::Refused(why));
            assert_eq!((sim.a.failed(id), sim.a.outcomes(id)), (failed, 1));
        }
        assert!(!shown(&sim, 1) && !shown(&sim, 2));
        sim.b.assert_frozen();
        sim.b.assert_guards();
    }
}

/// The announcement of the first long put is lost, and so are the small puts before the second: nothing is shown before
/// they are repeated.
#[test]
fn immediate__waits_for_what_was_lost_before_it() {
    let mut sim = far();
    let target = sim.b.empty(100_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let lost = [
        put(&mut sim, place, 1, 30_000, None),
        put(&mut sim, at(place, 30_000), 2, 100, None),
    ];
    let now = sim.now();
    assert!(!sim.a.outgoing(now).is_empty(), "taken off the wire");
    put(&mut sim, at(place, 40_000), 3, 50_000, Some(9));
    sim.run_until(20 * S, |sim| shown(sim, 9));
    assert!(sim.b.holds(target.part(0, 30_000), 1, 30_000));
    assert!(sim.b.holds(target.part(30_000, 100), 2, 100));
    assert!(sim.b.holds(target.part(40_000, 50_000), 3, 50_000));
    for id in lost {
        sim.run_until(20 * S, |sim| sim.a.sent(id));
    }
}

#[test]
fn immediate__of_a_long_put_waits_until_the_peer_looks() {
    let mut sim = far();
    let target = sim.b.empty(100_000);
    let place = export(&mut sim, target, Rights::WRITE);
    sim.b.c().set_unread(limits::MAX_UNREAD);
    let id = put(&mut sim, place, 1, 50_000, Some(1));
    let free = put(&mut sim, at(place, 50_000), 2, 50_000, None);
    sim.run_until(20 * S, |sim| sim.a.sent(free));
    sim.run_for(3 * S);
    assert_eq!(sim.a.outcomes(id), 0, "no room to show it");
    assert!(!sim.b.holds(target.part(0, 50_000), 1, 50_000));
    sim.b.c().set_unread(0);
    let took = time_until(&mut sim, |sim| shown(sim, 1));
    assert!(took < 16 * MS, "granted as soon as there is room: {took:?}");
    assert!(sim.b.holds(target.part(0, 50_000), 1, 50_000));
    sim.run_until(S, |sim| sim.a.sent(id));
}

/// A put that ends before it is placed delays nothing, and shows nothing.
#[test]
fn immediate__of_what_is_cancelled_or_revoked_is_not_shown() {
    let mut sim = far();
    let spans = [0, 1, 2].map(|_| sim.b.empty(MIB));
    let places = spans.map(|span| export(&mut sim, span, Rights::WRITE));
    let ids: Vec<_> = (1..4)
        .map(|n| put(&mut sim, places[n as usize - 1], n, MIB, Some(n as u32)))
        .collect();
    sim.run_for(16 * MS);
    let now = sim.now();
    assert!(sim.a.c().cancel(now, ids[0]));
    assert!(sim.b.c().revoke(now, places[1].handle));
    sim.b.freeze(spans[1]);
    sim.run_until(20 * S, |sim| shown(sim, 3));
    sim.run_until(20 * S, |sim| ids.iter().all(|&id| sim.a.outcomes(id) == 1));
    assert!(sim.b.holds(spans[2], 3, MIB) && !shown(&sim, 1) && !shown(&sim, 2));
    let revoked = TransferError::Refused(Reason::Revoked);
    let failed = [0, 1, 2].map(|n| sim.a.failed(ids[n]));
    assert_eq!(
        failed,
        [Some(TransferError::Cancelled), Some(revoked), None]
    );
    sim.b.assert_frozen();
}

/// A posted put.
struct Posted {
    id: TransferId,
    seed: u64,
    target: Span,
    handle: u32,
    immediate: Option<u32>,
    cancelled: bool,
}

fn any_link(dice: &mut Dice) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(dice.pick(&[20, 300, 5_000])),
        loss: Loss::Random(dice.pick(&[0.0, 0.02, 0.1])),
        duplicate: dice.pick(&[0.0, 0.1]),
        queue_packets: dice.pick(&[40, 100_000]),
        rate_bits_per_s: dice.pick(&[None, Some(200_000_000)]),
        reorder: Reorder {
            probability: dice.pick(&[0.0, 0.1]),
            by: dice.pick(&[MS, 20 * MS]),
        },
        ..LinkConfig::default()
    }
}

/// Puts of all lengths side by side, some with immediates and some cancelled, among gets and atomic operations.
/// Whenever an immediate is shown, all earlier puts and its own are placed; immediates come in order, each once.
#[test]
fn model__immediates_come_in_order_behind_everything_before_them() {
    each(250, |seed| {
        let mut dice = Dice::new(seed);
        let profiles = match seed % 4 {
            0 => Profiles::only(Profile::Classic),
            _ => Profiles::BOTH,
        };
        let config = Config {
            profiles,
            slots: dice.pick(&[1, 3, 64]),
            buffer_log2: dice.pick(&[12, 30]),
            classic_block_log2: 12,
            ..Config::default()
        };
        let mut sim = Sim::new(any_link(&mut dice), seed, config.clone(), config);
        sim.connect();
        if seed.is_multiple_of(3) {
            sim.a.c().age_operations(u32::MAX - 20);
            sim.b.c().age_operations(u32::MAX - 20);
        }
        let word = sim.b.words(&[0]);
        let word = export(&mut sim, word, Rights::ALL);
        let (mut puts, mut seen): (Vec<Posted>, usize) = (vec![], 0);
        for n in 0..50 {
            let len = match dice.below(10) {
                0 => 0,
                1..=5 => dice.below(1_193),
                6 | 7 => 1_193 + dice.below(17_000),
                _ => 17_000 + dice.below(40_000),
            };
            let target = sim.b.empty(len);
            let place = export(&mut sim, target, Rights::WRITE);
            let immediate = dice.chance(50).then_some(n);
            puts.push(Posted {
                id: put(&mut sim, place, u64::from(n), len, immediate),
                seed: n.into(),
                target,
                handle: place.handle,
                immediate,
                cancelled: false,
            });
            match dice.below(8) {
                0 => drop(get(&mut sim, word, 8)),
                1 => drop(fetch(&mut sim, word, atomic(FetchOpKind::Add, 1, 0))),
                2 => cancel_one(&mut sim, &mut dice, &mut puts),
                _ => {}
            }
            if dice.chance(40) {
                let until = sim.net.now() + Duration::from_micros(dice.below(4_000));
                while sim.step(until) {
                    check_shown(&sim, &puts, &mut seen);
                }
            }
        }
        sim.run_until(400 * S, |sim| {
            check_shown(sim, &puts, &mut seen);
            puts.iter().all(|it| sim.a.outcomes(it.id) == 1)
        });
        sim.run_for(5 * S);
        check_shown(&sim, &puts, &mut seen);
        for it in &puts {
            let times = sim
                .b
                .immediates()
                .filter(|shown| Some(shown.0) == it.immediate);
            match (times.count(), it.immediate) {
                (1, Some(_)) | (0, None) => {}
                (times, shown) => assert!(times == 0 && it.cancelled, "{shown:?} {times}"),
            }
            assert!(it.cancelled || sim.a.sent(it.id));
        }
        sim.b.assert_guards();
        for side in Side::BOTH {
            sim.host(side).c().assert_bounded();
        }
    });
}

fn cancel_one(sim: &mut Sim, dice: &mut Dice, puts: &mut [Posted]) {
    let index = dice.below(puts.len() as u64) as usize;
    let now = sim.now();
    puts[index].cancelled |= sim.a.c().cancel(now, puts[index].id);
}

/// Checks that the immediates shown after the first `seen` follow everything posted before them, and say what they
/// belong to.
fn check_shown(sim: &Sim, puts: &[Posted], seen: &mut usize) {
    let mut last = sim.b.immediates().take(*seen).last().map(|it| it.0);
    for (value, handle, length) in sim.b.immediates().skip(*seen) {
        let own = &puts[value as usize];
        assert_eq!((handle, length), (own.handle, own.target.len), "{value}");
        assert!(last < Some(value), "{value} behind {last:?}");
        last = Some(value);
        *seen += 1;
        for it in &puts[..=value as usize] {
            let placed = sim.b.holds(it.target, it.seed, it.target.len);
            assert!(placed || it.cancelled, "{} not placed at {value}", it.seed);
        }
    }
}
