//! How long an idle thread looks for more before it sleeps.

use std::time::Duration;

/// Shortest spin, as a part of the longest: a shorter one finds nothing.
const MIN_PART: u32 = 16;
/// What a thread is idle for that sleeps where a spin would have been enough, in longest spins: a wake-up takes about
/// as long as one.
const SOON: u32 = 2;

/// The next spin, after one of length `spin` that found nothing and a sleep: `idle` is the time of both. It grows, to
/// `longest`, where a longer one would have found what ended the sleep. If it only shrank, two ends that wait for each
/// other would each sleep for as long as the other takes to wake, and never find that they need not.
pub fn after_sleep(spin: Duration, idle: Duration, longest: Duration) -> Duration {
    match idle < longest * SOON {
        true => (spin * 2).min(longest),
        false => (spin / 2).max(longest / MIN_PART),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn spin__grows_where_sleeps_are_short_and_shrinks_where_they_are_long() {
        let longest = Duration::from_micros(50);
        let after = |idle: u64, from: Duration| {
            let idle = Duration::from_micros(idle);
            (0..20).fold(from, |spin, _| after_sleep(spin, idle, longest))
        };
        assert_eq!(after(60, Duration::from_micros(3)), longest);
        assert_eq!(after(1000, longest), longest / MIN_PART);
        // A program that asked for none gets none.
        let none = Duration::ZERO;
        assert_eq!(after_sleep(none, none, none), none);
    }
}
