//! Tests that random operations at both ends over random links match an oracle.
//!
//! Every post ends exactly once. Payload equals its source, in the order of the posts. Nothing outside the targets is
//! written.

use super::seeds::{Dice, each};
use super::sim::{Host, Sim};
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::collections::HashMap;
use std::time::Duration;
use zerolane_wire::{Profile, Profiles};

const MS: Duration = Duration::from_millis(1);

/// Everything posted at one end, in order.
#[derive(Default)]
struct Ledger {
    sends: Vec<Source>,
    offers: Vec<Source>,
    receives: Vec<Target>,
    reads: Vec<Target>,
}

struct Source {
    id: TransferId,
    seed: u64,
    length: u64,
}

#[derive(Debug)]
struct Target {
    id: TransferId,
    span: Span,
    /// Its memory at the time of the cancel, which must stay unchanged.
    cancelled: bool,
}

pub(super) struct Model {
    pub(super) sim: Sim,
    pub(super) dice: Dice,
    ledgers: [Ledger; 2],
    next_content: u64,
    pub(super) cancels: bool,
    /// Longest payload, less 8 bytes.
    longest: u64,
}

fn index(side: Side) -> usize {
    match side {
        Side::A => 0,
        Side::B => 1,
    }
}

fn random_link(dice: &mut Dice) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(dice.pick(&[10, 100, 2_000, 20_000])),
        rate_bits_per_s: dice.pick(&[None, Some(1_000_000_000), Some(50_000_000)]),
        queue_packets: dice.pick(&[30, 100_000]),
        loss: Loss::Random(dice.pick(&[0.0, 0.01, 0.05, 0.2])),
        duplicate: dice.pick(&[0.0, 0.1]),
        reorder: Reorder {
            probability: dice.pick(&[0.0, 0.1]),
            by: dice.pick(&[MS, 30 * MS]),
        },
        ..LinkConfig::default()
    }
}

fn random_config(dice: &mut Dice, profiles: Profiles) -> Config {
    Config {
        profiles,
        slots: dice.pick(&[1, 2, 64]),
        window: dice.pick(&[700, 100_000, 2 << 20]),
        block: dice.pick(&[3_000, 1 << 20]),
        buffer_log2: dice.pick(&[12, 30]),
        // Small, because a lost STU costs the whole Block: at 20 % loss, a Block of 16 STUs would never finish.
        classic_block_log2: dice.pick(&[11, 12]),
        eager_limit: dice.pick(&[0, 3_000, 16 << 10, 64 << 10]),
        eager_credit: dice.pick(&[0, 5_000, 64 << 10]),
        ..Config::default()
    }
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut dice = Dice::new(seed);
        let profiles = match dice.below(4) {
            0 => Profiles::only(Profile::Classic),
            _ => Profiles::BOTH,
        };
        let link = random_link(&mut dice);
        let (a, b) = (
            random_config(&mut dice, profiles),
            random_config(&mut dice, profiles),
        );
        let cancels = dice.chance(60);
        Model {
            cancels,
            ..Model::of(Sim::new(link, seed, a, b), dice, 60_000)
        }
    }

    pub(super) fn of(sim: Sim, dice: Dice, longest: u64) -> Model {
        Model {
            sim,
            dice,
            ledgers: [Ledger::default(), Ledger::default()],
            next_content: 1,
            cancels: true,
            longest,
        }
    }

    /// A number that no content has yet.
    pub(super) fn new_content(&mut self) -> u64 {
        self.next_content += 1;
        self.next_content - 1
    }

    pub(super) fn length(&mut self) -> u64 {
        match self.dice.below(8) {
            0 => 0,
            1 => 1,
            2..=5 => 8 + self.dice.below(5_000),
            _ => 8 + self.dice.below(self.longest),
        }
    }

    fn post_source(&mut self, side: Side, offer: bool) {
        let (now, length, seed) = (self.sim.now(), self.length(), self.new_content());
        let delivery = self
            .dice
            .pick(&[Delivery::Silent, Delivery::Polled, Delivery::Interrupt]);
        let host = self.sim.host(side);
        let span = host.filled(seed, length);
        let id = if offer {
            host.c().post_offer(now, span, delivery)
        } else {
            host.c().post_send(now, span, delivery)
        };
        let Ok(id) = id else { return };
        let ledger = &mut self.ledgers[index(side)];
        let list = if offer {
            &mut ledger.offers
        } else {
            &mut ledger.sends
        };
        list.push(Source { id, seed, length });
    }

    fn post_target(&mut self, side: Side, read: bool, large: bool) {
        let now = self.sim.now();
        let room = if large || self.dice.chance(80) {
            self.longest + 10_000
        } else {
            self.length()
        };
        let offset = self.dice.below(5_000);
        let host = self.sim.host(side);
        let span = host.empty_at(offset, room);
        let id = if read {
            host.c().post_read(now, span)
        } else {
            host.c().post_receive(now, span)
        };
        let Ok(id) = id else { return };
        let ledger = &mut self.ledgers[index(side)];
        let list = if read {
            &mut ledger.reads
        } else {
            &mut ledger.receives
        };
        list.push(Target {
            id,
            span,
            cancelled: false,
        });
    }

    /// Cancels a request at `side`, which may already be over.
    fn cancel(&mut self, side: Side) {
        let now = self.sim.now();
        let ledger = &mut self.ledgers[index(side)];
        let sources = ledger.sends.iter().chain(&ledger.offers).map(|it| it.id);
        let targets = ledger.receives.iter().chain(&ledger.reads).map(|it| it.id);
        let ids: Vec<TransferId> = sources.chain(targets).collect();
        if ids.is_empty() {
            return;
        }
        let recent = ids.len() as u64;
        let id = ids[self.dice.below(recent) as usize];
        let host = self.sim.host(side);
        // As a lane does before any other call.
        host.obey_holds();
        if !host.c().cancel(now, id) {
            return;
        }
        let targets = ledger.receives.iter_mut().chain(&mut ledger.reads);
        if let Some(target) = targets.into_iter().find(|target| target.id == id) {
            target.cancelled = true;
            host.freeze(target.span);
        }
    }

    pub(super) fn operate(&mut self) {
        let side = self.dice.pick(&Side::BOTH);
        match self.dice.below(12) {
            0..=3 => self.post_source(side, false),
            4..=6 => self.post_target(side, false, false),
            7 => self.post_source(side, true),
            8 => self.post_target(side, true, false),
            9 | 10 if self.cancels => self.cancel(side),
            _ => {
                let micros = self.dice.pick(&[50, 500, 5_000, 50_000]);
                self.sim.run_for(Duration::from_micros(micros));
            }
        }
    }

    fn unfinished(&mut self, side: Side) -> [usize; 4] {
        let host = self.sim.host(side);
        let over = |id: TransferId| host.outcomes(id) > 0;
        let ledger = &self.ledgers[index(side)];
        let sources = |list: &[Source]| list.iter().filter(|it| !over(it.id)).count();
        let targets = |list: &[Target]| list.iter().filter(|it| !over(it.id)).count();
        [
            sources(&ledger.sends),
            targets(&ledger.receives),
            sources(&ledger.offers),
            targets(&ledger.reads),
        ]
    }

    /// Posts the counterparts of unfinished requests, until all are over.
    pub(super) fn finish(&mut self) {
        for _ in 0..1000 {
            let [a, b] = [self.unfinished(Side::A), self.unfinished(Side::B)];
            if a == [0; 4] && b == [0; 4] {
                return;
            }
            self.sim.run_for(400 * MS);
            let counts = [self.unfinished(Side::A), self.unfinished(Side::B)];
            for side in Side::BOTH {
                let (here, there) = (counts[index(side)], counts[index(side.other())]);
                for _ in there[1]..here[0] {
                    self.post_target(side.other(), false, true);
                }
                for _ in here[0]..there[1] {
                    self.post_source(side, false);
                }
                for _ in there[3]..here[2] {
                    self.post_target(side.other(), true, true);
                }
                for _ in here[2]..there[3] {
                    self.post_source(side, true);
                }
            }
        }
        panic!(
            "never over: {:?} {:?}\n{:?}\n{:?}",
            self.unfinished(Side::A),
            self.unfinished(Side::B),
            self.sim.a.connection,
            self.sim.b.connection
        );
    }

    pub(super) fn check(&mut self) {
        for side in Side::BOTH {
            let ledger = &self.ledgers[index(side)];
            let host = match side {
                Side::A => &self.sim.a,
                Side::B => &self.sim.b,
            };
            let there = match side {
                Side::A => &self.sim.b,
                Side::B => &self.sim.a,
            };
            check_once(host, ledger);
            let sources = &self.ledgers[index(side.other())];
            check_payload(there, &sources.sends, host, &ledger.receives);
            check_payload(there, &sources.offers, host, &ledger.reads);
            host.assert_guards();
            host.assert_frozen();
            assert!(host.holds.is_empty(), "held for nothing");
            if let Some(connection) = &host.connection {
                connection.assert_bounded();
            }
        }
    }
}

fn check_once(host: &Host, ledger: &Ledger) {
    let sources = ledger.sends.iter().chain(&ledger.offers).map(|it| it.id);
    let targets = ledger.receives.iter().chain(&ledger.reads).map(|it| it.id);
    for id in sources.chain(targets) {
        assert_eq!(host.outcomes(id), 1, "transfer {id} ended other than once");
    }
}

/// Every complete receive holds the payload of one source, in the order of the posts, and no source is received twice.
/// Every source reported as sent was received.
fn check_payload(from: &Host, sources: &[Source], to: &Host, targets: &[Target]) {
    let mut next = 0;
    let mut received: HashMap<TransferId, TransferId> = HashMap::new();
    for target in targets {
        let Some(length) = to.received(target.id) else {
            continue;
        };
        let fits =
            |source: &Source| source.length == length && to.holds(target.span, source.seed, length);
        let found = sources[next..].iter().position(fits);
        let found = next
            + found.unwrap_or_else(|| {
                let lengths: Vec<u64> = sources.iter().map(|source| source.length).collect();
                panic!("{target:?}: {length} bytes of no source from {next} on in {lengths:?}")
            });
        received.insert(sources[found].id, target.id);
        next = found + 1;
        let fate = from.failed(sources[found].id);
        let told = from.sent(sources[found].id) || fate.is_some();
        assert!(told, "the sender of a received transfer knows nothing");
    }
    let sent = sources.iter().filter(|source| from.sent(source.id)).count();
    let complete = received.len();
    assert!(sent <= complete, "{sent} sent, {complete} received");
    // Short payloads may be equal; all others must differ.
    for source in sources.iter().filter(|it| it.length >= 8) {
        let arrived = received.contains_key(&source.id);
        match from.failed(source.id) {
            None => assert!(arrived, "{} sent, never received", source.id),
            // Its cancel crossed the confirmation.
            Some(TransferError::Cancelled | TransferError::Closed(_)) => {}
            Some(error) => assert!(!arrived, "{} received, yet {error}", source.id),
        }
    }
}

#[test]
fn model__every_transfer_ends_once_with_its_payload() {
    each(300, |seed| {
        let mut model = Model::new(seed);
        model.sim.connect();
        let operations = 20 + model.dice.below(40);
        for _ in 0..operations {
            model.operate();
        }
        model.finish();
        model.check();
    });
}

#[test]
fn model__close_at_any_moment_ends_everything_once() {
    each(150, |seed| {
        let mut model = Model::new(seed + 1_000_000);
        model.sim.connect();
        let operations = model.dice.below(40);
        for _ in 0..operations {
            model.operate();
        }
        let now = model.sim.now();
        let side = model.dice.pick(&Side::BOTH);
        model.sim.host(side).c().close(now);
        if model.dice.chance(30) {
            model.sim.host(side.other()).c().close(now);
        }
        model.sim.run_until(Duration::from_secs(60), |sim| {
            sim.a.closed().is_some() && sim.b.closed().is_some()
        });
        model.check();
        model.sim.run_for(Duration::from_secs(60));
        model.check();
        assert_eq!(
            model.sim.a.c().next_timeout(),
            None,
            "closed and still awake"
        );
    });
}
