//! Measures the cost of a sample, before anything is watched.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use nix::unistd::getppid;
use perf_event::Builder;
use perf_event::events::{Event, Software};

use crate::sampler::{RING_BYTES, sample_with_stacks};
use crate::tracing::Tracepoints;

/// Samples a second while the clock's interrupts are measured.
const INTERRUPTS_HZ: u64 = 5000;
/// For so long: some hundred of them.
const INTERRUPTS_TIME: Duration = Duration::from_millis(40);
/// Shorter pauses are not interrupts.
const PAUSE_MIN: Duration = Duration::from_nanos(700);
/// System calls of a round, and rounds; the best counts. All their records fit into the ring.
const CALLS: u32 = 50;
const ROUNDS: usize = 20;

/// Samples a second to choose from: no divisors or multiples of what timers tick at, so that they do not fall in step.
const FREQUENCIES_HZ: [u64; 9] = [997, 797, 599, 499, 397, 293, 197, 97, 49];
/// The share of a CPU's time that the interrupts of samples may take. What they take of goodput is about three times as
/// much (docs/measurements/results.md), for caches and predictions are not what they were after them.
const SHARE: f64 = 0.003;
/// What a program loses by an interrupt, by the time that the interrupt itself takes: a cautious guess from what was seen.
pub(crate) const LOSS_PER_INTERRUPT_TIME: f64 = 3.0;
/// If it is not known what they take.
const UNKNOWN_HZ: u64 = 97;

/// How many samples a second take [`SHARE`] of the time if each takes `sample_ns`; the fewest if that is too many.
pub(crate) fn sparing_hz(sample_ns: Option<f64>) -> u64 {
    let Some(sample_ns) = sample_ns else {
        return UNKNOWN_HZ;
    };
    let [.., fewest] = FREQUENCIES_HZ;
    let within = |hz: &u64| *hz as f64 * sample_ns / 1e9 <= SHARE;
    FREQUENCIES_HZ.into_iter().find(within).unwrap_or(fewest)
}

/// Nanoseconds of CPU time that a sample of the clock takes, with its interrupt: a thread that does nothing but look at
/// the time sees how long it was away.
pub(crate) fn of_interrupt() -> io::Result<f64> {
    let mut builder = watched(Software::TASK_CLOCK);
    builder.sample_frequency(INTERRUPTS_HZ);
    let mut ring = builder.build()?.sampled(RING_BYTES)?;
    ring.as_counter_mut().enable()?;
    let mut pauses = Vec::new();
    let start = Instant::now();
    let mut last = start;
    while last - start < INTERRUPTS_TIME {
        let now = Instant::now();
        if now - last >= PAUSE_MIN {
            pauses.push(now - last);
        }
        last = now;
    }
    ring.as_counter_mut().disable()?;
    let mut samples = 0;
    while ring.next_record().is_some() {
        samples += 1;
    }
    let pause = typical(pauses, samples);
    pause.ok_or_else(|| io::Error::other("no sample was seen"))
}

/// The median of the longest `samples` pauses, in nanoseconds: each sample was one, and what is not a sample is
/// shorter, or rare.
fn typical(mut pauses: Vec<Duration>, samples: usize) -> Option<f64> {
    pauses.sort_unstable_by(|a, b| b.cmp(a));
    pauses.truncate(samples);
    let median = pauses.get(pauses.len() / 2)?;
    Some(median.as_nanos() as f64)
}

/// Nanoseconds that a sample takes whose interrupt comes anyway: a record with the same stacks is written at each
/// system call.
pub(crate) fn of_record(tracepoints: &Tracepoints) -> io::Result<f64> {
    let calls = tracepoints.find("raw_syscalls/sys_enter")?;
    let mut builder = watched(calls.event());
    builder.sample_period(1);
    let mut ring = builder.build()?.sampled(RING_BYTES)?;
    let without = of_call();
    ring.as_counter_mut().enable()?;
    let with = of_call();
    ring.as_counter_mut().disable()?;
    Ok((with - without).max(0.0))
}

fn watched(event: impl Event) -> Builder<'static> {
    let mut builder = Builder::new(event);
    sample_with_stacks(&mut builder);
    builder
}

fn of_call() -> f64 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(getppid());
        }
        start.elapsed()
    };
    let best = (0..ROUNDS).map(round).min().unwrap_or_default();
    best.as_nanos() as f64 / f64::from(CALLS)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn typical__of_the_pauses_that_were_samples() {
        let pauses = |of: &[u64]| of.iter().map(|it| Duration::from_micros(*it)).collect();
        // The host of the machine took the CPU once, and cache misses are short.
        let seen = pauses(&[1, 20, 1, 22, 1, 5000, 21, 1, 1]);
        assert_eq!(typical(seen, 4), Some(21_000.0));
        assert_eq!(typical(pauses(&[20]), 0), None);
        assert_eq!(typical(Vec::new(), 4), None);
    }

    #[test]
    fn sparing_hz__takes_a_small_share() {
        for (sample_ns, hz) in [
            (Some(0.0), 997),
            (Some(3_000.0), 997),
            (Some(6_000.0), 499),
            (Some(13_700.0), 197),
            (Some(60_000.0), 49),
            (Some(1e9), 49),
            (None, UNKNOWN_HZ),
        ] {
            assert_eq!(sparing_hz(sample_ns), hz, "{sample_ns:?}");
        }
    }

    #[test]
    fn of_interrupt__is_a_pause_and_of_record_some_time() {
        match of_interrupt() {
            Ok(cost) => assert!(cost >= PAUSE_MIN.as_nanos() as f64, "{cost}"),
            Err(why) => eprintln!("skipped: {why}"),
        }
        match Tracepoints::open().and_then(|it| of_record(&it)) {
            Ok(cost) => assert!(cost >= 0.0, "{cost}"),
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
}
