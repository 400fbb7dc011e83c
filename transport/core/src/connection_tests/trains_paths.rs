//! Tests that trains cost no goodput over paths of every kind, and stay correct against an oracle.

use super::model::Model;
use super::seeds::{Dice, each};
use super::sim::Sim;
use super::sim_trains::{Merging, Tamper, merged_at_random};
use crate::ExportAs;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::Rights;

const MS: Duration = Duration::from_millis(1);

/// Result of a Transfer.
struct Outcome {
    seconds: f64,
    trains: usize,
    timeouts: u64,
    /// Retransmitted bytes per byte of the Transfer.
    resent: f64,
}

/// A Transfer of 64 MiB over 1 Gb/s and 20 ms, with or without trains.
fn transfer(trains: bool, loss: f64, seed: u64) -> Outcome {
    let link = LinkConfig {
        delay: 10 * MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 20_000 / 12,
        loss: Loss::Random(loss),
        ..LinkConfig::default()
    };
    transfer_over(link, trains, 64 << 20, seed)
}

/// A Transfer of `length` bytes over `link`.
fn transfer_over(link: LinkConfig, trains: bool, length: u64, seed: u64) -> Outcome {
    let mut sim = Sim::with_trains(link, seed, Config::default(), merged_at_random);
    for host in [&mut sim.a, &mut sim.b] {
        host.c().set_takes_trains(trains);
    }
    let (start, now) = (sim.net.now(), sim.now());
    let source = sim.a.filled(7, length);
    let target = sim.b.empty(length);
    sim.b.c().post_receive(now, target).unwrap();
    let from = sim.a.c().post_send(now, source, Delivery::Polled).unwrap();
    sim.run_until(Duration::from_secs(600), |sim| sim.a.sent(from));
    assert!(sim.b.holds(target, 7, length));
    Outcome {
        seconds: (sim.net.now() - start).as_secs_f64(),
        trains: sim.a.trains.as_ref().expect("trains").left.len(),
        timeouts: sim.b.c().counters().timeouts,
        resent: sim.a.c().counters().bytes_resent as f64 / length as f64,
    }
}

/// Time without trains divided by time with them, over one Transfer per seed.
fn ratio(loss: f64, seeds: u64) -> f64 {
    let (mut with, mut without) = (0.0, 0.0);
    each(seeds, |seed| {
        let (a, b) = (
            transfer(true, loss, 1 + seed),
            transfer(false, loss, 1 + seed),
        );
        assert!(a.trains > 0 && b.trains == 0 && a.timeouts + b.timeouts == 0);
        (with, without) = (with + a.seconds, without + b.seconds);
    });
    std::eprintln!("{loss}: {:.4} of {without:.3} s", without / with);
    without / with
}

#[test]
fn goodput__with_trains_is_that_without_where_nothing_is_lost() {
    assert!(ratio(0.0, 1) >= 1.0);
}

#[test]
fn goodput__with_trains_is_within_2_percent_of_that_without_where_something_is() {
    // Two Transfers differ by more, either way.
    for (loss, seeds) in [(0.0001, 2), (0.001, 8), (0.01, 3)] {
        let ratio = ratio(loss, seeds);
        assert!(ratio >= 0.98, "{loss}: {ratio}");
    }
}

/// A posted put or Get at `side`, and the place that must equal its content.
struct Work {
    side: Side,
    id: TransferId,
    put: bool,
    place: Span,
    content: u64,
    length: u64,
}

/// Transfers, and puts and Gets beside them.
struct Both {
    model: Model,
    work: Vec<Work>,
}

/// Adds datagrams of unauthenticated hosts, and some that an attacker derived from real ones.
fn foreign(mut dice: Dice, per_mille: u64) -> Tamper {
    let mut kept: Vec<u8> = vec![];
    Box::new(move |bytes| {
        if dice.below(1_000) >= per_mille {
            return vec![bytes.to_vec()];
        }
        let mut other = match dice.below(4) {
            0 => vec![dice.next() as u8; bytes.len()],
            1 => vec![dice.next() as u8; 1 + dice.below(1_500) as usize],
            2 => std::mem::take(&mut kept),
            _ => bytes.to_vec(),
        };
        kept = bytes.to_vec();
        if !other.is_empty() && dice.chance(50) {
            let at = dice.below(other.len() as u64) as usize;
            other[at] ^= 1 << dice.below(8);
        }
        match other.is_empty() {
            true => vec![bytes.to_vec()],
            false => vec![other, bytes.to_vec()],
        }
    })
}

fn random_link(dice: &mut Dice) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(dice.pick(&[10, 100, 2_000, 10_000])),
        rate_bits_per_s: dice.pick(&[None, Some(10_000_000_000), Some(500_000_000)]),
        queue_packets: dice.pick(&[100, 100_000]),
        loss: Loss::Random(dice.pick(&[0.0, 0.0, 0.0003, 0.01, 0.1])),
        duplicate: dice.pick(&[0.0, 0.0, 0.002, 0.05]),
        reorder: Reorder {
            probability: dice.pick(&[0.0, 0.0, 0.002, 0.05]),
            by: dice.pick(&[MS / 20, MS]),
        },
        ..LinkConfig::default()
    }
}

impl Both {
    fn new(seed: u64) -> Both {
        let mut dice = Dice::new(seed);
        let config = Config {
            window: dice.pick(&[200_000, 2 << 20]),
            block: dice.pick(&[20_000, 200_000, 1 << 20]),
            buffer_log2: dice.pick(&[13, 16, 30, 30]),
            eager_limit: dice.pick(&[0, 16 << 10]),
            ..Config::default()
        };
        let mut sim = Sim::with_trains(random_link(&mut dice), seed, config, merged_at_random);
        let per_mille = dice.pick(&[0, 0, 1, 20]);
        for side in Side::BOTH {
            let trains = sim.host(side).trains.as_mut().expect("trains");
            trains.sends = dice.chance(95);
            trains.merging = match dice.below(3) {
                0 => Merging::Off,
                1 => Merging::Full,
                _ => Merging::Any(Dice::new(seed)),
            };
            trains.tamper = Some(foreign(Dice::new(dice.next()), per_mille));
        }
        let cancels = dice.chance(50);
        let longest = dice.pick(&[60_000, 400_000, 2_000_000]);
        let mut model = Model::of(sim, dice, longest);
        model.cancels = cancels;
        Both {
            model,
            work: vec![],
        }
    }

    /// Posts a put or a Get at `side`.
    fn post(&mut self, side: Side, put: bool) {
        let (content, length) = (self.model.new_content(), self.model.length());
        let offset = self.model.dice.below(3_000);
        let sim = &mut self.model.sim;
        let now = sim.now();
        let (at, rights, from) = match put {
            true => (side.other(), Rights::WRITE, side),
            false => (side, Rights::READ, side.other()),
        };
        let source = sim.host(from).filled(content, length);
        let place = sim.host(at).empty_at(offset, length);
        let exported = if put { place } else { source };
        let there = sim
            .host(side.other())
            .c()
            .export(exported, rights, ExportAs::Handle);
        let Ok((handle, mx)) = there else { return };
        let there = RemotePlace {
            handle,
            mx,
            address: 0,
        };
        let flags = WorkFlags::default();
        let here = sim.host(side).c();
        let id = match put {
            true => here.post_put(now, there, source, None, flags),
            false => here.post_get(now, there, place, flags),
        };
        if let Ok(id) = id {
            self.work.push(Work {
                side,
                id,
                put,
                place,
                content,
                length,
            });
        }
    }

    fn cancel(&mut self) {
        if self.work.is_empty() || !self.model.cancels {
            return;
        }
        let index = self.model.dice.below(self.work.len() as u64) as usize;
        let it = &self.work[index];
        let now = self.model.sim.now();
        let host = self.model.sim.host(it.side);
        host.obey_holds();
        if host.c().cancel(now, it.id) && !it.put {
            host.freeze(it.place);
        }
    }

    fn operate(&mut self) {
        let side = self.model.dice.pick(&Side::BOTH);
        match self.model.dice.below(10) {
            0 => self.post(side, true),
            1 => self.post(side, false),
            2 => self.cancel(),
            3 => {
                let takes = self.model.dice.chance(80);
                self.model.sim.host(side).c().set_takes_trains(takes);
            }
            _ => self.model.operate(),
        }
    }

    fn finish(&mut self) {
        self.model.finish();
        let work = &self.work;
        let over = |sim: &Sim| {
            work.iter().all(|it| match it.side {
                Side::A => sim.a.outcomes(it.id) > 0,
                Side::B => sim.b.outcomes(it.id) > 0,
            })
        };
        self.model.sim.run_until(Duration::from_secs(120), over);
        self.model.sim.run_for(Duration::from_secs(1));
        self.model.check();
        for it in &self.work {
            let host = self.model.sim.host(it.side);
            assert_eq!(host.outcomes(it.id), 1, "{}", it.id);
            let done = match it.put {
                true => host.sent(it.id),
                false => host.received(it.id).is_some(),
            };
            let at = if it.put { it.side.other() } else { it.side };
            let host = self.model.sim.host(at);
            assert!(
                !done || host.holds(it.place, it.content, it.length),
                "{}: {} bytes, put {}",
                it.id,
                it.length,
                it.put
            );
        }
    }
}

#[test]
fn model__trains_of_every_kind_over_paths_of_every_kind() {
    let mut trains = [0; 3];
    each(60, |seed| {
        let mut both = Both::new(seed);
        for _ in 0..20 + both.model.dice.below(30) {
            both.operate();
        }
        both.finish();
        let sim = &mut both.model.sim;
        for host in [&mut sim.a, &mut sim.b] {
            let it = host.trains.as_ref().expect("trains");
            trains[0] += it.opened;
            trains[1] += it.spoiled;
            trains[2] += it.incomplete;
        }
    });
    std::eprintln!("{trains:?} opened, spoiled and incomplete");
}

/// 256 MiB over 1 Gb/s and 1 ms, where each datagram is delayed by 1 ms with that probability.
fn held_back(trains: bool, probability: f64) -> Outcome {
    let link = LinkConfig {
        delay: MS / 2,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 1_000,
        reorder: Reorder {
            probability,
            by: MS,
        },
        ..LinkConfig::default()
    };
    transfer_over(link, trains, 256 << 20, 1)
}

#[test]
fn goodput__with_trains_where_datagrams_are_held_back() {
    let (with, without) = (held_back(true, 0.05), held_back(false, 0.05));
    let (ratio, resent) = (without.seconds / with.seconds, with.resent);
    assert!(ratio >= 0.97 && resent <= 0.005, "{ratio}, {resent}");
}
