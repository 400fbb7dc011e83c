//! Buffers that a thread lets go of which must not wait for the interpreter: a worker's, on whose account peers wait.

use crate::buffer::Buffer;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Let go of, and not released yet.
static LEFT: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());
/// The interpreter was asked to look at them, and has not begun to.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Releases `buffer`: now in a thread of Python's, else when a thread of Python's comes by.
pub(crate) fn release(buffer: Buffer) {
    // SAFETY: it looks whether this thread is one of Python's, and touches nothing.
    if !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        drop(buffer);
        return;
    }
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.push(buffer);
    drop(left);
    if !ASKED.swap(true, Ordering::SeqCst) {
        // SAFETY: it may be called without the interpreter; the function lives as long as the process.
        let asked = unsafe { ffi::Py_AddPendingCall(Some(released), std::ptr::null_mut()) };
        if asked != 0 {
            // There is no room for a call. The next that is let go of asks again.
            ASKED.store(false, Ordering::SeqCst);
        }
    }
}

/// Releases what was let go of: for calls that begin in threads of Python's.
pub(crate) fn release_left(_py: Python<'_>) {
    // What is being let go of just now is the next look's. In a child of fork another thread's lock is never let go.
    let left = match LEFT.try_lock() {
        Ok(mut left) => std::mem::take(&mut *left),
        Err(TryLockError::Poisoned(left)) => std::mem::take(&mut *left.into_inner()),
        Err(TryLockError::WouldBlock) => return,
    };
    drop(left);
}

/// The interpreter calls it, between two instructions of the main thread.
extern "C" fn released(_: *mut c_void) -> c_int {
    // Before it looks: what is let go of behind that asks again.
    ASKED.store(false, Ordering::SeqCst);
    // None: the interpreter is going, and all memory with it.
    let _ = Python::try_attach(release_left);
    0
}
