//! Classifies the loss of every round: usual, congestion, or the path's own.
//!
//! It observes arrivals, losses, standing queues and marks. Congestion is loss with a queue in two rounds, in one while
//! the start doubles; or a mark. Three rounds of heavy loss without a queue start a trial, and so does doubt about loss
//! that was taken for the path's own. A trial ends when it has seen enough, at congestion, or when the model competes.
//!
//! Heavy loss without a queue is either the path's own, or the work of a policer or of a queue too short to measure. In
//! a trial the sender sends half of the delivered rate for some rounds. If the loss stops, the rate was too high. If it
//! stays, it is the path's own, and is compensated until a queue shows or ten seconds have passed: then there is
//! another trial.

use super::Round;
use crate::time::Instant;
use core::time::Duration;

/// Loss in a round, with a queue, that means congestion: parts per thousand, on top of one and a half times the loss
/// without a queue, which varies from round to round. And the number of rounds in a row: one may be a slow moment of an
/// end.
const LOSS_PERMILLE: u64 = 10;
const FULL_QUEUE_ROUNDS: u32 = 2;
/// Loss without a queue that counts as heavy, on top of the path's own, and the number of rounds in a row. With an
/// eighth, a sender that halves its rate loses what a policer drops; the rounds rule out a burst of loss.
const HEAVY_LOSS_PERMILLE: u64 = 125;
const HEAVY_ROUNDS: u32 = 3;

/// First rounds of a trial, in which earlier payload is still arriving.
const TRIAL_LAG: u32 = 2;
/// Fewest rounds that count, and the loss expected in them at the earlier rate: 56 packets, so that chance hardly
/// reduces it to a third.
const TRIAL_ROUNDS: u32 = 4;
const TRIAL_LOSS: u64 = 80_000;
/// Most own loss that is compensated. Each of many flows through a policer makes no difference alone, and may take the
/// loss that all cause for the path's own; this bounds the damage.
const MOST_OWN_PERMILLE: u64 = 300;
/// Time after which the path's own loss is tried again: the lifetime of the shortest round trip, so that a path that
/// heals is not overrun for longer.
const OWN_MEMORY: Duration = Duration::from_secs(10);

/// Verdict on a round of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing new.
    Usual,
    /// A queue is full.
    Full,
    /// Much is lost, and a trial has begun: send less than was delivered.
    Trial,
    /// The trial is over: the loss is the path's own.
    Own,
}

/// A trial: sends less, to see whether the loss decreases.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Loss before the trial, parts per thousand.
    before: u64,
    rounds: u32,
    /// Rounds with a queue.
    queued: u32,
    received: u64,
    lost: u64,
}

impl Trial {
    fn new(before: u64) -> Trial {
        Trial {
            before,
            rounds: 0,
            queued: 0,
            received: 0,
            lost: 0,
        }
    }

    fn note_round(&mut self, round: &Round, queued: bool) {
        self.rounds += 1;
        if self.rounds > TRIAL_LAG {
            self.queued += u32::from(queued);
            self.received += round.received;
            self.lost += round.lost;
        }
    }

    fn is_over(&self) -> bool {
        let expected = (self.received + self.lost) / 1000 * self.before;
        self.rounds >= TRIAL_LAG + TRIAL_ROUNDS && expected >= TRIAL_LOSS
    }

    /// The path's own loss, parts per thousand, if about as much was lost as before.
    fn own(&self) -> Option<u64> {
        let after = permille(self.received, self.lost);
        let as_before = after * 4 >= self.before * 3;
        let queued = self.queued * 4 > self.rounds;
        (as_before && !queued).then_some(after.min(MOST_OWN_PERMILLE))
    }
}

/// State of loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// Loss in rounds without a queue, in 16ths of a part per thousand.
    usual: u64,
    /// Consecutive rounds with a queue, of loss with a queue, and of heavy loss.
    queued_rounds: u32,
    full_rounds: u32,
    heavy_rounds: u32,
    /// Arrivals and losses in the rounds of heavy loss.
    heavy: (u64, u64),
    trial: Option<Trial>,
    /// The path's own loss, parts per thousand, and until when the verdict holds.
    judged: (u64, Instant),
}

impl Losses {
    /// Whether this round lost more than rounds without a queue do.
    pub(super) fn is_unusual(&self, round: &Round) -> bool {
        let usual = self.usual();
        round.permille() > usual + usual / 2
    }

    fn usual(&self) -> u64 {
        self.usual / 16
    }

    /// Whether a trial runs: send less than was delivered.
    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// The path's own loss, parts per thousand.
    pub(super) fn own(&self) -> u64 {
        match self.trial {
            None => self.judged.0,
            Some(_) => 0,
        }
    }

    /// Ends a trial: the model enters a mode that allows none.
    pub(super) fn abandon(&mut self) {
        (self.trial, self.judged) = (None, (0, Instant::ZERO));
    }

    /// Takes a round. `queued`: the round trip was long.
    pub(super) fn note_round(
        &mut self,
        now: Instant,
        round: &Round,
        queued: bool,
        stage: Stage,
    ) -> Finding {
        let permille = round.permille();
        if !queued {
            // In 16ths, over some sixteen rounds.
            self.usual = self.usual - self.usual / 16 + permille;
        }
        let usual = self.usual();
        let full = queued && permille > LOSS_PERMILLE + usual + usual / 2;
        self.full_rounds = count(self.full_rounds, full);
        self.queued_rounds = count(self.queued_rounds, queued);
        // Doubling fills a queue fast.
        let enough = match stage {
            Stage::Doubling => 1,
            Stage::Steady | Stage::Other => FULL_QUEUE_ROUNDS,
        };
        if self.full_rounds >= enough || round.marked > 0 {
            self.abandon();
            return Finding::Full;
        }
        match self.trial {
            Some(trial) => self.note_trial(now, trial, round, queued),
            None => self.look_for_trial(now, round, stage),
        }
    }

    fn note_trial(
        &mut self,
        now: Instant,
        mut trial: Trial,
        round: &Round,
        queued: bool,
    ) -> Finding {
        trial.note_round(round, queued);
        self.trial = Some(trial).filter(|it| !it.is_over());
        if self.trial.is_some() {
            return Finding::Usual;
        }
        self.heavy_rounds = 0;
        self.judged = (trial.own().unwrap_or(0), now + OWN_MEMORY);
        match self.judged.0 {
            0 => Finding::Usual,
            _ => Finding::Own,
        }
    }

    fn look_for_trial(&mut self, now: Instant, round: &Round, stage: Stage) -> Finding {
        let own = self.judged.0;
        let heavy = round.permille() > HEAVY_LOSS_PERMILLE + own;
        self.heavy_rounds = count(self.heavy_rounds, heavy);
        if self.heavy_rounds <= 1 {
            self.heavy = (0, 0);
        }
        self.heavy = (self.heavy.0 + round.received, self.heavy.1 + round.lost);
        if self.heavy_rounds >= HEAVY_ROUNDS {
            self.trial = Some(Trial::new(permille(self.heavy.0, self.heavy.1)));
            return Finding::Trial;
        }
        // The path's own loss may have ended.
        let is_doubted = now >= self.judged.1 || self.queued_rounds >= FULL_QUEUE_ROUNDS;
        if own > 0 && is_doubted && stage == Stage::Steady {
            self.trial = Some(Trial::new(own));
            return Finding::Trial;
        }
        Finding::Usual
    }
}

/// How the sending rate relates to the path's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Twice as much each round.
    Doubling,
    /// Equal.
    Steady,
    /// More for a round, or less.
    Other,
}

fn count(rounds: u32, it: bool) -> u32 {
    if it { rounds + 1 } else { 0 }
}

/// Loss in parts per thousand; any loss is at least one.
pub(super) fn permille(received: u64, lost: u64) -> u64 {
    let all = (received + lost).max(1);
    lost.saturating_mul(1000).div_ceil(all)
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
