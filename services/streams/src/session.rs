//! Drives an engine over a connection of a worker: posts its messages and receives.

use crate::engine::{Engine, Role, Violation};
use std::time::Instant;
use zerolane::failure::{PostError, TransferError};
use zerolane::request::{Output, Receive, Transfer};
use zerolane::worker::{ConnectionId, Worker};
use zerolane::{Completion, Error};

/// The streams of one connection of a [`Worker`]. Its owner hands over the connection's completions
/// ([`Session::on_completed`]), calls [`Session::post`] after them and after its own calls of the engine, and takes the
/// engine's events, until there are none.
#[derive(Debug)]
pub struct Session {
    /// The streams.
    pub engine: Engine,
    connection: ConnectionId,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The peer broke the rules.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] Error),
    /// The system has no memory.
    #[error("no memory for messages: {0}")]
    Memory(std::io::Error),
}

/// A receive's context is odd, a send's even.
const RECEIVE: u64 = 1;

impl Session {
    /// Streams over `connection`, which is established.
    pub fn new(connection: ConnectionId, role: Role) -> Session {
        let engine = Engine::new(role);
        Session { engine, connection }
    }

    /// The connection.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Processes a completion of the connection.
    ///
    /// # Errors
    /// The connection cannot be used for streams any more.
    pub fn on_completed(&mut self, completion: Completion, now: Instant) -> Result<(), Failure> {
        let (number, len) = (completion.context >> 1, completion.result);
        let len = match len {
            Ok(len) => len,
            // The end of the connection is an event of its own.
            Err(TransferError::Closed(_) | TransferError::Cancelled) => return Ok(()),
            Err(error) => return Err(Error::from(error).into()),
        };
        match completion.output {
            Output::Receive { .. } => {
                let memory = completion.into_region()?;
                self.engine.on_message(number, memory, len)?;
            }
            Output::Send { .. } => {
                let memory = completion.into_region()?;
                self.engine.on_sent(number, memory, now);
            }
            _ => {}
        }
        Ok(())
    }

    /// Posts the receives and messages that may be posted now. True if there were any.
    ///
    /// # Errors
    /// The connection refused.
    pub fn post(&mut self, worker: &mut Worker, now: Instant) -> Result<bool, Failure> {
        let mut posted = false;
        let Some(connection) = worker.connection(self.connection) else {
            return Ok(false);
        };
        while let Some((number, memory)) = self.engine.next_receive().map_err(Failure::Memory)? {
            let receive = Receive::new(memory).context(number << 1 | RECEIVE);
            match connection.post(receive) {
                Err(refused) if is_closed(&refused.error) => return Ok(posted),
                done => done.map_err(|it| it.error)?,
            };
        }
        while let Some(message) = self.engine.next_message(now) {
            let transfer = Transfer::new(message.memory).context(message.number << 1);
            match connection.post(transfer) {
                Err(refused) if is_closed(&refused.error) => return Ok(posted),
                done => done.map_err(|it| it.error)?,
            };
            posted = true;
        }
        Ok(posted)
    }
}

/// Whether the connection is over, and its event, which has the reason, is on its way.
fn is_closed(error: &Error) -> bool {
    matches!(error, Error::Post(PostError::Closed))
}
