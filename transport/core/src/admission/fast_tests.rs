//! Tests that fast mode stays only if it halves the misses.
#![allow(non_snake_case)]
use super::*;

const MS: u64 = 1_000_000;

/// Runs `trial` for `seconds` in which `moved` of 1024 bytes miss in fair mode, `fast` in fast mode. Returns how many
/// of its milliseconds were fast.
fn run(trial: &mut FastTrial, from: u64, seconds: u64, moved: u64, fast: u64) -> u64 {
    let mut count = 0;
    for at in from * 1000..(from + seconds) * 1000 {
        let misses = if trial.is_fast() { fast } else { moved };
        trial.record(Instant::from_nanos(at * MS), 1024, misses);
        count += u64::from(trial.is_fast());
    }
    count
}

#[test]
fn fast_trial__few_misses_stay_fair() {
    assert_eq!(run(&mut FastTrial::new(), 1, 60, 100, 0), 0);
}

#[test]
fn fast_trial__stays_fast_if_misses_halve() {
    let fast = run(&mut FastTrial::new(), 1, 60, 512, 100);
    assert!(fast > 50_000, "{fast}");
}

#[test]
fn fast_trial__gives_up_if_they_do_not() {
    let fast = run(&mut FastTrial::new(), 1, 60, 512, 400);
    assert!((1..6_000).contains(&fast), "{fast}");
}
