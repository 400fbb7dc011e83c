//! Adapts how long an idle thread spins before it sleeps.

use std::time::Duration;

/// Shortest spin, as a fraction of the longest: a shorter one finds nothing.
const MIN_PART: u32 = 16;
/// Idle time, in longest spins, up to which a longer spin would have avoided the sleep: a wake-up takes about as long
/// as one.
const SOON: u32 = 2;

/// The length of the next spin, after a spin of length `spin` that found nothing and a sleep. `idle` is the time of
/// both; `arrived` says that an arrival ended the sleep, and not a timer. The spin grows, up to `longest`, if a longer
/// one would have found the arrival. If it only shrank, two ends that wait for each other would each sleep while the
/// other wakes, and never learn that the sleep is unnecessary. A timer is no reason to spin: its time is known.
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

    /// The spins of a thread that is idle for this time, again and again.
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
        // A program that requested no spin gets none.
        let none = Duration::ZERO;
        assert_eq!(after_sleep(none, none, none, true), none);
        let all = Duration::MAX;
        assert_eq!(after_sleep(all, LONGEST, all, true), all);
    }

    /// One thread has only its timers; the other has an arrival now and then.
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
