//! Competes for a share of the queue while other flows keep it full.
//!
//! It increases bytes in flight until something is lost, and then keeps a part of them, as Copa's competitive mode does
//! (Arun and Balakrishnan, NSDI 2018). It observes the queue of each round, unusual loss and marks. The model enters
//! this mode from Cruise when the queue is crowded (`delay.rs`), and leaves it at the first answer without a queue.
//! Every 10 s it probes for the shortest round trip, and returns if the queue is still crowded.

use super::{UNIT, delay::NOISE};
use core::time::Duration;

/// Bytes added per round, and the part kept after a loss, as 256ths. CUBIC grows by about half a packet where Reno
/// would be faster (RFC 9438, 4.3), and by more elsewhere.
const GROWTH: u64 = 1200;
const BACKOFF: u64 = 179;
/// The part of its maximum by which a contested queue shrinks when another flow, with a tenth of it or more, reacts to
/// a loss: paced flows see fewer losses than bursty ones. Also the rounds after our own reaction in which a shrinking
/// queue is ignored, and over which the queue is smoothed.
const RELIEF_PART: u32 = 20;
const RELIEF_ROUNDS: u64 = 8;

/// State of the competition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Competition {
    /// Most bytes in flight.
    pub(super) share: u64,
    /// The longest queue since the last reaction.
    crest: Duration,
    /// The same queue, smoothed.
    standing: Duration,
}

impl Competition {
    /// Begins with part of the bytes in flight: the flows that fill the queue come first.
    pub(super) fn enter(&mut self, under_way: u64) {
        self.share = under_way * BACKOFF / UNIT;
    }

    /// Takes one round with this `queue`, and the rounds since our last reaction to a full one. Increases the share, or
    /// reduces it if the queue is full again: more than the usual loss, or a shorter queue, which shows that another
    /// flow reacted. Returns whether we backed off, not below `least`.
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
