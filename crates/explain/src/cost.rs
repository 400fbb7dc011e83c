//! What a sample costs, measured before anything is watched.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use nix::unistd::getppid;
use perf_event::Builder;
use perf_event::events::{Event, Software};

use crate::sampler::{RING_BYTES, Source, sample_with_stacks};
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

/// Nanoseconds of CPU time that a sample of that source takes.
pub(crate) fn of_sample(source: Source, tracepoints: Option<&Tracepoints>) -> io::Result<f64> {
    match source {
        Source::Clock => of_interrupt(),
        Source::Tick => of_record(tracepoints),
    }
}

/// With the interrupt: a thread that does nothing but look at the clock sees how long it was away.
fn of_interrupt() -> io::Result<f64> {
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

/// Without an interrupt, which comes anyway: a record with the same stacks is written at each system call.
fn of_record(tracepoints: Option<&Tracepoints>) -> io::Result<f64> {
    let tracepoints = tracepoints.ok_or(io::ErrorKind::NotFound)?;
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
    fn of_sample__is_some_time() {
        let tracepoints = Tracepoints::open().ok();
        for source in [Source::Clock, Source::Tick] {
            match of_sample(source, tracepoints.as_ref()) {
                Ok(cost) => assert!(cost >= 0.0, "{source:?}: {cost}"),
                Err(why) => eprintln!("skipped: {source:?}: {why}"),
            }
        }
    }
}
