//! Lends memory to another thread, and takes it back when the owner needs it.
//!
//! The owner hands out an [`Errand`] and keeps its [`Recall`]. A thread may access the memory if [`Errand::begin`]
//! returns true, until it drops the errand. The owner calls the errand off before it uses the memory for anything else.
//! An errand that has not begun then never begins. The call waits for one in progress, for as long as a burst takes to
//! seal or open.
//!
//! Uses its own atomics in place of `std`'s, so that loom can try every order of its steps (`tests/loom.rs`).

use super::sync::{AtomicU8, Ordering, yield_now};
use std::sync::Arc;

const WAITS: u8 = 0;
const UNDER_WAY: u8 = 1;
const OVER: u8 = 2;

/// Permission to access memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Errand(Arc<AtomicU8>);

/// The owner's handle of an errand.
#[derive(Debug)]
pub(crate) struct Recall(Arc<AtomicU8>);

/// Makes an errand that has not begun.
pub(crate) fn errand() -> (Errand, Recall) {
    let state = Arc::new(AtomicU8::new(WAITS));
    (Errand(Arc::clone(&state)), Recall(state))
}

impl Errand {
    /// Begins the access. False if the owner called the errand off.
    pub(crate) fn begin(&self) -> bool {
        let begun = self
            .0
            .compare_exchange(WAITS, UNDER_WAY, Ordering::Acquire, Ordering::Relaxed);
        begun.is_ok()
    }
}

/// Also ends an errand that never began, or whose thread panicked.
impl Drop for Errand {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Release);
    }
}

impl Recall {
    /// Whether the thread no longer accesses the memory.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// Ends the access. On return the thread no longer accesses the memory, and its writes are visible.
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
