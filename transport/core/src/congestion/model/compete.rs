//! A share of a queue that others fill: theirs is the rule, more until something is lost, then a part of
//! it (as Copa's competitive mode, Arun and Balakrishnan, NSDI 2018).
//!
//! It observes the queue of each round, unusual loss and marks. It decides how much may be under way. The model enters
//! it where it cruises and the queue is crowded (`delay.rs`), and leaves it at the first answer without a queue; every
//! 10 s it looks for the shortest round trip meanwhile, and comes back if the queue is still crowded.

use super::{UNIT, delay::NOISE};
use core::time::Duration;

/// Bytes more under way with each round, and what is left of them after a loss, as 256ths. CUBIC grows by
/// about half a packet where Reno would be faster (RFC 9438, 4.3), and by more elsewhere.
const GROWTH: u64 = 1200;
const BACKOFF: u64 = 179;
/// The part of its longest by which a queue that we compete for shrinks when another, who has a tenth of
/// it or more, answers a loss: a paced flow seldom loses what one in bursts does. And for how many rounds
/// nothing is made of it after an answer of ours; it is smoothed over as many.
const RELIEF_PART: u32 = 20;
const RELIEF_ROUNDS: u64 = 8;

/// What we have of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Competition {
    /// Bytes that may be under way.
    pub(super) share: u64,
    /// The longest queue since the last answer to one.
    crest: Duration,
    /// That queue, smoothed.
    standing: Duration,
}

impl Competition {
    /// Begins with part of what was under way: whoever fills the queue comes first.
    pub(super) fn enter(&mut self, under_way: u64) {
        self.share = under_way * BACKOFF / UNIT;
    }

    /// One round with that `queue`, so many after we answered one that was full: more, or a part of it if
    /// the queue is full again. It is if something is lost that is not always, or if it became shorter:
    /// another has answered that. Returns whether we gave way, not below `least`.
    pub(super) fn round(
        &mut self,
        queue: Duration,
        is_full: bool,
        rounds: u64,
        least: u64,
    ) -> bool {
        self.standing = match rounds <= 2 {
            true => queue,
            false => (self.standing * 7 + queue) / 8,
        };
        if rounds <= RELIEF_ROUNDS {
            self.crest = self.standing;
        }
        self.crest = self.crest.max(self.standing);
        let is_relieved = self.standing + (self.crest / RELIEF_PART).max(NOISE) < self.crest;
        let gives_way = is_relieved || is_full && rounds > 2;
        self.share = match gives_way {
            true => (self.share * BACKOFF / UNIT).max(least),
            false => self.share + GROWTH,
        };
        gives_way
    }
}
