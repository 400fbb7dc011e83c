//! Draws random numbers by a seed that is printed and may be given.

/// Seeds for `count` rounds: fresh ones, or consecutive ones from the given seed.
pub(crate) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let given = std::env::var("ZEROLANE_SEED").ok();
    let first = given.map_or_else(fresh, |it| it.parse().expect("a number"));
    eprintln!("ZEROLANE_SEED={first}, and the {} after it", count - 1);
    first..first + count
}

fn fresh() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    u64::from(since.expect("later").subsec_nanos())
}

/// xorshift64.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Consecutive seeds must differ in all bits, and none may be 0.
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    pub(crate) fn micros(&mut self, end: u64) -> std::time::Duration {
        std::time::Duration::from_micros(self.below(end))
    }
}
