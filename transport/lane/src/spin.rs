//! How long an idle thread looks for more before it sleeps.

use std::time::Duration;

/// Shortest spin, as a part of the longest: a shorter one finds nothing.
const MIN_PART: u32 = 16;
/// What a thread is idle for that sleeps where a spin would have been enough, in longest spins: a wake-up takes about
/// as long as one.
const SOON: u32 = 2;

/// The next spin, after one of length `spin` that found nothing and a sleep: `idle` is the time of both, and `arrived`
/// says that what came ended it, and no timer. It grows, to `longest`, where a longer one would have found what came. If
/// it only shrank, two ends that wait for each other would each sleep for as long as the other takes to wake, and never
/// find that they need not. A timer is no reason to spin: its time is known.
pub fn after_sleep(spin: Duration, idle: Duration, longest: Duration, arrived: bool) -> Duration {
    match arrived && idle < longest.saturating_mul(SOON) {
        true => spin.saturating_mul(2).min(longest),
        false => (spin / 2).max(longest / MIN_PART),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const LONGEST: Duration = Duration::from_micros(50);
    const LEAST: Duration = Duration::from_nanos(3125);

    /// The spins of a thread that is idle so long, again and again.
    fn spins(from: Duration, idle: Duration, arrived: bool) -> impl Iterator<Item = Duration> {
        let next = move |spin: &Duration| Some(after_sleep(*spin, idle, LONGEST, arrived));
        std::iter::successors(Some(from), next)
    }

    #[test]
    fn spin__grows_where_sleeps_are_short_and_shrinks_where_they_are_long() {
        let after = |idle: u64, from: Duration| {
            let mut spins = spins(from, Duration::from_micros(idle), true);
            spins.nth(20).unwrap()
        };
        assert_eq!(after(60, LEAST), LONGEST);
        assert_eq!(after(1000, LONGEST), LEAST);
        // A program that asked for none gets none.
        let none = Duration::ZERO;
        assert_eq!(after_sleep(none, none, none, true), none);
        let all = Duration::MAX;
        assert_eq!(after_sleep(all, LONGEST, all, true), all);
    }

    /// Of a thread that has nothing to do but its timers, and of one for which something comes now and then.
    #[test]
    fn spin__of_an_idle_thread_is_the_shortest_after_four_sleeps() {
        for idle in [1, 10, 60, 99, 100, 1000, 1_000_000] {
            let idle = Duration::from_micros(idle);
            for arrived in [false, true] {
                if arrived && idle < LONGEST * SOON {
                    continue;
                }
                let settled: Vec<Duration> =
                    spins(LONGEST, idle, arrived).skip(4).take(96).collect();
                assert_eq!(settled, [LEAST; 96], "{idle:?} {arrived}");
            }
        }
    }
}
