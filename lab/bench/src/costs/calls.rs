//! Measures a system call, and a wake-up of a thread on another core.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::getppid;
use zerolane_model::{Cost, WakeCosts};

use super::samples::{Effort, nanoseconds, timed};
use crate::cpu;
use crate::limits::STALL;

/// Calls of a sample.
const CALLS: usize = 10_000;
/// Wake-ups of a sample.
const WAKES: usize = 300;
/// How long the woken thread sleeps before it is woken again: as a receiver that waits for a super-packet.
const PAUSE: Duration = Duration::from_micros(5);

/// One that does next to nothing.
pub(super) fn system_call(effort: Effort) -> Result<Cost> {
    nanoseconds(timed(effort, CALLS as f64, || {
        for _ in 0..CALLS {
            black_box(getppid());
        }
        Ok(())
    })?)
}

/// What the two threads know of each other.
struct Shared {
    event: EventFd,
    /// Wake-ups that were answered, and when the last one was: nanoseconds since `began`.
    answered: AtomicU64,
    at: AtomicU64,
    over: AtomicBool,
    began: Instant,
}

/// A thread on the one core wakes one on the other by an eventfd, a moment after that fell asleep.
pub(super) fn wake(effort: Effort, cores: [usize; 2]) -> Result<WakeCosts> {
    let shared = Shared {
        event: EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)?,
        answered: AtomicU64::new(0),
        at: AtomicU64::new(0),
        over: AtomicBool::new(false),
        began: Instant::now(),
    };
    let shared = &shared;
    thread::scope(|scope| {
        let sleeping = scope.spawn(move || {
            let slept = sleep(cores[1], shared);
            // However it ended: the other one must not wait for an answer.
            shared.over.store(true, Ordering::Release);
            slept
        });
        let waking = scope.spawn(move || {
            let woke = wake_again_and_again(effort, cores[0], shared);
            shared.over.store(true, Ordering::Release);
            // However the call ended, the other thread must wake up.
            shared.event.write(1)?;
            woke
        });
        let (waking, sleeping) = (waking.join(), sleeping.join());
        let (Ok(waking), Ok(sleeping)) = (waking, sleeping) else {
            bail!("a thread of an experiment panicked");
        };
        let ([latency, waker], woken) = match (waking, sleeping) {
            (Ok(waking), Ok(sleeping)) => (waking, sleeping),
            // Of the one that was left alone the other's error says why.
            (Err(waking), Err(sleeping)) => bail!("{waking:#}; {sleeping:#}"),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        Ok(WakeCosts {
            latency,
            waker,
            woken,
        })
    })
}

fn wake_again_and_again(effort: Effort, core: usize, shared: &Shared) -> Result<[Cost; 2]> {
    cpu::pin(core)?;
    let (mut latencies, mut calls) = (Vec::new(), Vec::new());
    for sample in 0..=effort.samples {
        let (mut latency, mut call) = (0.0, 0.0);
        for _ in 0..WAKES {
            let before = shared.answered.load(Ordering::Acquire);
            let started = Instant::now();
            shared.event.write(1)?;
            call += started.elapsed().as_secs_f64();
            while shared.answered.load(Ordering::Acquire) == before {
                ensure!(
                    !shared.over.load(Ordering::Acquire),
                    "the other thread has ended"
                );
                ensure!(started.elapsed() < STALL, "a thread was not woken");
                spin_loop();
            }
            let at = Duration::from_nanos(shared.at.load(Ordering::Acquire));
            let since = at.saturating_sub(started - shared.began);
            latency += since.as_secs_f64();
            let pause = Instant::now();
            while pause.elapsed() < PAUSE {
                spin_loop();
            }
        }
        if sample > 0 {
            latencies.push(latency / WAKES as f64);
            calls.push(call / WAKES as f64);
        }
    }
    Ok([nanoseconds(latencies)?, nanoseconds(calls)?])
}

/// What falling asleep and being woken takes of its CPU time.
fn sleep(core: usize, shared: &Shared) -> Result<Cost> {
    cpu::pin(core)?;
    let (mut samples, mut wakes, mut before) = (Vec::new(), 0, thread_time()?);
    loop {
        shared.event.read()?;
        if shared.over.load(Ordering::Acquire) {
            return nanoseconds(samples);
        }
        let at = shared.began.elapsed();
        shared.at.store(at.as_nanos() as u64, Ordering::Release);
        shared.answered.fetch_add(1, Ordering::Release);
        wakes += 1;
        if wakes == WAKES {
            let now = thread_time()?;
            samples.push((now - before) / WAKES as f64);
            (wakes, before) = (0, now);
        }
    }
}

/// CPU time of this thread, seconds.
fn thread_time() -> Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.num_nanoseconds() as f64 / 1e9)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wake__tells_which_core_there_is_not() {
        for cores in [[0, 999], [999, 0], [999, 999]] {
            let error = wake(Effort::QUICK, cores).unwrap_err();
            let words = format!("{error:#}");
            assert!(words.contains("cannot run on core 999"), "{words}");
        }
    }
}
