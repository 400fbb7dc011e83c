//! Runs the thread of a connection's streams.

use super::Shared;
use crate::session::Failure;
use std::io::ErrorKind;
use std::time::Instant;
use zerolane::Error;
use zerolane::failure::CloseReason;
use zerolane::worker::{Event, Worker};

/// Drives the connection until it is over.
pub(super) fn drive(mut worker: Worker, shared: &Shared) {
    let (kind, words) = match run(&mut worker, shared) {
        Ok(Error::Closed(CloseReason::Peer(_) | CloseReason::Local)) => (
            ErrorKind::NotConnected,
            "the peer has disconnected".to_owned(),
        ),
        Ok(reason) => {
            let words = reason.to_string();
            (std::io::Error::from(reason).kind(), words)
        }
        Err(failure) => (ErrorKind::InvalidData, failure.to_string()),
    };
    shared.lock().end(kind, words);
}

/// Returns the reason of the end.
fn run(worker: &mut Worker, shared: &Shared) -> Result<Error, Failure> {
    let mut told = false;
    loop {
        let mut over = None;
        let mut state = shared.lock();
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
            return Ok(reason);
        }
        let connection = state.session.connection();
        if state.closes && !told && state.session.engine.is_flushed() {
            told = worker.close(connection);
        }
        drop(state);
        worker.wait(None)?;
    }
}
