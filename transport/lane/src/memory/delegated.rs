//! Lends memory to another thread, and takes it back when the owner needs it.
//!
//! The owner hands out a [`DelegatedAccess`] and keeps its [`Recall`]. A thread may access the memory if
//! [`DelegatedAccess::begin`] returns true, until it drops the access. The owner ends the access before it uses the
//! memory for anything else. An access that has not begun then never begins. The call waits for one in progress, for as
//! long as a burst takes to seal or open.
//!
//! Uses its own atomics in place of `std`'s, so that loom can try every order of its steps (`tests/loom.rs`).

use crate::sync::{AtomicU8, Ordering, yield_now};
use std::sync::Arc;

const WAITS: u8 = 0;
const UNDER_WAY: u8 = 1;
const OVER: u8 = 2;

/// Permission to access memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct DelegatedAccess(Arc<AtomicU8>);

/// The owner's handle of a delegated access.
#[derive(Debug)]
pub(crate) struct Recall(Arc<AtomicU8>);

/// Makes a delegated access that has not begun.
pub(crate) fn delegate() -> (DelegatedAccess, Recall) {
    let state = Arc::new(AtomicU8::new(WAITS));
    (DelegatedAccess(Arc::clone(&state)), Recall(state))
}

impl DelegatedAccess {
    /// Begins the access. False if the owner ended it first.
    pub(crate) fn begin(&self) -> bool {
        let started =
            self.0
                .compare_exchange(WAITS, UNDER_WAY, Ordering::Acquire, Ordering::Relaxed);
        started.is_ok()
    }
}

/// Also ends an access that never began, or whose thread panicked.
impl Drop for DelegatedAccess {
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
