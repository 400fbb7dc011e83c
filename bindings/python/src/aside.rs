//! Runs calls that a signal cannot interrupt in threads of their own.

use crate::errors;
use crate::patience::Patience;
use pyo3::prelude::*;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use zerolane::Result;

/// Runs `call` in a thread of its own and waits for it, interruptibly. If the wait is interrupted, the call continues
/// and its result is dropped.
///
/// # Errors
/// Those of `call`, and the exception of a signal handler.
pub(crate) fn aside<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (tell, told) = sync_channel(1);
    let thread = thread::Builder::new().name("zerolane-call".to_owned());
    let started = thread.spawn(move || {
        // The caller may have stopped waiting.
        let _ = tell.send(call());
    });
    started.map_err(|error| errors::of(py, error.into()))?;
    let over = Patience::of(None).wait(py, move |time| match told.recv_timeout(time) {
        Ok(outcome) => outcome.map(Some),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the call panicked").into()),
    })?;
    // Without a limit, the wait ends when the call does.
    over.ok_or_else(|| errors::of(py, io::Error::other("the call did not end").into()))
}
