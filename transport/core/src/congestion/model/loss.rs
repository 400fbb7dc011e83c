//! What is lost, and what it tells.
//!
//! It observes what arrived and what was lost in each round trip, whether a queue stood, and marks. It decides whether
//! that is usual, congestion (loss with a queue in two rounds, in one while the start doubles; or a mark), or to be
//! tried. A trial is entered after three rounds of heavy loss without a queue, and again when loss that was taken
//! for the path's own is doubted. It is left when it has seen enough, for congestion, or when the model competes.
//!
//! Heavy loss without a queue is either what a path loses by itself, or the work of a policer or of a queue
//! too short to be felt. A trial finds out: for some rounds half of what was delivered is sent. What was too
//! much is not lost any more then; what is lost all the same is the path's own, and is made good for, until
//! a queue shows or ten seconds have passed: then there is another trial.

use super::Round;
use crate::Instant;
use core::time::Duration;

/// Loss in a round, with a queue, that means congestion: parts per thousand, on top of one and a half
/// times what is lost without a queue, for that varies from round to round. And for how many rounds in a row: one may be a slow moment of an end.
const LOSS_PERMILLE: u64 = 10;
const FULL_QUEUE_ROUNDS: u32 = 2;
/// Loss that is heavy without a queue, on top of the path's own, and for how many rounds in a row: an eighth, of which a
/// sender that halves loses what a policer drops, and so long that it is no burst of loss.
const HEAVY_LOSS_PERMILLE: u64 = 125;
const HEAVY_ROUNDS: u32 = 3;

/// Rounds of a trial in which what left before it is still on its way.
const TRIAL_LAG: u32 = 2;
/// Rounds that count, at least, and how much would be lost in them if as much were lost as before: 56
/// packets, so that chance hardly makes a third of it.
const TRIAL_ROUNDS: u32 = 4;
const TRIAL_LOSS: u64 = 80_000;
/// Most of a path's own loss that is made good for. Among many flows through a policer each alone makes no
/// difference, and may take for the path's what all of them together cause: this bounds how much that is.
const MOST_OWN_PERMILLE: u64 = 300;
/// Time after which it is tried again whether it does: as often as the round trip is, so that a path that heals is
/// overrun no longer.
const OWN_MEMORY: Duration = Duration::from_secs(10);

/// What a round of loss tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing new.
    Usual,
    /// A queue is full.
    Full,
    /// Much is lost, and a trial has begun: less than what was delivered is to be sent.
    Trial,
    /// The trial is over: what is lost is the path's own.
    Own,
}

/// Less is sent, to see whether less is lost.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Parts per thousand lost before.
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

/// What is known of loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// Loss in rounds without a queue, in 16ths of a part per thousand.
    usual: u64,
    /// Rounds with a queue, of loss with a queue, and of heavy loss, in a row.
    queued_rounds: u32,
    full_rounds: u32,
    heavy_rounds: u32,
    /// What arrived and was lost in those of heavy loss.
    heavy: (u64, u64),
    trial: Option<Trial>,
    /// What the path loses by itself, parts per thousand, and until when that is believed.
    judged: (u64, Instant),
}

impl Losses {
    /// Whether more is lost in this round than is without a queue.
    pub(super) fn is_unusual(&self, round: &Round) -> bool {
        let usual = self.usual();
        round.permille() > usual + usual / 2
    }

    fn usual(&self) -> u64 {
        self.usual / 16
    }

    /// Whether less than what was delivered is to be sent.
    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Parts per thousand that the path loses whatever is sent.
    pub(super) fn own(&self) -> u64 {
        match self.trial {
            None => self.judged.0,
            Some(_) => 0,
        }
    }

    /// The model turns to something else, in which nothing is tried.
    pub(super) fn abandon(&mut self) {
        (self.trial, self.judged) = (None, (0, Instant::ZERO));
    }

    /// Takes in a round. `queued`: the round trip was long.
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
        // What was the path's own may be no more.
        let is_doubted = now >= self.judged.1 || self.queued_rounds >= FULL_QUEUE_ROUNDS;
        if own > 0 && is_doubted && stage == Stage::Steady {
            self.trial = Some(Trial::new(own));
            return Finding::Trial;
        }
        Finding::Usual
    }
}

/// How what is sent relates to what is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Twice as much each round.
    Doubling,
    /// As much.
    Steady,
    /// More for a round, or less.
    Other,
}

fn count(rounds: u32, it: bool) -> u32 {
    if it { rounds + 1 } else { 0 }
}

/// Parts per thousand that were lost; any loss is at least one.
pub(super) fn permille(received: u64, lost: u64) -> u64 {
    let all = (received + lost).max(1);
    lost.saturating_mul(1000).div_ceil(all)
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
