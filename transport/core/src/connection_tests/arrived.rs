//! Tests that the arrived prefix of a Transfer in progress only grows and never changes.

use super::memory::{export, get};
use super::sim::{Host, Sim, content};
use crate::*;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::time::Duration;
use zerolane_wire::{Profile, Profiles, Rights};

const MS: Duration = Duration::from_millis(1);
const LENGTH: u64 = 2_500_000;

fn bad(loss: f64) -> LinkConfig {
    LinkConfig {
        delay: MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_packets: 100_000,
        loss: Loss::Random(loss),
        duplicate: 0.05,
        reorder: Reorder {
            probability: 0.05,
            by: 3 * MS,
        },
        ..LinkConfig::default()
    }
}

/// The prefixes that a host saw.
struct Watched {
    id: TransferId,
    target: Span,
    seed: u64,
    last: u64,
    seen: usize,
}

impl Watched {
    fn new(id: TransferId, target: Span, seed: u64) -> Watched {
        Watched {
            id,
            target,
            seed,
            last: 0,
            seen: 0,
        }
    }

    /// Checks the arrived prefix.
    fn look(&mut self, host: &Host) {
        let connection = host.connection.as_ref().expect("connection");
        let Some(arrived) = connection.arrived(self.id) else {
            return;
        };
        assert!(arrived >= self.last, "{arrived} after {}", self.last);
        if arrived == self.last {
            return;
        }
        self.seen += 1;
        // All of it from time to time: its content must not change either.
        let from = if self.seen.is_multiple_of(4) {
            0
        } else {
            self.last
        };
        let part = self.target.part(from, arrived - from);
        let fine = (from..).zip(host.bytes(part));
        for (offset, &byte) in fine {
            assert_eq!(byte, content(self.seed, offset), "{offset} of {arrived}");
        }
        self.last = arrived;
    }
}

fn send(sim: &mut Sim, seed: u64) -> (TransferId, Watched) {
    let now = sim.now();
    let source = sim.a.filled(seed, LENGTH);
    let target = sim.b.empty(LENGTH + 9);
    let to = sim.b.c().post_receive(now, target).unwrap();
    let sent = sim.a.c().post_send(now, source, Delivery::Interrupt);
    (sent.unwrap(), Watched::new(to, target, seed))
}

#[test]
fn arrived__of_a_receive_grows_and_holds_under_loss_and_reordering() {
    for (seed, loss, profile) in [
        (1, 0.0, Profile::Extended),
        (2, 0.02, Profile::Extended),
        (3, 0.2, Profile::Extended),
        (4, 0.02, Profile::Classic),
    ] {
        let config = Config {
            profiles: Profiles::only(profile),
            classic_block_log2: 13,
            ..Config::default()
        };
        let mut sim = Sim::new(bad(loss), seed, config.clone(), config);
        sim.connect();
        let (_, mut watched) = send(&mut sim, seed);
        assert_eq!(sim.b.c().arrived(watched.id), None, "not announced");
        sim.run_until(Duration::from_secs(600), |sim| {
            watched.look(&sim.b);
            sim.b.received(watched.id).is_some()
        });
        assert!(sim.b.holds(watched.target, seed, LENGTH));
        assert!(watched.seen > 8, "seed {seed}: {} prefixes", watched.seen);
        assert!(watched.last > LENGTH / 2);
        let id = watched.id;
        assert_eq!(sim.b.c().arrived(id), None, "it is over");
        assert_eq!(sim.b.c().take_arrived(id), 0, "it did not fail");
    }
}

#[test]
fn arrived__of_a_get() {
    let mut sim = Sim::new(bad(0.02), 5, Config::default(), Config::default());
    sim.connect();
    let source = sim.b.filled(5, LENGTH);
    let place = export(&mut sim, source, Rights::READ);
    let (id, target) = get(&mut sim, place, LENGTH);
    let mut watched = Watched::new(id, target, 5);
    sim.run_until(Duration::from_secs(600), |sim| {
        watched.look(&sim.a);
        sim.a.received(id).is_some()
    });
    assert!(sim.a.holds(target, 5, LENGTH));
    assert!(watched.seen > 8, "{} prefixes", watched.seen);
}

/// However it ends, the prefix is reported, and no byte of the target is written any more.
#[test]
fn arrived__of_what_failed_is_told_once() {
    for end in 0..3 {
        let mut sim = Sim::new(bad(0.05), 7, Config::default(), Config::default());
        sim.connect();
        let (from, mut watched) = send(&mut sim, 7);
        sim.run_until(Duration::from_secs(600), |sim| {
            watched.look(&sim.b);
            watched.last > LENGTH / 4
        });
        let now = sim.now();
        let done = match end {
            0 => sim.b.c().cancel(now, watched.id),
            1 => sim.a.c().cancel(now, from),
            _ => {
                sim.a.c().close(now);
                true
            }
        };
        assert!(done);
        sim.run_until(Duration::from_secs(60), |sim| {
            watched.look(&sim.b);
            sim.b.failed(watched.id).is_some()
        });
        let arrived = sim.b.c().take_arrived(watched.id);
        assert!(
            arrived >= watched.last && arrived < LENGTH,
            "{end}: {arrived}"
        );
        assert!(sim.b.holds(watched.target, 7, arrived));
        sim.b.freeze(watched.target);
        sim.run_for(Duration::from_secs(5));
        sim.b.assert_frozen();
        assert_eq!(sim.b.c().take_arrived(watched.id), 0, "once");
    }
}
