//! Tests that puts of copies are numbered operations, whatever they cross or follow.

use super::memory::{S, at, export, put, quiet, until_over};
use super::memory_faults::bad;
use super::seeds::{Dice, each};
use super::sim::{Sim, bytes_of};
use crate::limits::MAX_INLINE;
use crate::*;
use zerolane_wire::{Profile, Profiles, Reason, Rights};

const MOST: u64 = MAX_INLINE as u64;

fn put_inline(
    sim: &mut Sim,
    place: RemotePlace,
    seed: u64,
    len: u64,
    immediate: Option<u32>,
) -> TransferId {
    let (now, bytes) = (sim.now(), bytes_of(seed, len));
    let flags = WorkFlags::default();
    let posted = sim.a.c().post_inline(now, place, &bytes, immediate, flags);
    posted.expect("room")
}

/// Buffers as small as a peer may have, so that every second put crosses a boundary.
fn tiny(profile: Profile) -> Config {
    Config {
        profiles: Profiles::only(profile),
        buffer_log2: limits::MIN_BUFFER_LOG2,
        classic_buffer_log2: limits::MIN_BUFFER_LOG2,
        ..Config::default()
    }
}

#[test]
fn inline__across_a_buffer_boundary_needs_no_announcement() {
    for profile in [Profile::Classic, Profile::Extended] {
        for len in [0, 1, 8, 57, MOST] {
            for immediate in [None, Some(7)] {
                let mut sim = quiet(tiny(profile));
                let target = sim.b.empty(1_000);
                let place = export(&mut sim, target, Rights::WRITE);
                let id = put_inline(&mut sim, at(place, 200), 3, len, immediate);
                until_over(&mut sim, id);
                sim.run_for(S);
                assert!(sim.a.sent(id) && sim.a.outcomes(id) == 1, "{len}");
                assert!(sim.b.holds(target.part(200, len), 3, len), "{len}");
                // In the classic profile the bytes behind the boundary are a put of their own.
                let length = match profile {
                    Profile::Classic if len > 56 => len - 56,
                    _ => len,
                };
                let shown = immediate.map(|value| (value, place.handle, length));
                assert!(sim.b.immediates().eq(shown), "{profile:?} {len}");
                assert!(!sim.spoken().contains("RequestToSend"), "{}", sim.spoken());
                sim.b.assert_guards();
            }
        }
    }
}

#[test]
fn inline__immediates_follow_long_puts() {
    let mut sim = quiet(tiny(Profile::Extended));
    let target = sim.b.empty(500_000);
    let place = export(&mut sim, target, Rights::WRITE);
    let long = put(&mut sim, place, 1, 400_000, Some(1));
    let short = put_inline(&mut sim, at(place, 400_128), 2, 8, Some(2));
    // Crosses a boundary.
    let split = put_inline(&mut sim, at(place, 400_200), 3, MOST, Some(3));
    until_over(&mut sim, split);
    sim.run_for(S);
    for id in [long, short, split] {
        assert!(sim.a.sent(id) && sim.a.outcomes(id) == 1);
    }
    let shown = sim.b.immediates().map(|it| (it.0, it.2));
    assert_eq!(shown.collect::<Vec<_>>(), [(1, 400_000), (2, 8), (3, MOST)]);
    assert!(sim.b.holds(target.part(0, 400_000), 1, 400_000));
    assert!(sim.b.holds(target.part(400_128, 8), 2, 8));
    assert!(sim.b.holds(target.part(400_200, MOST), 3, MOST));
}

#[test]
fn inline__an_immediate_waits_for_the_long_put_before_it() {
    // The second crosses a boundary.
    for (to, len) in [(400_128, 8), (400_200, MOST)] {
        let mut sim = quiet(tiny(Profile::Extended));
        let target = sim.b.empty(500_000);
        let place = export(&mut sim, target, Rights::WRITE);
        put(&mut sim, place, 1, 400_000, None);
        put_inline(&mut sim, at(place, to), 3, len, Some(3));
        sim.run_until(10 * S, |sim| sim.b.is_shown(3));
        assert!(sim.b.immediates().eq([(3, place.handle, len)]));
        assert!(sim.b.holds(target.part(0, 400_000), 1, 400_000), "{len}");
        assert!(sim.b.holds(target.part(to, len), 3, len), "{len}");
    }
}

/// The rest of a put whose bytes a lane placed itself.
fn put_placed(sim: &mut Sim, place: RemotePlace, len: u64, immediate: Option<u32>) -> TransferId {
    let (now, flags) = (sim.now(), WorkFlags::default());
    let posted = sim.a.c().post_placed(now, place, len, immediate, flags);
    posted.expect("room")
}

#[test]
fn placed__an_immediate_tells_how_many_bytes_the_lane_placed() {
    for config in [Config::default(), tiny(Profile::Extended)] {
        each(10, |seed| {
            let mut dice = Dice::new(seed);
            let mut sim = Sim::new(bad(), seed, config.clone(), config.clone());
            sim.connect();
            let target = sim.b.empty(70_000);
            let place = export(&mut sim, target, Rights::WRITE);
            let (mut told, mut ids) = (vec![], vec![]);
            for n in 0..100 {
                let len = dice.below(70_001);
                let to = at(place, 70_000 - len);
                let immediate = dice.chance(70).then_some(n);
                ids.push(put_placed(&mut sim, to, len, immediate));
                told.extend(immediate.map(|n| (n, place.handle, len)));
            }
            sim.run_until(100 * S, |sim| ids.iter().all(|&id| sim.a.outcomes(id) == 1));
            assert!(ids.iter().all(|&id| sim.a.sent(id)));
            let shown: Vec<_> = sim.b.immediates().collect();
            assert_eq!(shown, told);
            sim.b.assert_guards();
        });
    }
}

#[test]
fn placed__more_than_the_region_has_is_refused() {
    let mut sim = quiet(Config::default());
    let target = sim.b.empty(100);
    let place = export(&mut sim, target, Rights::WRITE);
    let read = export(&mut sim, target, Rights::READ);
    let refusals = [
        (place, 101, Reason::OutOfBounds),
        (place, u64::from(u32::MAX), Reason::OutOfBounds),
        (read, 100, Reason::Denied),
    ];
    for (place, len, reason) in refusals {
        let id = put_placed(&mut sim, place, len, Some(1));
        until_over(&mut sim, id);
        assert_eq!(sim.a.failed(id), Some(TransferError::Refused(reason)));
    }
    let id = put_placed(&mut sim, at(place, 40), 60, Some(2));
    until_over(&mut sim, id);
    assert!(sim.a.sent(id));
    assert!(sim.b.immediates().eq([(2, place.handle, 60)]));
}

/// More than the window holds, over links that lose, double and reorder: each is done once, in order, and one that is
/// cancelled does not disturb the others.
#[test]
fn inline__many_are_done_once_and_in_order() {
    each(20, |seed| {
        let mut dice = Dice::new(seed);
        let config = match seed % 3 {
            0 => tiny(Profile::Classic),
            1 => tiny(Profile::Extended),
            _ => Config::default(),
        };
        let mut sim = Sim::new(bad(), seed, config.clone(), config);
        sim.connect();
        let target = sim.b.empty(20_000);
        let place = export(&mut sim, target, Rights::WRITE);
        let mut expected = sim.b.bytes(target).to_vec();
        let mut posted = vec![];
        for n in 0..300 {
            let len = dice.below(MOST + 1);
            let to = dice.below(20_000 - len);
            let id = put_inline(&mut sim, at(place, to), n, len, None);
            let now = sim.now();
            // It is not done, because it waits behind the window.
            let cancelled = dice.chance(5) && posted.len() > 280 && sim.a.c().cancel(now, id);
            if !cancelled {
                expected[to as usize..(to + len) as usize].copy_from_slice(&bytes_of(n, len));
            }
            posted.push((id, cancelled));
        }
        sim.run_until(400 * S, |sim| {
            posted.iter().all(|it| sim.a.outcomes(it.0) == 1)
        });
        for &(id, cancelled) in &posted {
            assert_eq!(sim.a.sent(id), !cancelled);
        }
        assert!(sim.b.bytes(target) == expected, "memory at the end");
        sim.b.assert_guards();
    });
}
