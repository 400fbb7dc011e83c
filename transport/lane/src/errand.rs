//! What one thread does with memory that is another's, and how the owner gets it back.
//!
//! The owner hands out an [`Errand`] and keeps its [`Recall`]. A thread touches the memory between [`Errand::begin`], if that
//! is true, and the errand's end. The owner calls it off before the memory is used for anything else: one that has not begun
//! never will, and one that is under way is waited for, which is as long as it takes to seal or open a burst.
//!
//! Kept apart from `std`'s atomics, so that loom can try every order of its steps (`tests/loom.rs`).

use super::sync::{AtomicU8, Ordering, yield_now};
use std::sync::Arc;

const WAITS: u8 = 0;
const UNDER_WAY: u8 = 1;
const OVER: u8 = 2;

/// Leave to touch memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Errand(Arc<AtomicU8>);

/// The owner's hold of an errand.
#[derive(Debug)]
pub(crate) struct Recall(Arc<AtomicU8>);

/// One that has not begun.
pub(crate) fn errand() -> (Errand, Recall) {
    let state = Arc::new(AtomicU8::new(WAITS));
    (Errand(Arc::clone(&state)), Recall(state))
}

impl Errand {
    /// From here on the memory may be touched, if this is true: it was not called off.
    pub(crate) fn begin(&self) -> bool {
        let begun = self
            .0
            .compare_exchange(WAITS, UNDER_WAY, Ordering::Acquire, Ordering::Relaxed);
        begun.is_ok()
    }
}

/// Also of one that never began, or whose thread panicked.
impl Drop for Errand {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Release);
    }
}

impl Recall {
    /// Whether the memory is touched no more.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// When this returns, the memory is touched no more, and what was done to it is seen.
    pub(crate) fn call_off(&self) {
        let waits = self
            .0
            .compare_exchange(WAITS, OVER, Ordering::Acquire, Ordering::Relaxed);
        if waits.is_err() {
            while !self.is_over() {
                yield_now();
            }
        }
    }
}
