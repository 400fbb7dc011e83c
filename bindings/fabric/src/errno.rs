//! Turns errors into the codes of fi_errno(3), and panics into one of them.

use crate::libfabric::*;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use zerolane::Error;
use zerolane::failure::{CloseReason, PostError, Reason, TransferError};

/// A code of fi_errno(3), positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) u32);

pub(crate) type Outcome<T = ()> = Result<T, Errno>;

impl Errno {
    pub(crate) const AGAIN: Errno = Errno(FI_EAGAIN);
    pub(crate) const AVAIL: Errno = Errno(FI_EAVAIL);
    pub(crate) const BUSY: Errno = Errno(FI_EBUSY);
    pub(crate) const INVALID: Errno = Errno(FI_EINVAL);
    pub(crate) const NO_DATA: Errno = Errno(FI_ENODATA);
    pub(crate) const NO_MEMORY: Errno = Errno(FI_ENOMEM);
    pub(crate) const NO_SYSTEM: Errno = Errno(FI_ENOSYS);
    pub(crate) const NOT_CONNECTED: Errno = Errno(FI_ENOTCONN);
    pub(crate) const OTHER: Errno = Errno(FI_EOTHER);
    pub(crate) const STATE: Errno = Errno(FI_EOPBADSTATE);
    pub(crate) const TOO_SMALL: Errno = Errno(FI_ETOOSMALL);
    pub(crate) const UNSUPPORTED: Errno = Errno(FI_EOPNOTSUPP);

    fn negative(self) -> c_int {
        -(self.0 as c_int)
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        match error.raw_os_error() {
            Some(code) if code > 0 => Errno(code as u32),
            _ if error.kind() == std::io::ErrorKind::InvalidInput => Errno::INVALID,
            _ => Errno::OTHER,
        }
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error() as u32)
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::Io(error) | Error::Address(error) => error.into(),
            Error::Post(reason) => refused(reason),
            Error::Transfer(reason) => failed(reason).err,
            Error::Closed(_) => Errno::NOT_CONNECTED,
            Error::ConnectTimeout(_) | Error::TimedOut(_) => Errno(FI_ETIMEDOUT),
            Error::PrivateData(_) => Errno::INVALID,
            _ => Errno::OTHER,
        }
    }
}

fn refused(reason: PostError) -> Errno {
    match reason {
        PostError::Full => Errno::AGAIN,
        PostError::Closed | PostError::Finished => Errno::NOT_CONNECTED,
        PostError::TooManyExports => Errno(FI_ENOSPC),
        PostError::NumberTaken => Errno(FI_ENOKEY),
        PostError::Denied => Errno(FI_EACCES),
        PostError::Misaligned | PostError::OutOfBounds | PostError::TooLong => Errno::INVALID,
        _ => Errno::OTHER,
    }
}

/// Why an operation failed: the code of libfabric, and a number of the provider's own that [`text`] explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) err: Errno,
    pub(crate) detail: c_int,
}

const CANCELLED: c_int = 1;
const TOO_LARGE: c_int = 2;
const FINISHED: c_int = 3;
const LOCAL: c_int = 4;
const NO_ANSWER: c_int = 5;
const DEAD: c_int = 6;
const NARROW: c_int = 7;
const UNREACHABLE: c_int = 8;
const VIOLATION: c_int = 9;
const UNTRUSTED: c_int = 10;
const OTHER: c_int = 11;
/// The peer's program rejected the connection with fi_reject.
pub(crate) const REJECTED: c_int = 12;
/// Added to the code points of reasons that a peer gave for one operation.
const REFUSED: c_int = 100;
/// Added to those that it gave for a connection.
const ENDED: c_int = 200;

pub(crate) fn failed(reason: TransferError) -> Cause {
    let (err, detail) = match reason {
        TransferError::Cancelled => (FI_ECANCELED, CANCELLED),
        TransferError::MessageTooLarge { .. } => (FI_ETRUNC, TOO_LARGE),
        TransferError::Finished => (FI_ECANCELED, FINISHED),
        TransferError::Refused(reason) => {
            let err = match reason {
                Reason::MessageTooLarge => FI_ETRUNC,
                Reason::Cancelled => FI_ECANCELED,
                Reason::Unknown | Reason::Revoked => FI_ENOKEY,
                Reason::Denied => FI_EACCES,
                Reason::OutOfBounds => FI_EINVAL,
                Reason::MemoryFault => FI_EFAULT,
                _ => FI_EREMOTEIO,
            };
            (err, REFUSED + reason as c_int)
        }
        TransferError::Closed(reason) => return ended(reason),
    };
    let err = Errno(err);
    Cause { err, detail }
}

/// The same for a receive, which the end of its connection cancels.
pub(crate) fn not_received(reason: TransferError) -> Cause {
    let cause = failed(reason);
    match reason {
        TransferError::Closed(_) => Cause {
            err: Errno(FI_ECANCELED),
            ..cause
        },
        _ => cause,
    }
}

/// Why a connection ended, or was not made.
pub(crate) fn ended(reason: CloseReason) -> Cause {
    let (err, detail) = match reason {
        CloseReason::Local => (FI_ECANCELED, LOCAL),
        CloseReason::Peer(reason) => (FI_ECONNRESET, ENDED + reason as c_int),
        CloseReason::Rejected { reason, .. } | CloseReason::ExchangeRefused(reason) => {
            (FI_ECONNREFUSED, ENDED + reason as c_int)
        }
        CloseReason::Untrusted(_) => (FI_ECONNREFUSED, UNTRUSTED),
        CloseReason::ConnectTimeout => (FI_ETIMEDOUT, NO_ANSWER),
        CloseReason::PeerDead => (FI_ETIMEDOUT, DEAD),
        CloseReason::PathTooNarrow { .. } => (FI_ENETUNREACH, NARROW),
        CloseReason::Unreachable => (FI_ECONNREFUSED, UNREACHABLE),
        CloseReason::Violation => (FI_ECONNRESET, VIOLATION),
    };
    let err = Errno(err);
    Cause { err, detail }
}

pub(crate) fn of_error(error: &Error) -> Cause {
    match error {
        Error::Closed(reason) => ended(*reason),
        Error::ConnectTimeout(_) => ended(CloseReason::ConnectTimeout),
        _ => Cause {
            err: Errno(FI_ECONNRESET),
            detail: OTHER,
        },
    }
}

/// The text of a number of the provider's.
fn text(detail: c_int) -> String {
    let of_reason = |base: c_int| {
        let all = Reason::ALL;
        all.into_iter().find(|it| base + *it as c_int == detail)
    };
    let fixed = match detail {
        0 => "no error",
        CANCELLED => "cancelled",
        TOO_LARGE => "the message is longer than the receive",
        FINISHED => "the peer sends nothing more",
        LOCAL => "the connection was closed by this end",
        NO_ANSWER => {
            "no answer: is a rank listening there, with the same FI_ZEROLANE_SECURITY and FI_ZEROLANE_KEY?"
        }
        DEAD => "the peer stopped answering",
        NARROW => "the path carries only short packets: raise its MTU",
        UNREACHABLE => "nothing listens there",
        VIOLATION => "the peer broke the protocol",
        UNTRUSTED => "the peer's key is not trusted",
        OTHER => "the network failed",
        REJECTED => "rejected by the peer's program",
        _ => "",
    };
    if !fixed.is_empty() {
        return fixed.to_owned();
    }
    if let Some(reason) = of_reason(REFUSED) {
        return format!("refused by the peer: {}", reason.text());
    }
    match of_reason(ENDED) {
        Some(reason) => format!("the connection ended: {}", reason.text()),
        None => format!("unknown provider error {detail}"),
    }
}

/// Answers fi_cq_strerror and fi_eq_strerror. The text lives as long as the process.
///
/// # Safety
/// `buffer` is null or has room for `length` bytes.
pub(crate) unsafe fn explain(detail: c_int, buffer: *mut c_char, length: usize) -> *const c_char {
    /// Texts by number: there are as many as numbers that the provider gives, and one for all others.
    static TEXTS: OnceLock<Mutex<Vec<(c_int, &'static CStr)>>> = OnceLock::new();
    let texts = TEXTS.get_or_init(Mutex::default);
    let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
    let detail = if (0..1000).contains(&detail) {
        detail
    } else {
        -1
    };
    let known = texts.iter().find(|it| it.0 == detail).map(|it| it.1);
    let said = known.unwrap_or_else(|| {
        let made = CString::new(text(detail)).unwrap_or_default();
        let made: &'static CStr = Box::leak(made.into_boxed_c_str());
        texts.push((detail, made));
        made
    });
    if !buffer.is_null() && length > 0 {
        let bytes = said.to_bytes();
        let count = bytes.len().min(length - 1);
        // SAFETY: the caller's promise: `count` bytes and a zero fit.
        unsafe {
            buffer.copy_from_nonoverlapping(bytes.as_ptr().cast(), count);
            buffer.add(count).write(0);
        }
    }
    said.as_ptr()
}

/// The result of a call that C expects as `int`. No panic crosses into C.
pub(crate) fn status(call: impl FnOnce() -> Outcome) -> c_int {
    match caught(call) {
        Ok(()) => 0,
        Err(errno) => errno.negative(),
    }
}

/// The same for calls that return `ssize_t`.
pub(crate) fn size(call: impl FnOnce() -> Outcome<usize>) -> isize {
    match caught(call) {
        Ok(count) => count as isize,
        Err(errno) => errno.negative() as isize,
    }
}

/// The result of posting an operation.
pub(crate) fn posted(call: impl FnOnce() -> Outcome) -> isize {
    status(call) as isize
}

fn caught<T>(call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // Locks that a panic poisons are used on: each state is whole between calls of this library.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::OTHER))
}
