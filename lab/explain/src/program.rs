//! Explains a program that it starts, or one that runs already, until the program ends or the user stops it.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thiserror::Error;

use crate::explainer::{Explainer, Options, Subject};
use crate::explanation::Explanation;
use crate::processes::is_alive;

/// Between two looks at whether it has ended.
const INTERVAL: Duration = Duration::from_millis(20);
/// A program at a terminal has the signal of Ctrl-C as well, and time for its own last words.
const GRACE: Duration = Duration::from_secs(1);
/// After it a program that does not end is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why nothing could be explained.
#[derive(Debug, Error)]
pub enum Error {
    /// The program did not start.
    #[error("cannot run {program}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        why: io::Error,
    },
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The program could not be waited for.
    #[error("cannot wait for the program")]
    Wait(#[source] io::Error),
}

/// The number of the signal that requests the end; 0 until then.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// The flag that a signal handler sets to its signal's number.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicUsize> {
        self.0.clone()
    }

    fn signal(&self) -> Option<Signal> {
        let number = i32::try_from(self.0.load(Ordering::Relaxed)).ok()?;
        Signal::try_from(number).ok()
    }
}

/// Runs `command` to its end and explains it; or until `stop`, when it gets that signal, and is killed if it does
/// not end then. What it starts and leaves behind is not waited for.
///
/// # Errors
/// The program does not start.
pub fn explain_program(
    command: &mut Command,
    options: Options,
    stop: &Stop,
) -> Result<(Explanation, ExitStatus), Error> {
    let mut explainer = Explainer::start(Subject::Children, options);
    let mut child = command.spawn().map_err(|why| Error::Start {
        program: command.get_program().to_string_lossy().into_owned(),
        why,
    })?;
    let mut ending = Ending::default();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Error::Wait)? {
            break status;
        }
        if let Some(signal) = stop.signal() {
            ending.go_on(&child, signal);
        }
        explainer.poll();
        sleep(INTERVAL);
    };
    Ok((explainer.finish(), status))
}

/// A request to end a program.
#[derive(Default)]
struct Ending {
    asked: Option<Instant>,
    signalled: bool,
}

impl Ending {
    /// Does what it is time for.
    fn go_on(&mut self, child: &Child, signal: Signal) {
        let waited = self.asked.get_or_insert_with(Instant::now).elapsed();
        let pid = Pid::from_raw(child.id() as i32);
        // It may have ended meanwhile; it is not waited for yet, so the number is still its own.
        if waited >= PATIENCE {
            let _ = kill(pid, Signal::SIGKILL);
        } else if !self.signalled && (waited >= GRACE || signal != Signal::SIGINT) {
            let _ = kill(pid, signal);
            self.signalled = true;
        }
    }
}

/// Explains a running process, with those that it has started and starts, for `time`, or until it ends, or `stop`.
///
/// # Errors
/// There is no such process.
pub fn explain_process(
    pid: u32,
    time: Option<Duration>,
    options: Options,
    stop: &Stop,
) -> Result<Explanation, Error> {
    if !is_alive(pid) {
        return Err(Error::NoProcess(pid));
    }
    let explainer = Explainer::start(Subject::Process(pid), options);
    Ok(watch(explainer, time, stop, || is_alive(pid)))
}

/// Explains the whole machine for `time`, or until `stop`.
#[must_use]
pub fn explain_for(time: Duration, options: Options, stop: &Stop) -> Explanation {
    let explainer = Explainer::start(Subject::Machine, options);
    watch(explainer, Some(time), stop, || true)
}

fn watch(
    mut explainer: Explainer,
    time: Option<Duration>,
    stop: &Stop,
    going_on: impl Fn() -> bool,
) -> Explanation {
    let start = Instant::now();
    let over = |now: Instant| time.is_some_and(|it| now.duration_since(start) >= it);
    while !over(Instant::now()) && stop.signal().is_none() && going_on() {
        explainer.poll();
        let left = time.map(|it| it.saturating_sub(start.elapsed()));
        sleep(left.unwrap_or(INTERVAL).min(INTERVAL));
    }
    explainer.finish()
}
