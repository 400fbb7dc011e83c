//! Draws all random values of a link.

use super::Loss;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::time::Duration;

/// The seeded source of a link's luck, and the state of its loss process.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    rng: Pcg64,
    in_bad_state: bool,
}

/// The luck of one packet. All values are always drawn, whatever the
/// configuration, so that switching jitter on does not change which packets
/// are lost under the same seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Luck {
    loss: f64,
    transition: f64,
    reorder: f64,
    jitter: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Pcg64::seed_from_u64(seed),
            in_bad_state: false,
        }
    }

    /// Whether this packet enters the link twice.
    pub(super) fn duplicates(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    pub(super) fn luck(&mut self) -> Luck {
        Luck {
            loss: self.fraction(),
            transition: self.fraction(),
            reorder: self.fraction(),
            jitter: self.rng.next_u64(),
        }
    }

    /// Whether a packet with this luck is lost; moves the burst state on.
    pub(super) fn loses(&mut self, loss: Loss, luck: Luck) -> bool {
        match loss {
            Loss::None => false,
            Loss::Random(probability) => luck.loss < probability,
            Loss::GilbertElliott {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
            } => {
                let (p_lost, p_move) = if self.in_bad_state {
                    (loss_bad, p_bad_to_good)
                } else {
                    (loss_good, p_good_to_bad)
                };
                self.in_bad_state ^= luck.transition < p_move;
                luck.loss < p_lost
            }
        }
    }

    /// Uniform in `[0, 1)`: the 53 upper bits, all that an `f64` can hold.
    fn fraction(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        (self.rng.next_u64() >> 11) as f64 * UNIT
    }
}

impl Luck {
    /// Uniform in `[0, limit]`, to the nanosecond.
    pub(super) fn jitter(self, limit: Duration) -> Duration {
        let choices = limit.as_nanos().saturating_add(1).min(1 << 64);
        // A 64-bit fraction of at most 2^64 choices: the result fits 64 bits.
        let nanos = (u128::from(self.jitter) * choices) >> 64;
        Duration::from_nanos(nanos as u64)
    }

    pub(super) fn reorders(self, probability: f64) -> bool {
        self.reorder < probability
    }
}
