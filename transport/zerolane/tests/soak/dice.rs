//! Draws random numbers (splitmix64), and random sizes.

use zerolane::request::MAX_INLINE;

/// Longest payload of one operation, bytes.
pub const MAX_LEN: u64 = 8 << 20;

/// Lengths at which the protocol changes: inline copies, one datagram encrypted and plain, an STU on Ethernet, pages.
const EDGES: [u64; 7] = [MAX_INLINE as u64, 1168, 1192, 1408, 1432, 4096, 65_536];

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(mix(seed ^ 0x5eed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// 0 to `limit - 1`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A length from 1 to `max` bytes, with all orders of magnitude equally likely.
    pub fn len(&mut self, max: u64) -> u64 {
        if self.chance(10) {
            let edge = EDGES[self.below(EDGES.len() as u64) as usize];
            return (edge + self.below(3) - 1).min(max);
        }
        let below = 2 << self.below(u64::from(max.ilog2()) + 1);
        1 + self.below(below).min(max - 1)
    }
}

pub fn mix(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
