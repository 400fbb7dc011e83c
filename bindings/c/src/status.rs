//! Converts errors to status codes, and keeps each thread's last error text.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::TryLockError;
use zerolane::Error;
use zerolane::failure::{CloseReason, PostError, Reason, Refused, TransferError};

/// The result of a function or a request. Negative values are failures; zl_last_error has the
/// details. The connection survives ZL_ERROR_ARGUMENT, ZL_ERROR_BUSY, ZL_ERROR_TOO_MANY and the
/// failures of a single request: ZL_ERROR_CANCELLED to ZL_ERROR_UNKNOWN, ZL_ERROR_TIMED_OUT,
/// ZL_ERROR_FINISHED, ZL_ERROR_RESET. Later versions may add codes.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum zl_status {
    /// Success.
    ZL_OK = 0,
    /// Nothing happened in the given time. Not a failure.
    ZL_TIMEOUT = 1,
    /// There is more to do: do not sleep. Not a failure.
    ZL_READY = 2,
    /// The wait was ended by zl_wake or zl_worker_wake. Not a failure.
    ZL_WOKEN = 3,
    /// A null pointer, a value out of range, or a text that is not UTF-8.
    ZL_ERROR_ARGUMENT = -1,
    /// Another thread uses the handle, or its requests are not over (zl_release).
    ZL_ERROR_BUSY = -2,
    /// The operating system refused.
    ZL_ERROR_SYSTEM = -3,
    /// The host is unknown, or has no address.
    ZL_ERROR_NO_ADDRESS = -4,
    /// No answer came within the connect timeout.
    ZL_ERROR_CONNECT_TIMEOUT = -5,
    /// The peer rejected the connection.
    ZL_ERROR_REJECTED = -6,
    /// This end or the peer closed the connection; or this process is a child of fork and the
    /// handle belongs to its parent.
    ZL_ERROR_CLOSED = -7,
    /// The peer stopped answering, or nothing listens there.
    ZL_ERROR_PEER_DEAD = -8,
    /// The peer violated the protocol.
    ZL_ERROR_PROTOCOL = -9,
    /// Strict mode: payload would have been copied in user space.
    ZL_ERROR_STRICT = -10,
    /// The connection has as many requests in flight, or as many regions exported, as it may
    /// have.
    ZL_ERROR_TOO_MANY = -11,
    /// This end cancelled the request.
    ZL_ERROR_CANCELLED = -12,
    /// The message is larger than its receive.
    ZL_ERROR_TOO_LARGE = -13,
    /// The peer cancelled or refused the request.
    ZL_ERROR_REFUSED = -14,
    /// Memory could not be accessed: a mapped file shrank.
    ZL_ERROR_MEMORY = -15,
    /// The request exceeds the peer's memory.
    ZL_ERROR_OUT_OF_BOUNDS = -16,
    /// The peer exported the memory without the necessary right.
    ZL_ERROR_DENIED = -17,
    /// The owner revoked the memory.
    ZL_ERROR_REVOKED = -18,
    /// The peer exports no memory of that name or key on this connection.
    ZL_ERROR_UNKNOWN = -19,
    /// The peer's key is not trusted (zl_options_trust).
    ZL_ERROR_UNTRUSTED = -20,
    /// The call took longer than zl_set_timeout allows. Its request was cancelled; the peer may
    /// have seen it.
    ZL_ERROR_TIMED_OUT = -21,
    /// The peer finished sending and nothing more comes; or this end finished and cannot send.
    ZL_ERROR_FINISHED = -22,
    /// Only short packets reach the peer, not those of 576 bytes over IPv4 (1280 otherwise).
    ZL_ERROR_PATH_TOO_NARROW = -23,
    /// An end reset the stream, or the peer refused it; zl_last_error has its words.
    ZL_ERROR_RESET = -24,
    /// A bug in this library. The handle can only be freed.
    ZL_ERROR_INTERNAL = -99,
}

use zl_status::*;

impl zl_status {
    const fn text(self) -> &'static CStr {
        match self {
            ZL_OK => c"done",
            ZL_TIMEOUT => c"nothing happened in time",
            ZL_READY => c"there is something to do",
            ZL_WOKEN => c"woken",
            ZL_ERROR_ARGUMENT => c"bad argument",
            ZL_ERROR_BUSY => c"in use",
            ZL_ERROR_SYSTEM => c"the operating system refused",
            ZL_ERROR_NO_ADDRESS => c"no such address",
            ZL_ERROR_CONNECT_TIMEOUT => c"no answer while connecting",
            ZL_ERROR_REJECTED => c"connection rejected",
            ZL_ERROR_CLOSED => c"connection closed",
            ZL_ERROR_PEER_DEAD => c"the peer stopped answering, or nothing listens there",
            ZL_ERROR_PROTOCOL => c"the peer broke the protocol",
            ZL_ERROR_STRICT => c"strict mode: a copy in user space would have been needed",
            ZL_ERROR_TOO_MANY => c"too many requests are in flight",
            ZL_ERROR_CANCELLED => c"cancelled",
            ZL_ERROR_TOO_LARGE => c"message too large for the receive",
            ZL_ERROR_REFUSED => c"refused by the peer",
            ZL_ERROR_MEMORY => c"memory could not be accessed",
            ZL_ERROR_OUT_OF_BOUNDS => c"outside the peer's memory",
            ZL_ERROR_DENIED => c"no right to access the memory that way",
            ZL_ERROR_REVOKED => c"the memory was revoked",
            ZL_ERROR_UNKNOWN => c"no such memory",
            ZL_ERROR_UNTRUSTED => c"the peer is not trusted",
            ZL_ERROR_TIMED_OUT => c"timed out",
            ZL_ERROR_FINISHED => c"sending is finished",
            ZL_ERROR_PATH_TOO_NARROW => c"only short packets reach the peer",
            ZL_ERROR_RESET => c"the stream was reset",
            ZL_ERROR_INTERNAL => c"internal error",
        }
    }

    const ALL: [zl_status; 29] = [
        ZL_OK,
        ZL_TIMEOUT,
        ZL_READY,
        ZL_WOKEN,
        ZL_ERROR_ARGUMENT,
        ZL_ERROR_BUSY,
        ZL_ERROR_SYSTEM,
        ZL_ERROR_NO_ADDRESS,
        ZL_ERROR_CONNECT_TIMEOUT,
        ZL_ERROR_REJECTED,
        ZL_ERROR_CLOSED,
        ZL_ERROR_PEER_DEAD,
        ZL_ERROR_PROTOCOL,
        ZL_ERROR_STRICT,
        ZL_ERROR_TOO_MANY,
        ZL_ERROR_CANCELLED,
        ZL_ERROR_TOO_LARGE,
        ZL_ERROR_REFUSED,
        ZL_ERROR_MEMORY,
        ZL_ERROR_OUT_OF_BOUNDS,
        ZL_ERROR_DENIED,
        ZL_ERROR_REVOKED,
        ZL_ERROR_UNKNOWN,
        ZL_ERROR_UNTRUSTED,
        ZL_ERROR_TIMED_OUT,
        ZL_ERROR_FINISHED,
        ZL_ERROR_PATH_TOO_NARROW,
        ZL_ERROR_RESET,
        ZL_ERROR_INTERNAL,
    ];
}

/// The reason why a call failed, for C.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    status: zl_status,
    text: String,
}

impl Failure {
    pub(crate) fn new(status: zl_status, text: impl Into<String>) -> Failure {
        let text = text.into();
        Failure { status, text }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(ZL_ERROR_ARGUMENT, text)
    }

    pub(crate) fn null(name: &str) -> Failure {
        Failure::argument(format!("{name} is null"))
    }
}

/// The status code of an error.
pub(crate) fn of_error(error: &Error) -> zl_status {
    match error {
        Error::Io(error) => of_system(error, ZL_ERROR_SYSTEM),
        Error::Address(error) => of_system(error, ZL_ERROR_NO_ADDRESS),
        Error::NoAddress => ZL_ERROR_NO_ADDRESS,
        Error::ConnectTimeout(_) => ZL_ERROR_CONNECT_TIMEOUT,
        Error::TimedOut(_) => ZL_ERROR_TIMED_OUT,
        Error::Closed(reason) => of_close(*reason),
        Error::Forked => ZL_ERROR_CLOSED,
        Error::InUse => ZL_ERROR_BUSY,
        Error::Transfer(error) => of_transfer(*error),
        Error::Post(error) => of_post(*error),
        Error::NotInline { .. }
        | Error::NameLength { .. }
        | Error::NulInName { .. }
        | Error::PrivateData(_) => ZL_ERROR_ARGUMENT,
        Error::Strict { .. } => ZL_ERROR_STRICT,
        _ => ZL_ERROR_INTERNAL,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(of_error(&error), error.to_string())
    }
}

/// The reason for which a connection ended.
impl From<Error> for zl_status {
    fn from(reason: Error) -> zl_status {
        of_error(&reason)
    }
}

/// Drops the refused memory: C only names memory, and keeps it.
impl<M> From<Refused<M>> for Failure {
    fn from(refused: Refused<M>) -> Failure {
        refused.error.into()
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let status = of_system(&error, ZL_ERROR_SYSTEM);
        Failure::new(status, error.to_string())
    }
}

/// `ZL_ERROR_ARGUMENT` if the library itself refused an argument, otherwise `other`.
fn of_system(error: &io::Error, other: zl_status) -> zl_status {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::InvalidInput, None) => ZL_ERROR_ARGUMENT,
        _ => other,
    }
}

fn of_post(error: PostError) -> zl_status {
    match error {
        PostError::Closed | PostError::Forked => ZL_ERROR_CLOSED,
        PostError::Finished => ZL_ERROR_FINISHED,
        PostError::Full | PostError::TooManyExports => ZL_ERROR_TOO_MANY,
        PostError::OutOfBounds => ZL_ERROR_OUT_OF_BOUNDS,
        PostError::Denied => ZL_ERROR_DENIED,
        PostError::Unsupported | PostError::NoDatagrams => ZL_ERROR_REFUSED,
        PostError::NameTaken
        | PostError::NumberTaken
        | PostError::Misaligned
        | PostError::ControlTooLong
        | PostError::NoPieces
        | PostError::DatagramLength
        | PostError::TooLong => ZL_ERROR_ARGUMENT,
    }
}

pub(crate) fn of_transfer(error: TransferError) -> zl_status {
    match error {
        TransferError::Cancelled => ZL_ERROR_CANCELLED,
        TransferError::Finished => ZL_ERROR_FINISHED,
        TransferError::MessageTooLarge { .. } => ZL_ERROR_TOO_LARGE,
        TransferError::Refused(Reason::MemoryFault) => ZL_ERROR_MEMORY,
        TransferError::Refused(Reason::OutOfBounds) => ZL_ERROR_OUT_OF_BOUNDS,
        TransferError::Refused(Reason::Denied) => ZL_ERROR_DENIED,
        TransferError::Refused(Reason::Revoked) => ZL_ERROR_REVOKED,
        TransferError::Refused(Reason::Unknown) => ZL_ERROR_UNKNOWN,
        TransferError::Refused(_) => ZL_ERROR_REFUSED,
        TransferError::Closed(reason) => of_close(reason),
    }
}

fn of_close(reason: CloseReason) -> zl_status {
    match reason {
        CloseReason::Local | CloseReason::Peer(_) => ZL_ERROR_CLOSED,
        CloseReason::Rejected { .. } | CloseReason::ExchangeRefused(_) => ZL_ERROR_REJECTED,
        CloseReason::Untrusted(_) => ZL_ERROR_UNTRUSTED,
        CloseReason::ConnectTimeout => ZL_ERROR_CONNECT_TIMEOUT,
        CloseReason::PeerDead | CloseReason::Unreachable => ZL_ERROR_PEER_DEAD,
        CloseReason::PathTooNarrow { .. } => ZL_ERROR_PATH_TOO_NARROW,
        CloseReason::Violation => ZL_ERROR_PROTOCOL,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(text: String) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no place for the text.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Runs the body of a function: turns a failure into a code and the thread's text, and catches a panic.
pub(crate) fn guard(body: impl FnOnce() -> Result<zl_status, Failure>) -> zl_status {
    // State that a panic left inconsistent is behind a poisoned lock, and is not used again.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(ZL_ERROR_INTERNAL, "a panic was caught; please report it"),
    };
    remember(failure.text);
    failure.status
}

/// Describes the last failed call of this thread, in a sentence with details. Empty if no call
/// failed. Valid until the thread's next failure.
///
/// Threads: any; each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn zl_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// Describes `status` in a few words. Never null; the text is static.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn zl_status_text(status: i32) -> *const c_char {
    let known = zl_status::ALL.iter().find(|it| **it as i32 == status);
    known
        .map_or(c"unknown status", |status| status.text())
        .as_ptr()
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;

/// The failure of a call that did not get the lock.
pub(crate) fn refused<T>(error: TryLockError<T>) -> Failure {
    match error {
        TryLockError::WouldBlock => {
            Failure::new(zl_status::ZL_ERROR_BUSY, "another thread is using it")
        }
        TryLockError::Poisoned(_) => {
            Failure::new(zl_status::ZL_ERROR_INTERNAL, "an earlier call panicked")
        }
    }
}
