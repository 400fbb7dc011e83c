//! Merges concurrent flushes of one file, so that threads share an fsync.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

/// The kernel reports a write-back error once per open file, to the first call that asks. Simultaneous and later calls
/// succeed. Therefore only one call is in progress at a time, and its result applies to all.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Calls that were begun.
    started: AtomicU64,
    /// Held while a call is in progress.
    turn: Mutex<()>,
    has_failed: AtomicBool,
}

impl Flushes {
    /// Whether a flush has failed, so that all later ones fail.
    pub(super) fn have_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    /// Executes `call`, unless another flush that began after this request has completed by then: that one covers this
    /// request.
    pub(super) fn flush(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let before = self.started.load(Ordering::SeqCst);
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.have_failed() {
            return Err(Errno::IO.into());
        }
        if self.started.load(Ordering::SeqCst) > before {
            return Ok(());
        }
        self.started.fetch_add(1, Ordering::SeqCst);
        let done = call();
        self.has_failed.store(done.is_err(), Ordering::SeqCst);
        done
    }
}

#[cfg(test)]
#[path = "flushes_tests.rs"]
mod tests;
