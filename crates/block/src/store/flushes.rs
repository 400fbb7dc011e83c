//! Flushes of one file, by several threads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

/// The kernel tells of a write-back error once for each open file, to the call that asks first: others that ask at the
/// same time, or later, hear that all is well. So no two calls are in progress together, and what one heard holds for all.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Calls that were begun.
    begun: AtomicU64,
    /// Held while a call is in progress.
    turn: Mutex<()>,
    has_failed: AtomicBool,
}

impl Flushes {
    /// One has failed, so all will.
    pub(super) fn have_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    /// Has `call` done, unless one that began after this was asked for is over when its turn comes: that has taken all
    /// that this has to.
    pub(super) fn flush(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let before = self.begun.load(Ordering::SeqCst);
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.have_failed() {
            return Err(Errno::IO.into());
        }
        if self.begun.load(Ordering::SeqCst) > before {
            return Ok(());
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        let done = call();
        self.has_failed.store(done.is_err(), Ordering::SeqCst);
        done
    }
}

#[cfg(test)]
#[path = "flushes_tests.rs"]
mod tests;
