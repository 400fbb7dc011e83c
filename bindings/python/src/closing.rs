//! Closes a connection with a wait that Ctrl-C interrupts.

use crate::errors;
use crate::patience::Patience;
use pyo3::prelude::*;
use std::time::{Duration, Instant};
use zerolane::Error;
use zerolane::failure::{CloseReason, TransferError};
use zerolane::worker::{Event, Worker};

/// The first and the longest time between two checks, because the end of a connection is no event: short at first to
/// return soon, long later to save processor time.
const LOOKS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));

/// Waits until the peer has received all that was sent, then disconnects. If the wait is interrupted, disconnects at
/// once.
///
/// # Errors
/// The peer did not receive everything, or a signal handler raised an exception.
pub(crate) fn close(py: Python<'_>, connection: zerolane::Connection) -> PyResult<()> {
    let connection = Box::new(connection);
    let failed = |error| errors::of(py, error);
    let Ok(mut worker) = Worker::new() else {
        // No descriptor is left for a worker: close without interruption.
        return py.detach(|| connection.close()).map_err(failed);
    };
    let id = worker.adopt(*connection).map_err(failed)?;
    worker.close(id);
    let mut why = None;
    let mut look = LOOKS.0;
    let over = Patience::of(None).wait(py, |time| {
        let until = Instant::now() + time;
        while worker.connections() > 0 {
            if until <= Instant::now() {
                return Ok(None);
            }
            look = LOOKS.1.min(look * 2);
            worker.wait(Some(look))?;
            while let Some(event) = worker.next_event() {
                look = LOOKS.0;
                why = why.take().or(failure(event));
            }
        }
        Ok(Some(()))
    });
    py.detach(|| drop(worker));
    over?;
    why.map_or(Ok(()), |error| Err(failed(error)))
}

/// Why the peer did not receive everything, if `event` says so.
fn failure(event: Event) -> Option<Error> {
    match event {
        Event::Completed { completion, .. } if completion.kind().is_outgoing() => {
            match completion.result {
                Err(TransferError::Closed(reason)) => Some(Error::Closed(reason)),
                _ => None,
            }
        }
        Event::Closed { reason, .. } => match reason {
            Error::Closed(CloseReason::Local | CloseReason::Peer(_)) => None,
            reason => Some(reason),
        },
        _ => None,
    }
}
