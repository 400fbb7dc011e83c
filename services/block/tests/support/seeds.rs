//! Prints the seeds of the target's random tests, or takes them from `ZEROLANE_SEED`.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part.

/// Runs `test` for so many seeds, or for the one that is given.
pub fn each(count: u64, mut test: impl FnMut(fastrand::Rng)) {
    let given = std::env::var("ZEROLANE_SEED").ok();
    let given = given.map(|it| it.parse().expect("a number in ZEROLANE_SEED"));
    let seeds = given.map_or_else(
        || (0..count).map(|_| fastrand::u64(..)).collect(),
        |it| vec![it],
    );
    for seed in seeds {
        println!("ZEROLANE_SEED={seed}");
        test(fastrand::Rng::with_seed(seed));
    }
}
