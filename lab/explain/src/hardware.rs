//! Reads the CPUs' own counters, where they exist: cycles, instructions and cache misses.

use std::io;

use nix::errno::Errno;
use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter, CounterData};
use serde::Serialize;

use crate::refused::Refused;
use crate::sampler::online_cpus;

/// What is counted, in the order of the fields of [`HardwareCounts`].
const EVENTS: [Hardware; 3] = [
    Hardware::CPU_CYCLES,
    Hardware::INSTRUCTIONS,
    Hardware::CACHE_MISSES,
];

/// What one CPU counted while it was watched, whatever ran on it, in kernel and programs. An idle CPU that is halted
/// counts no cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HardwareCounts {
    /// The number of the CPU.
    pub cpu: usize,
    /// Cycles of its clock.
    pub cycles: u64,
    /// Instructions that were completed.
    pub instructions: u64,
    /// Accesses to memory that no cache had, usually those that the last one had not.
    pub cache_misses: u64,
}

/// Counts on every CPU from its start.
pub(crate) struct Counting {
    /// By CPU.
    counters: Vec<(usize, [Counter; 3])>,
}

impl Counting {
    /// Begins. An error is why there is nothing to count.
    pub(crate) fn start() -> Result<Counting, String> {
        let started = online_cpus().and_then(|cpus| Counting::of(EVENTS, &cpus));
        started.map_err(|why| format!("no hardware counters: {}", refused(why)))
    }

    fn of<E: Event + Clone>(events: [E; 3], cpus: &[usize]) -> io::Result<Counting> {
        let mut counters = Vec::new();
        for &cpu in cpus {
            let [first, second, third] = events.clone().map(|it| open(it, cpu));
            counters.push((cpu, [first?, second?, third?]));
        }
        for counter in counters.iter_mut().flat_map(|it| &mut it.1) {
            counter.enable()?;
        }
        Ok(Counting { counters })
    }

    /// What each CPU counted. An error is why that is not known.
    pub(crate) fn finish(&mut self) -> Result<Vec<HardwareCounts>, String> {
        let mut counts = Vec::new();
        for (cpu, counters) in &mut self.counters {
            let mut read = [0; 3];
            for (counter, read) in counters.iter_mut().zip(&mut read) {
                let data = counter.read_full();
                let data = data.map_err(|why| format!("hardware counters: {why}"))?;
                *read = count(&data).ok_or_else(|| {
                    format!(
                        "hardware counters: other programs used those of CPU {cpu} all the time"
                    )
                })?;
            }
            let [cycles, instructions, cache_misses] = read;
            counts.push(HardwareCounts {
                cpu: *cpu,
                cycles,
                instructions,
                cache_misses,
            });
        }
        Ok(counts)
    }
}

fn open(event: impl Event, cpu: usize) -> io::Result<Counter> {
    let mut builder = Builder::new(event);
    builder.any_pid().one_cpu(cpu).include_kernel().include_hv();
    builder.build()
}

/// There are fewer counters than what may be counted, so each has its turns.
fn count(data: &CounterData) -> Option<u64> {
    let nanos = [data.time_enabled(), data.time_running()].map(|it| it.unwrap_or_default());
    scaled(data.count(), nanos.map(|it| it.as_nanos()))
}

/// What would have been counted in the time `enabled`, by what was in the time `running`. `None`: that was none.
fn scaled(count: u64, [enabled, running]: [u128; 2]) -> Option<u64> {
    let all = (u128::from(count) * enabled).checked_div(running)?;
    Some(u64::try_from(all).unwrap_or(u64::MAX))
}

fn refused(error: io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => {
            "the kernel found none; a virtual machine has them only if its host passes them on"
                .into()
        }
        _ => Refused::of(error).in_full(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    #[test]
    fn scaled__by_the_time_that_it_was_counted() {
        assert_eq!(scaled(100, [4, 4]), Some(100));
        assert_eq!(scaled(100, [4, 1]), Some(400));
        assert_eq!(scaled(u64::MAX, [4, 1]), Some(u64::MAX));
        assert_eq!(scaled(0, [4, 0]), None);
    }

    #[test]
    fn finish__counts_on_every_cpu_or_says_why_not() {
        match Counting::start() {
            Ok(mut counting) => {
                let mut sum = 0_u64;
                for number in 0..10_000_000 {
                    sum = std::hint::black_box(sum + number);
                }
                let counts = counting.finish().unwrap();
                let all = |of: fn(&HardwareCounts) -> u64| counts.iter().map(of).sum::<u64>();
                assert!(all(|it| it.instructions) > 10_000_000, "{counts:?}");
                assert!(all(|it| it.cycles) > 0, "{counts:?}");
            }
            Err(why) => assert!(why.starts_with("no hardware counters: "), "{why}"),
        }
    }

    /// The same by what the kernel counts, which is there on virtual machines as well.
    #[test]
    fn finish__has_each_event_in_its_place() {
        let events = [
            Software::CPU_CLOCK,
            Software::PAGE_FAULTS,
            Software::EMULATION_FAULTS,
        ];
        let cpus = online_cpus().unwrap();
        let mut counting = match Counting::of(events, &cpus) {
            Ok(counting) => counting,
            Err(why) => {
                eprintln!("skipped: {}", refused(why));
                return;
            }
        };
        // Pages that were never touched.
        let pages = vec![1_u8; 8 << 20];
        std::hint::black_box(&pages);
        let counts = counting.finish().unwrap();
        let numbers: Vec<_> = counts.iter().map(|it| it.cpu).collect();
        assert_eq!(numbers, cpus);
        let all = |of: fn(&HardwareCounts) -> u64| counts.iter().map(of).sum::<u64>();
        assert!(counts.iter().all(|it| it.cycles > 0), "{counts:?}");
        assert!(all(|it| it.instructions) > 0, "{counts:?}");
        assert_eq!(all(|it| it.cache_misses), 0, "{counts:?}");
    }

    #[test]
    fn refused__names_the_host_or_the_right() {
        let words = |errno: Errno| refused(io::Error::from_raw_os_error(errno as i32));
        assert!(words(Errno::ENOENT).contains("virtual machine"));
        assert!(words(Errno::EACCES).contains("may not sample"));
    }
}
