//! Runs the thread of a connection's streams.

use super::{Shared, StreamError};
use crate::session::Failure;
use std::sync::Arc;
use std::time::Instant;
use zerolane::Error;
use zerolane::failure::CloseReason;
use zerolane::worker::{Event, Worker};

/// Drives the connection until it is over.
pub(super) fn drive(mut worker: Worker, shared: &Shared) {
    let end = run(&mut worker, shared).unwrap_or_else(|it| StreamError::Failed(Arc::new(it)));
    // Disconnects, if nothing else did, before anyone learns of the end.
    drop(worker);
    shared.lock_here().end(end);
}

/// Returns the reason of the end.
fn run(worker: &mut Worker, shared: &Shared) -> Result<StreamError, Failure> {
    let mut told = false;
    loop {
        let mut over = None;
        let mut state = shared.lock_here();
        if state.aborts {
            return Ok(StreamError::Closed);
        }
        while let Some(event) = worker.next_event() {
            match event {
                Event::Completed { completion, .. } => {
                    state.session.on_completed(completion, Instant::now())?;
                }
                Event::Closed { reason, .. } => over = Some(reason),
                _ => {}
            }
        }
        state.session.post(worker, Instant::now())?;
        while state.deliver() {
            state.session.post(worker, Instant::now())?;
        }
        if let Some(reason) = over {
            return match reason {
                Error::Closed(CloseReason::Local) => Ok(StreamError::Closed),
                Error::Closed(CloseReason::Peer(_)) => Ok(StreamError::Disconnected),
                reason => Err(reason.into()),
            };
        }
        let connection = state.session.connection();
        if state.closes && !told && state.session.engine.is_flushed() {
            told = worker.close(connection);
        }
        drop(state);
        worker.wait(None)?;
    }
}
