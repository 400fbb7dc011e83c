//! Releases buffers that a thread without the interpreter drops, such as a worker's, which must not wait for it.

use crate::buffer::Buffer;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Buffers dropped and not released yet.
static LEFT: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());
/// Whether the interpreter was asked to release them, and has not started.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Releases `buffer`, at once in a thread of Python, otherwise at the next call of such a thread.
pub(crate) fn release(buffer: Buffer) {
    // SAFETY: only checks whether this thread is one of Python's.
    if !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        drop(buffer);
        return;
    }
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.push(buffer);
    drop(left);
    if !ASKED.swap(true, Ordering::SeqCst) {
        // SAFETY: may be called without the interpreter; the function lives as long as the process.
        let asked = unsafe { ffi::Py_AddPendingCall(Some(released), std::ptr::null_mut()) };
        if asked != 0 {
            // There is no room for a call. The next drop asks again.
            ASKED.store(false, Ordering::SeqCst);
        }
    }
}

/// Releases dropped buffers: for calls that begin in threads of Python.
pub(crate) fn release_left(_py: Python<'_>) {
    // If another thread holds the lock, a later call releases its buffer. In a child of fork that lock is never
    // released.
    let left = match LEFT.try_lock() {
        Ok(mut left) => std::mem::take(&mut *left),
        Err(TryLockError::Poisoned(left)) => std::mem::take(&mut *left.into_inner()),
        Err(TryLockError::WouldBlock) => return,
    };
    drop(left);
}

/// The interpreter calls this between two instructions of the main thread.
extern "C" fn released(_: *mut c_void) -> c_int {
    // Set first: a later drop asks again.
    ASKED.store(false, Ordering::SeqCst);
    // `None`: the interpreter is ending, with all memory.
    let _ = Python::try_attach(release_left);
    0
}
