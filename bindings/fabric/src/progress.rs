//! Drives a fabric's worker while its program makes no call: peers are answered, and their puts and gets served, while
//! the program computes.

use crate::engine::Engine;
use crate::errno::Outcome;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use zerolane::Process;

/// A program that made no call for this long computes, or sleeps elsewhere.
const QUIET: Duration = Duration::from_millis(4);
/// Longest sleep: while a queue is full, the worker's timers are not set.
const STEP: Duration = Duration::from_millis(100);

/// The thread of a fabric. It ends with this value.
#[derive(Debug)]
pub(crate) struct Progress {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    process: Process,
}

impl Progress {
    /// # Errors
    /// The system has no thread or descriptor left.
    pub(crate) fn start(engine: &Arc<Engine>) -> Outcome<Progress> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (engine, stopped) = (Arc::clone(engine), Arc::clone(&stop));
        let named = std::thread::Builder::new().name("zerolane-fi".to_owned());
        let thread = named.spawn(move || run(&engine, &stopped))?;
        Ok(Progress {
            stop,
            thread: Some(thread),
            process: Process::current(),
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // A child of fork has no such thread, and the descriptor is its parent's, too.
        if !self.process.is_current() {
            return;
        }
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(engine: &Engine, stop: &OwnedFd) {
    let mut calls = engine.calls();
    while !stopped(stop, QUIET) {
        let before = std::mem::replace(&mut calls, engine.calls());
        if before == calls && stand_in(engine, stop, calls).is_err() {
            return;
        }
    }
}

/// Drives the worker until the program makes a call.
///
/// # Errors
/// The worker failed.
fn stand_in(engine: &Engine, stop: &OwnedFd, calls: u64) -> Outcome {
    while engine.calls() == calls {
        let armed = engine.lock().settle()?;
        if !armed {
            continue;
        }
        let mut fds = [
            PollFd::new(&engine.input, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        let _ = poll(&mut fds, Timespec::try_from(STEP).ok().as_ref());
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        // A program that sleeps on the same descriptor has woken, too, and is to take what came.
        if engine.sleeps() && (stopped(stop, QUIET) || engine.calls() != calls) {
            return Ok(());
        }
    }
    Ok(())
}

/// Sleeps, unless the thread is to end.
fn stopped(stop: &OwnedFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).ok();
    let mut fds = [PollFd::new(stop, PollFlags::IN)];
    let _ = poll(&mut fds, time.as_ref());
    !fds[0].revents().is_empty()
}
