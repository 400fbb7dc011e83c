//! Supplies seeds to random tests: prints a failing one, and reruns the one set in the environment.

/// Runs `test` with `count` seeds (or the number in `ZEROLANE_SEEDS`), or with the one in `ZEROLANE_SEED`.
pub(super) fn each(count: u64, mut test: impl FnMut(u64)) {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let seeds = match number("ZEROLANE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ZEROLANE_SEEDS").unwrap_or(count),
    };
    for seed in seeds {
        let _report = Report(seed);
        test(seed);
    }
}

struct Report(u64);

impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with ZEROLANE_SEED={}", self.0);
        }
    }
}

/// Random numbers (splitmix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// 0 to `limit - 1`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
