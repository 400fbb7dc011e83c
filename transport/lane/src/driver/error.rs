//! Defines the errors that end a driver's calls.

use core::fmt;
use std::io;
use std::time::Duration;
use zerolane_core::{CloseReason, PostError};

/// Why a driver cannot continue.
#[derive(Debug)]
pub enum DriverError {
    /// A system call failed.
    Io(io::Error),
    /// Strict mode: payload would have had to be copied in user space.
    Strict {
        /// Bytes to be copied.
        bytes: usize,
    },
    /// The connection ended.
    Closed(CloseReason),
    /// The request took longer than [`Driver::set_request_timeout`](crate::driver::Driver::set_request_timeout) allows, and was
    /// cancelled.
    TimedOut(Duration),
    /// A Transfer could not be posted.
    Post(PostError),
    /// This process is a child, by fork, of the process that owns the connection.
    Forked,
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::Io(error) => write!(f, "network: {error}"),
            DriverError::Strict { bytes } => {
                write!(
                    f,
                    "strict mode: {bytes} bytes would have been copied in user space"
                )
            }
            DriverError::Closed(reason) => write!(f, "connection: {reason}"),
            DriverError::TimedOut(timeout) => write!(f, "not complete after {timeout:?}"),
            DriverError::Post(error) => error.fmt(f),
            DriverError::Forked => PostError::Forked.fmt(f),
        }
    }
}

impl std::error::Error for DriverError {}

impl From<io::Error> for DriverError {
    fn from(error: io::Error) -> DriverError {
        DriverError::Io(error)
    }
}

/// A request that was not posted, with the reason and the memory, which returns to the caller unchanged.
///
/// [`PostError::Full`] is normal: the connection has as many requests as it takes. Make progress, and post the same
/// memory again.
#[derive(Debug)]
pub struct NotPosted<M> {
    /// Why.
    pub reason: PostError,
    /// The memory given to the call.
    pub memory: M,
}

impl<M> fmt::Display for NotPosted<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<M: fmt::Debug> std::error::Error for NotPosted<M> {}

impl From<PostError> for DriverError {
    fn from(error: PostError) -> DriverError {
        DriverError::Post(error)
    }
}
