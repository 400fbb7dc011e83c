//! Defines the errors of this library, with messages that a user can act on.

use crate::id::RequestId;
use std::time::Duration;
use std::{fmt, io};
use zerolane_lane::limits::MAX_INLINE;
use zerolane_lane::{CloseReason, DriverError, PostError, PublicKey, TransferError};
use zerolane_wire::PrivateDataTooLong;

/// Why a call failed. The connection stays open after [`Error::Transfer`], [`Error::Post`] and invalid arguments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused, or an argument is invalid (`InvalidInput`) or asks for more memory than there is
    /// (`OutOfMemory`).
    #[error("{}", of_system(.0))]
    Io(#[from] io::Error),
    /// The argument is no address (`InvalidInput`), or names an unknown host.
    #[error("address: {0}")]
    Address(io::Error),
    /// The name has no address.
    #[error("no address to connect to or listen on")]
    NoAddress,
    /// No answer came within the connect timeout.
    #[error(
        "no answer within {0:?}: is a Zerolane endpoint listening there, and does UDP get through?"
    )]
    ConnectTimeout(Duration),
    /// The connection ended.
    #[error("connection: {}", in_words(*.0))]
    Closed(CloseReason),
    /// This request failed; the connection stays open.
    #[error("request failed: {0}")]
    Transfer(#[from] TransferError),
    /// The request was refused before anything of it was done.
    #[error("request refused: {0}")]
    Post(PostError),
    /// The call took longer than [`Connection::set_timeout`](crate::Connection::set_timeout) allows. Its request was
    /// cancelled; the peer may or may not have seen it.
    #[error(
        "not complete after {0:?}: the peer may be busy, or may have posted no matching request"
    )]
    TimedOut(Duration),
    /// More than [`MAX_INLINE`](crate::request::MAX_INLINE) bytes cannot be posted inline.
    #[error("cannot post {len} bytes inline: at most {}", MAX_INLINE)]
    NotInline {
        /// Bytes.
        len: usize,
    },
    /// The name of a region is empty, or has more than 32 bytes.
    #[error("a region's name has 1 to 32 bytes, not {len}")]
    NameLength {
        /// Bytes.
        len: usize,
    },
    /// The name of a region has a NUL byte.
    #[error("a region's name has no NUL, as byte {at} of this one is")]
    NulInName {
        /// Where, from 0.
        at: usize,
    },
    /// The private data is too long.
    #[error(transparent)]
    PrivateData(#[from] PrivateDataTooLong),
    /// Strict mode: payload would have had to be copied in user space.
    #[error("strict mode: {bytes} bytes would have been copied in user space")]
    Strict {
        /// Bytes to be copied.
        bytes: usize,
    },
    /// The completion has no region: [`Completion::into_region`](crate::Completion::into_region).
    #[error(
        "the request gives back no region: its memory is still shared, a mapped file, in several pieces, or it had none"
    )]
    NoRegion,
    /// Requests of a handle are not over, or would lose received data that was not asked for.
    #[error("the connection has pending requests, or received data that was not taken")]
    InUse,
    /// This process is a forked child, and the object (a connection, an endpoint, a worker, a queue, memory to export)
    /// belongs to its parent.
    #[error(
        "the object belongs to the parent process: after a fork, the child must create its own"
    )]
    Forked,
}

impl Error {
    /// A copy, for another waiter.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Closed(reason) => Error::Closed(*reason),
            Error::ConnectTimeout(timeout) => Error::ConnectTimeout(*timeout),
            Error::Strict { bytes } => Error::Strict { bytes: *bytes },
            Error::Io(error) => Error::Io(io::Error::new(error.kind(), error.to_string())),
            other => Error::Io(io::Error::other(other.to_string())),
        }
    }
}

/// The request was refused; the connection stays open.
impl From<PostError> for Error {
    fn from(error: PostError) -> Error {
        match error {
            PostError::Forked => Error::Forked,
            error => Error::Post(error),
        }
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Error {
        match error {
            DriverError::Io(error) => Error::Io(error),
            DriverError::Strict { bytes } => Error::Strict { bytes },
            DriverError::Closed(reason) => Error::Closed(reason),
            DriverError::TimedOut(timeout) => Error::TimedOut(timeout),
            DriverError::Post(error) => error.into(),
            DriverError::Forked => Error::Forked,
        }
    }
}

/// Wraps this error, for programs whose own calls return [`io::Error`].
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Io(it) | Error::Address(it) => it.kind(),
            Error::NoAddress
            | Error::NotInline { .. }
            | Error::NameLength { .. }
            | Error::NulInName { .. }
            | Error::PrivateData(_) => io::ErrorKind::InvalidInput,
            Error::ConnectTimeout(_)
            | Error::TimedOut(_)
            | Error::Closed(CloseReason::ConnectTimeout | CloseReason::PeerDead) => {
                io::ErrorKind::TimedOut
            }
            Error::Closed(CloseReason::Local) => io::ErrorKind::NotConnected,
            Error::Closed(CloseReason::Rejected { .. }) => io::ErrorKind::ConnectionRefused,
            Error::Closed(_) => io::ErrorKind::ConnectionReset,
            Error::Post(PostError::Full | PostError::TooManyExports) => io::ErrorKind::WouldBlock,
            Error::InUse => io::ErrorKind::ResourceBusy,
            Error::Transfer(_)
            | Error::Post(_)
            | Error::Strict { .. }
            | Error::NoRegion
            | Error::Forked => io::ErrorKind::Other,
        };
        match error {
            Error::Io(error) | Error::Address(error) => error,
            error => io::Error::new(kind, error),
        }
    }
}

/// A request that was not posted: the reason, and its memory, unchanged.
///
/// [`PostError::Full`] is normal: the connection has as many requests as it takes. Make progress, and post the same
/// memory again.
#[derive(Debug)]
pub struct Refused<M> {
    /// The reason.
    pub error: Error,
    /// The memory of the request.
    pub memory: M,
}

impl<M> fmt::Display for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M: fmt::Debug> std::error::Error for Refused<M> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Drops the memory.
impl<M> From<Refused<M>> for Error {
    fn from(refused: Refused<M>) -> Error {
        refused.error
    }
}

/// The result of calls into this library.
pub type Result<T> = std::result::Result<T, Error>;

/// The result of posting a request: its identifier, or the reason for the refusal and the memory. With `?` the refusal
/// becomes an [`Error`].
///
/// ```
/// # use zerolane::failure::{PostError, Refused};
/// # use zerolane::{Connection, Endpoint, Error, Options, Region};
/// # let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
/// # let address = endpoint.local_addr();
/// # let peer = std::thread::spawn(move || -> zerolane::Result<()> {
/// #     let mut connection = endpoint.accept(None)?.expect("no timeout");
/// #     for _ in 0..5000 {
/// #         connection.recv_into(&mut [0; 8])?;
/// #     }
/// #     connection.close()
/// # });
/// let mut connection = Connection::connect(address, &Options::default())?;
/// let mut waiting: Vec<Region> = (0..5000).map(|_| Region::from_vec(vec![7; 8])).collect();
/// while let Some(region) = waiting.pop() {
///     match connection.post_send(region) {
///         Ok(_) => {}
///         // Enough is in flight: the memory comes back, to be posted when something is done.
///         Err(Refused { error: Error::Post(PostError::Full), memory }) => {
///             waiting.extend(memory.into_region());
///             connection.wait(None)?;
///         }
///         Err(refused) => return Err(refused.into()),
///     }
/// }
/// connection.close()?;
/// # peer.join().unwrap()?;
/// # Ok::<(), zerolane::Error>(())
/// ```
pub type Posted<M> = std::result::Result<RequestId, Refused<M>>;

/// Adds "network" to errors of the system; errors of this library are complete.
fn of_system(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => format!("network: {error}"),
        None => error.to_string(),
    }
}

/// Writes an untrusted peer's key as users write keys.
fn in_words(reason: CloseReason) -> String {
    match reason {
        CloseReason::Untrusted(key) => {
            format!("the peer's key is {}, which is not trusted", PublicKey(key))
        }
        reason => reason.to_string(),
    }
}
