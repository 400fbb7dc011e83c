//! Starts the library's threads.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::io;
use std::thread::{Builder, JoinHandle};

/// What a thread itself causes: if it is blocked, the process ends without its handler.
const OF_FAULTS: [Signal; 6] = [
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGTRAP,
];

/// Starts a thread that takes no signals, so that a program's handlers run on the program's own threads, and end the
/// waits of those.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn_thread<T: Send + 'static>(
    name: String,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let mut blocked = SigSet::all();
    OF_FAULTS.into_iter().for_each(|it| blocked.remove(it));
    // A thread has the mask of the one that started it.
    let ours = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = Builder::new().name(name).spawn(run);
    ours.thread_set_mask()?;
    started
}

#[cfg(test)]
#[path = "spawn_tests.rs"]
mod tests;
