//! Tests that the answer to a long Get uses all paths.

use super::paths::{MS, PAYLOAD, S, link};
use super::paths_sim::{DATAGRAM, PathsSim};
use super::seeds::each;
use crate::ExportAs;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use proptest::prelude::*;
use std::time::Duration;
use zerolane_wire::Rights;

/// A Get of A from memory of B.
#[derive(Clone, Copy, Debug)]
struct Getting {
    id: TransferId,
    seed: u64,
    target: Span,
}

fn get(sim: &mut PathsSim, seed: u64, length: u64) -> Getting {
    let (now, source) = (sim.now(), sim.b.filled(seed, length));
    let (handle, mx) = sim
        .b
        .c()
        .export(source, Rights::READ, ExportAs::Handle)
        .expect("room");
    let place = RemotePlace {
        handle,
        mx,
        address: 0,
    };
    let target = sim.a.empty(length);
    let id = sim
        .a
        .c()
        .post_get(now, place, target, WorkFlags::default())
        .expect("posted");
    Getting { id, seed, target }
}

/// Runs until it is over, and checks every byte.
fn finish(sim: &mut PathsSim, it: Getting) {
    sim.run_until(Duration::from_secs(120), |sim| sim.a.outcomes(it.id) > 0);
    assert_eq!(sim.a.failed(it.id), None);
    assert!(sim.a.holds(it.target, it.seed, it.target.len));
    sim.a.assert_guards();
    for side in Side::BOTH {
        sim.host(side).c().assert_bounded();
    }
}

/// Payload rate towards A in Mb/s during `time`.
fn rate_over(sim: &mut PathsSim, time: Duration) -> f64 {
    let arrived = |sim: &mut PathsSim| sim.a.c().counters().bytes_received;
    let before = arrived(sim);
    sim.run_for(time);
    (arrived(sim) - before) as f64 * 8.0 / time.as_secs_f64() / 1e6
}

/// Packets that the links lost on their way to A.
fn lost(sim: &PathsSim) -> u64 {
    let stats = sim.nets.iter().map(|net| net.link(Side::B).stats());
    stats.map(|it| it.lost + it.queue_dropped).sum()
}

fn resent(sim: &mut PathsSim) -> u64 {
    sim.b.c().counters().bytes_resent
}

#[test]
fn gets__over_5_and_20_ms_reach_nine_tenths_of_their_sum() {
    const LEN: u64 = 192 << 20;
    let mut sim = PathsSim::over(&[link(5, 500), link(20, 500)], 1);
    let it = get(&mut sim, 1, LEN);
    sim.run_for(S / 2);
    let mbps = rate_over(&mut sim, S / 2);
    finish(&mut sim, it);
    println!(
        "{mbps:.0} Mb/s, {} bytes again, {} packets lost",
        resent(&mut sim),
        lost(&sim)
    );
    assert!(mbps >= 0.9 * 1000.0 * PAYLOAD, "{mbps} Mb/s");
    let now = sim.now();
    let by = [0, 1].map(|path| sim.a.c().state_of(now, path).expect("there").bytes_received);
    assert_eq!(by[0] + by[1], LEN);
    assert!(by[0].min(by[1]) > 60 << 20, "{by:?}");
}

/// By the other path, the round trip would belong to neither: a false queue, or a path that seems too short.
#[test]
fn progress__returns_by_the_path_of_its_burst() {
    let mut sim = PathsSim::over(&[link(4, 100), link(40, 100)], 9);
    let it = get(&mut sim, 1, 16 << 20);
    sim.run_for(S / 2);
    let now = sim.now();
    let shortest = [0, 1].map(|path| {
        let state = sim.b.c().state_of(now, path).expect("there");
        state.min_rtt.expect("measured")
    });
    finish(&mut sim, it);
    // A packet takes 120 us.
    assert!(
        shortest[0] >= 4 * MS && shortest[0] < 6 * MS,
        "{shortest:?}"
    );
    assert!(
        shortest[1] >= 40 * MS && shortest[1] < 42 * MS,
        "{shortest:?}"
    );
}

#[test]
fn gets__by_paths_that_overtake_each_other_are_not_answered_twice() {
    let mut sim = PathsSim::over(&[link(5, 100), link(40, 100)], 2);
    let it = get(&mut sim, 1, 16 << 20);
    finish(&mut sim, it);
    let (again, most) = (resent(&mut sim), lost(&sim) * 1432);
    println!("{again} bytes again, for {most} lost");
    assert!(again <= most, "{again} sent again, {most} lost");
    assert!(sim.a.c().counters().reordered > 0, "they do overtake");
}

#[test]
fn gets__by_paths_of_which_one_loses() {
    let lossy = LinkConfig {
        loss: Loss::Random(0.01),
        duplicate: 0.01,
        ..link(20, 100)
    };
    let mut sim = PathsSim::over(&[link(5, 100), lossy], 6);
    let it = get(&mut sim, 1, 32 << 20);
    sim.run_for(S / 2);
    let mbps = rate_over(&mut sim, S);
    finish(&mut sim, it);
    let (resent, lost) = (resent(&mut sim), lost(&sim));
    println!("{mbps:.0} Mb/s, {resent} bytes again for {lost} lost packets");
    assert!(lost > 50);
    assert!(mbps >= 0.75 * 200.0 * PAYLOAD, "{mbps} Mb/s");
    assert!(resent <= 2 * lost * 1432, "{resent} for {lost}");
}

#[test]
fn gets__lose_nothing_when_a_path_dies_and_the_rest_goes_on() {
    let links = [link(5, 500), link(20, 500)];
    for dying in [0, 1] {
        let alone = {
            let mut sim = PathsSim::over(&links[1 - dying..2 - dying], 3);
            get(&mut sim, 1, 192 << 20);
            sim.run_for(S);
            rate_over(&mut sim, S / 4)
        };
        let mut sim = PathsSim::over(&links, 3);
        let it = get(&mut sim, 1, 192 << 20);
        sim.run_for(S);
        sim.set_up(dying, false);
        // Three round trips of the longer one.
        sim.run_for(3 * 20 * MS);
        let mbps = rate_over(&mut sim, S / 4);
        println!("path {dying} dead: {mbps:.0} Mb/s, {alone:.0} alone");
        assert!(mbps >= 0.85 * alone, "path {dying}: {mbps} of {alone} Mb/s");
        finish(&mut sim, it);
        // Only the answering end reports unasked, and it waits for nothing.
        for side in Side::BOTH {
            let life = sim.host(side).c().path_life(dying);
            assert_eq!(life, PathLife::Suspect, "{side:?}");
        }
    }
}

/// Short answers stay on one path; all of them arrive.
#[test]
fn gets__long_and_short_beside_each_other() {
    each(8, |seed| {
        let lossy = LinkConfig {
            loss: Loss::Random(0.005),
            ..link(8, 200)
        };
        let mut sim = PathsSim::over(&[link(5, 200), link(20, 200), lossy], seed);
        let mut gets = vec![];
        for step in 0..12 {
            let length = if step % 3 == 0 { 2 << 20 } else { 700 };
            gets.push(get(&mut sim, seed << 8 | step, length));
            sim.run_for(MS * 3);
        }
        let put = sim.post(seed, 4 << 20);
        for it in gets {
            finish(&mut sim, it);
        }
        sim.finish(put);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Paths come, go, die and recover at random while Gets are answered.
    #[test]
    fn gets__while_paths_change_at_random(
        seed in 0u64..1 << 40,
        steps in prop::collection::vec((0u8..6, 1usize..4, 1u32..120), 1..24),
    ) {
        let lossy = LinkConfig { loss: Loss::Random(0.002), ..link(8, 100) };
        let links = [link(5, 100), link(20, 100), lossy, link(40, 20)];
        let mut sim = PathsSim::unjoined(&links, seed);
        let mut gets = vec![get(&mut sim, seed, 4 << 20)];
        for (what, path, ms) in steps {
            let now = sim.now();
            match what {
                0 | 1 => {
                    // The first free index.
                    sim.a.c().add_path(now, DATAGRAM);
                }
                2 => sim.a.c().remove_path(now, path),
                3 => sim.b.c().remove_path(now, path),
                4 => sim.set_up(path, false),
                _ => sim.set_up(path, true),
            }
            if gets.len() < 4 {
                let next = seed + gets.len() as u64;
                gets.push(get(&mut sim, next, 1 << 20));
            }
            sim.run_for(MS * ms);
        }
        for it in gets {
            finish(&mut sim, it);
        }
    }
}
