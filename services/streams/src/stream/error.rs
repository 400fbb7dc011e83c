//! Says why a call with a stream failed.

use crate::engine::OpenError;
use crate::message::{Reset, ResetCode};
use crate::session::Failure;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use zerolane::failure::CloseReason;

/// Why a call with streams failed. Calls return it inside an [`Error`](std::io::Error): see [`StreamError::of`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// One end reset the stream, or the peer refused it; the words are that end's.
    #[error("{0}")]
    Reset(Reset),
    /// This end finished the stream, and cannot write to it.
    #[error("the stream was finished before")]
    Finished,
    /// This end closed the stream, or all of them.
    #[error("this end closed the stream")]
    Closed,
    /// The peer disconnected. The stream had no end before, so bytes may be missing.
    #[error("the peer has disconnected")]
    Disconnected,
    /// The connection failed, or the peer broke the rules.
    #[error(transparent)]
    Failed(Arc<Failure>),
    /// No stream can be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The streams belong to the parent of this process.
    #[error("the streams belong to the parent process: after a fork, the child must make its own")]
    Forked,
}

impl StreamError {
    /// The reason inside an error of a call with streams.
    pub fn of(error: &Error) -> Option<&StreamError> {
        error.get_ref()?.downcast_ref()
    }

    fn kind(&self) -> ErrorKind {
        match self {
            StreamError::Reset(Reset { code, .. }) => match code {
                ResetCode::Denied => ErrorKind::PermissionDenied,
                ResetCode::Unreachable => ErrorKind::ConnectionRefused,
                _ => ErrorKind::ConnectionReset,
            },
            StreamError::Finished => ErrorKind::BrokenPipe,
            StreamError::Closed | StreamError::Disconnected => ErrorKind::NotConnected,
            StreamError::Failed(failure) => match &**failure {
                Failure::Violation(_) => ErrorKind::InvalidData,
                Failure::Connection(error) => of_connection(error),
                Failure::Memory(error) => error.kind(),
            },
            StreamError::Open(OpenError::TooMany) => ErrorKind::QuotaExceeded,
            StreamError::Open(OpenError::Purpose) => ErrorKind::InvalidInput,
            StreamError::Forked => ErrorKind::Other,
        }
    }

    /// The error of a read or a write, which has `kind` where the peer disconnected.
    pub(super) fn of_data(self, kind: ErrorKind) -> Error {
        match self {
            StreamError::Disconnected => Error::new(kind, self),
            other => other.into(),
        }
    }
}

fn of_connection(error: &zerolane::Error) -> ErrorKind {
    match error {
        zerolane::Error::Io(error) => error.kind(),
        zerolane::Error::Closed(CloseReason::PeerDead) => ErrorKind::TimedOut,
        zerolane::Error::Closed(_) => ErrorKind::ConnectionReset,
        _ => ErrorKind::Other,
    }
}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Error {
        Error::new(error.kind(), error)
    }
}
