//! Errors, with messages that a user can act on.

use std::io;
use std::time::Duration;
use zerolane_lane::{
    CloseReason, DriverError, NotPosted, PostError, PublicKey, TransferError, TransferId,
};

/// Why a call failed. The connection goes on after [`Error::Transfer`], [`Error::Post`] and what was
/// wrong with a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused, or an argument has no meaning (`InvalidInput`) or asks for more memory than there is
    /// (`OutOfMemory`), in words.
    #[error("{}", of_system(.0))]
    Io(#[from] io::Error),
    /// What was given is no address (`InvalidInput`), or names a host that is not known.
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
    /// This Transfer failed; the connection goes on.
    #[error("transfer: {0}")]
    Transfer(#[from] TransferError),
    /// The Transfer could not be posted.
    #[error("transfer: {0}")]
    Post(PostError),
    /// The call took longer than [`Connection::set_timeout`](crate::Connection::set_timeout) allows. Its request was
    /// cancelled; whether the peer saw it is not known.
    #[error("not done within {0:?}: the peer may be busy, or have posted nothing that it meets")]
    TimedOut(Duration),
    /// More than [`MAX_INLINE`](crate::request::MAX_INLINE) bytes cannot be posted inline.
    #[error("{len} bytes are too many to be posted inline")]
    NotInline {
        /// Bytes.
        len: usize,
    },
    /// The name of a region has more than 32 bytes.
    #[error("a region's name has at most 32 bytes, not {len}")]
    NameTooLong {
        /// Bytes.
        len: usize,
    },
    /// Strict mode: payload would have had to be copied in user space.
    #[error("strict mode: {bytes} bytes would have been copied in user space")]
    Strict {
        /// Bytes to be copied.
        bytes: usize,
    },
    /// What a handle asked for is not over, or came and was not asked for, and would be lost.
    #[error("the connection has requests that are not over, or that came and were not asked for")]
    InUse,
    /// This process is a child, by fork, of the one that made what the call is of: a connection, an endpoint, a worker, a
    /// queue, memory to export.
    #[error("it belongs to the parent process: after a fork the child makes its own")]
    Forked,
}

/// The request is refused, and the connection goes on.
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

/// For programs whose own calls return [`io::Error`]; it holds this error.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Io(it) | Error::Address(it) => it.kind(),
            Error::NoAddress | Error::NotInline { .. } | Error::NameTooLong { .. } => {
                io::ErrorKind::InvalidInput
            }
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
            Error::Transfer(_) | Error::Post(_) | Error::Strict { .. } | Error::Forked => {
                io::ErrorKind::Other
            }
        };
        match error {
            Error::Io(error) | Error::Address(error) => error,
            error => io::Error::new(kind, error),
        }
    }
}

/// Without the memory, which is dropped.
impl<M> From<NotPosted<M>> for Error {
    fn from(refused: NotPosted<M>) -> Error {
        refused.reason.into()
    }
}

/// The result of calls of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// What posting memory returns: the request's number, or the memory again and why. With `?` it becomes
/// an [`Error::Post`].
///
/// ```
/// # use zerolane::failure::{NotPosted, PostError};
/// # use zerolane::{Connection, Endpoint, Options, Region};
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
///         Err(NotPosted { reason: PostError::Full, memory }) => {
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
pub type Posted<M> = std::result::Result<TransferId, NotPosted<M>>;

/// What the system says is about the network, and what this library says is whole.
fn of_system(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => format!("network: {error}"),
        None => error.to_string(),
    }
}

/// With the key of a peer that is not trusted, as users write keys.
fn in_words(reason: CloseReason) -> String {
    match reason {
        CloseReason::Untrusted(key) => {
            format!("the peer's key is {}, which is not trusted", PublicKey(key))
        }
        reason => reason.to_string(),
    }
}
