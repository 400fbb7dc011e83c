//! A latch: entered and left by many threads, until it is shut for good.
//!
//! Uses what its parent calls `sync`, so that loom can try every order of its steps
//! (`tests/loom.rs`).

use super::sync::{AtomicUsize, Ordering, yield_now};

/// Set when the latch is shut; below it, the count of those inside.
const SHUT: usize = 1 << (usize::BITS - 1);

/// Open when made.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    state: AtomicUsize,
}

impl Latch {
    /// From here to [`Latch::leave`] the latch cannot be shut entirely. False if it is shut: then there
    /// is nothing to leave.
    pub(crate) fn enter(&self) -> bool {
        let before = self.state.fetch_add(1, Ordering::Acquire);
        if before & SHUT == 0 {
            return true;
        }
        self.leave();
        false
    }

    /// Ends what [`Latch::enter`] began: what was done inside is seen by the thread that shuts the latch.
    pub(crate) fn leave(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Shuts the latch; returns when it was left as often as entered. No thread may stay for long.
    pub(crate) fn shut(&self) {
        self.state.fetch_or(SHUT, Ordering::AcqRel);
        while self.state.load(Ordering::Acquire) != SHUT {
            yield_now();
        }
    }

    /// Whether it was shut.
    pub(crate) fn is_shut(&self) -> bool {
        self.state.load(Ordering::Acquire) & SHUT != 0
    }
}
