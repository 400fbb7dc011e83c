//! Calls that nothing interrupts, in threads of their own.

use crate::errors;
use crate::patience::Patience;
use pyo3::prelude::*;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use zerolane::Result;

/// Runs `call` in a thread of its own, and waits for it as Python waits. What ends the wait does not end the call: it
/// goes on, and what comes of it is dropped.
///
/// # Errors
/// Those of `call`, and what a signal handler raised.
pub(crate) fn aside<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (tell, told) = sync_channel(1);
    let thread = thread::Builder::new().name("zerolane-call".to_owned());
    let started = thread.spawn(move || {
        // Nobody waits for it any more.
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
