//! Tests that the lateness of busy ends is not blamed on one of several paths.

use super::paths::{MS, S};
use super::paths_sim::{DATAGRAM, PathsSim};
use super::seeds::{Dice, each};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of a piece, and the number of pieces in flight or waiting: one path sends the waiting pieces in little time.
const PIECE: u64 = 16 << 10;
const PIECES: u64 = 64;

/// One-way delay: where only grants limit payload, and where a model does.
const LAN: Duration = Duration::from_micros(20);
const FAR: Duration = Duration::from_millis(1);

fn link(delay: Duration) -> LinkConfig {
    LinkConfig {
        delay,
        rate_bits_per_s: Some(2_500_000_000),
        queue_packets: 1_000,
        ..LinkConfig::default()
    }
}

/// Pieces that A sends to B repeatedly.
struct Stream {
    open: VecDeque<(TransferId, Span, Span)>,
}

impl Stream {
    fn start(sim: &mut PathsSim) -> Stream {
        let pieces = (0..PIECES).map(|seed| {
            let (source, target) = (sim.a.filled(seed, PIECE), sim.b.empty(PIECE));
            (Stream::post(sim, source, target), source, target)
        });
        let open = pieces.collect();
        Stream { open }
    }

    fn post(sim: &mut PathsSim, source: Span, target: Span) -> TransferId {
        let now = sim.now();
        let to = sim.b.c().post_receive(now, target).expect("posted");
        let from = sim.a.c().post_send(now, source, Delivery::Polled);
        from.expect("posted");
        to
    }

    /// Runs for `time`. Returns the bytes that came by each path. `late` returns until when an end is descheduled, if
    /// it is its turn.
    fn run(
        &mut self,
        sim: &mut PathsSim,
        time: Duration,
        mut late: impl FnMut(Side, Duration) -> Option<Duration>,
    ) -> Vec<u64> {
        let before = by_path(sim);
        let end = sim.nets[0].now() + time;
        while sim.nets[0].now() < end {
            let now = sim.nets[0].now();
            for side in Side::BOTH {
                if let Some(until) = late(side, now) {
                    sim.host(side).stalled_until = until;
                }
            }
            sim.step(end.min(now + MS / 20));
            if sim.nets[0].now() < sim.b.stalled_until {
                continue;
            }
            let events = std::mem::take(&mut sim.b.events);
            for event in events {
                let Event::Received { id, .. } = event else {
                    continue;
                };
                let at = self.open.iter().position(|it| it.0 == id);
                let (_, source, target) = at.and_then(|at| self.open.remove(at)).expect("posted");
                let again = Stream::post(sim, source, target);
                self.open.push_back((again, source, target));
            }
            sim.a.events.clear();
        }
        by_path(sim)
            .iter()
            .zip(before)
            .map(|(it, before)| it - before)
            .collect()
    }
}

fn by_path(sim: &mut PathsSim) -> Vec<u64> {
    let now = sim.now();
    (0..sim.nets.len())
        .map(|path| {
            sim.b
                .c()
                .state_of(now, path)
                .map_or(0, |it| it.bytes_received)
        })
        .collect()
}

/// An equally good path carries its part, although the end that first answered by it was late.
#[test]
fn path__whose_first_answer_was_late_carries() {
    // Where a model rules, the first path takes as much as its window allows, and that is most of the payload.
    for (delay, part) in [(LAN, 4), (FAR, 16)] {
        each(5, |seed| {
            let mut dice = Dice::new(seed);
            let mut sim = PathsSim::unjoined(&[link(delay), link(delay)], seed);
            sim.run_for(S);
            let now = sim.now();
            assert_eq!(sim.a.c().add_path(now, DATAGRAM), Some(1));
            let late = Duration::from_micros(5_000 + dice.below(40_000));
            sim.b.stalled_until = sim.nets[0].now() + late;
            sim.run_for(2 * late + MS);
            sim.run_until(S, |sim| {
                let usable =
                    |host: &mut super::sim::Host| host.c().path_life(1) == PathLife::Usable;
                usable(&mut sim.a) && usable(&mut sim.b)
            });
            let by = Stream::start(&mut sim).run(&mut sim, 200 * MS, |_, _| None);
            println!("{delay:?}, seed {seed}, {late:?} late: {by:?}");
            assert!(by[1] >= by[0] / part, "{by:?}");
        });
    }
}

/// Answers that take longer than the longest interval between two questions.
#[test]
fn path__whose_answers_are_later_than_the_next_question_joins() {
    each(3, |seed| {
        let late = link(Duration::from_millis(700));
        let mut sim = PathsSim::unjoined(&[link(FAR), late], seed);
        sim.run_for(S);
        let now = sim.now();
        assert_eq!(sim.a.c().add_path(now, DATAGRAM), Some(1));
        sim.run_for(20 * S);
        for host in [&mut sim.a, &mut sim.b] {
            assert_eq!(host.c().path_life(1), PathLife::Usable);
        }
    });
}

/// As in `busy__ends_fill_the_link`: alternately 3 to 8 ms descheduled, and 50 to 1,000 us running.
#[test]
fn paths__between_busy_ends_all_carry() {
    for busy in [&[Side::A][..], &[Side::B], &Side::BOTH] {
        each(3, |seed| {
            let mut dice = Dice::new(seed);
            let mut sim = PathsSim::over(&[link(LAN), link(LAN), link(LAN)], seed);
            let mut next = [Duration::ZERO; 2];
            let by = Stream::start(&mut sim).run(&mut sim, 300 * MS, |side, now| {
                let next = &mut next[usize::from(side == Side::B)];
                let turns = busy.contains(&side) && *next <= now;
                turns.then(|| {
                    let until = now + Duration::from_micros(3_000 + dice.below(5_000));
                    *next = until + Duration::from_micros(50 + dice.below(950));
                    until
                })
            });
            println!("{busy:?}, seed {seed}: {by:?}");
            let (least, most) = (by.iter().min(), by.iter().max());
            assert!(least >= most.map(|it| it / 8).as_ref(), "{busy:?}: {by:?}");
        });
    }
}

/// A path whose controller has a pace is polled after one without a pace, and carries its part all the same.
#[test]
fn path__that_lost_something_carries_beside_one_that_did_not() {
    each(3, |seed| {
        let mut sim = PathsSim::over(&[link(LAN), link(LAN)], seed);
        let controller = |sim: &mut PathsSim| {
            let now = sim.now();
            sim.a.c().state_of(now, 1).expect("there").controller
        };
        let mut stream = Stream::start(&mut sim);
        let losing = LinkConfig {
            loss: Loss::Random(0.05),
            ..link(LAN)
        };
        sim.nets[1].link_mut(Side::A).set_config(losing);
        for _ in 0..100 {
            stream.run(&mut sim, 10 * MS, |_, _| None);
            if controller(&mut sim) == "auto: model" {
                break;
            }
        }
        assert_eq!(controller(&mut sim), "auto: model");
        sim.nets[1].link_mut(Side::A).set_config(link(LAN));
        let by = stream.run(&mut sim, 200 * MS, |_, _| None);
        println!("seed {seed}: {by:?}");
        assert!(by[1] >= by[0] / 16, "{by:?}");
    });
}
