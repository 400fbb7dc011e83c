//! Closing a connection as Python waits: interrupted by Ctrl-C.

use crate::errors;
use crate::patience::Patience;
use pyo3::prelude::*;
use std::time::{Duration, Instant};
use zerolane::Error;
use zerolane::failure::{CloseReason, TransferError};
use zerolane::worker::{Event, Worker};

/// How long a look waits at first, and at last: the end of a connection is no event. What ends soon is seen soon, and
/// what takes long takes no processor.
const LOOKS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));

/// Waits until the peer has all that was sent, then disconnects. What ends the wait disconnects at once.
///
/// # Errors
/// The peer does not have all, or what a signal handler raised.
pub(crate) fn close(py: Python<'_>, connection: zerolane::Connection) -> PyResult<()> {
    let connection = Box::new(connection);
    let failed = |error| errors::of(py, error);
    let Ok(mut worker) = Worker::new() else {
        // No descriptor is left for one. It is closed all the same, and nothing ends the wait.
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

/// Why the peer does not have all, if `event` tells that.
fn failure(event: Event) -> Option<Error> {
    match event {
        Event::Completed { completion, .. } if completion.kind.is_outgoing() => {
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
