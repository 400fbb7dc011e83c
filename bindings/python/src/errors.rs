//! Converts errors to the exceptions of `zerolane._errors`.

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::io::ErrorKind;
use zerolane::Error;
use zerolane::failure::{CloseReason, PostError, Reason, TransferError};
use zerolane_streams::StreamError;
use zerolane_streams::engine::OpenError;
use zerolane_streams::session::Failure;

/// Makes an exception of the package, by name.
pub(crate) fn exception(py: Python<'_>, name: &str, text: String) -> PyErr {
    let made = py
        .import("zerolane._errors")
        .and_then(|module| module.getattr(name))
        .and_then(|class| class.call1((text,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception of a failed call.
pub(crate) fn of(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    if let Error::Io(error) = &error
        && let Some(why) = StreamError::of(error)
    {
        return of_stream(py, why, text);
    }
    let name = match error {
        // An error of the library, not of the system.
        Error::Io(error) | Error::Address(error) if error.raw_os_error().is_none() => {
            return match error.kind() {
                ErrorKind::InvalidInput => PyValueError::new_err(text),
                ErrorKind::OutOfMemory => PyMemoryError::new_err(text),
                _ => error.into(),
            };
        }
        Error::Io(error) | Error::Address(error) => return error.into(),
        Error::NoAddress => return PyOSError::new_err(text),
        Error::ConnectTimeout(_) => "ConnectTimeout",
        Error::Closed(reason) => of_close(reason),
        Error::Forked => "Closed",
        Error::TimedOut(_) => "TimedOut",
        Error::Transfer(error) => of_transfer(error),
        Error::Post(PostError::Closed | PostError::Forked) => "Closed",
        Error::Post(PostError::Finished) => "Finished",
        Error::Post(PostError::Full | PostError::TooManyExports) => "QueueFull",
        Error::Post(PostError::OutOfBounds) => "OutOfBounds",
        Error::Post(PostError::Denied) => "Denied",
        Error::Post(PostError::Unsupported | PostError::NoDatagrams) => "Refused",
        Error::Post(
            PostError::NameTaken
            | PostError::NumberTaken
            | PostError::Misaligned
            | PostError::ControlTooLong
            | PostError::NoPieces
            | PostError::DatagramLength
            | PostError::TooLong,
        )
        | Error::InUse
        | Error::NotInline { .. }
        | Error::NameLength { .. }
        | Error::NulInName { .. }
        | Error::PrivateData(_) => return PyValueError::new_err(text),
        Error::Strict { .. } => "CopyRefused",
        _ => "Error",
    };
    exception(py, name, text)
}

/// The exception of a stream's call.
fn of_stream(py: Python<'_>, why: &StreamError, text: String) -> PyErr {
    let name = match why {
        StreamError::Reset(_) => "StreamReset",
        StreamError::Finished => "Finished",
        StreamError::Open(OpenError::TooMany) => "QueueFull",
        StreamError::Open(OpenError::Purpose) => return PyValueError::new_err(text),
        StreamError::Failed(failure) => match &**failure {
            Failure::Connection(Error::Closed(reason)) => of_close(*reason),
            Failure::Violation(_) => "ProtocolError",
            Failure::Connection(_) | Failure::Memory(_) => return PyOSError::new_err(text),
        },
        _ => "Closed",
    };
    exception(py, name, text)
}

/// The exception of a failed request.
pub(crate) fn of_request(py: Python<'_>, error: TransferError) -> PyErr {
    exception(py, of_transfer(error), error.to_string())
}

fn of_transfer(error: TransferError) -> &'static str {
    match error {
        TransferError::Cancelled => "Cancelled",
        TransferError::Finished => "Finished",
        TransferError::MessageTooLarge { .. } => "MessageTooLarge",
        TransferError::Refused(Reason::MemoryFault) => "MemoryFault",
        TransferError::Refused(Reason::OutOfBounds) => "OutOfBounds",
        TransferError::Refused(Reason::Denied) => "Denied",
        TransferError::Refused(Reason::Revoked) => "Revoked",
        TransferError::Refused(Reason::Unknown) => "UnknownRegion",
        TransferError::Refused(_) => "Refused",
        TransferError::Closed(reason) => of_close(reason),
    }
}

fn of_close(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Local | CloseReason::Peer(_) => "Closed",
        CloseReason::Rejected { .. } | CloseReason::ExchangeRefused(_) => "Rejected",
        CloseReason::Untrusted(_) => "Untrusted",
        CloseReason::ConnectTimeout => "ConnectTimeout",
        CloseReason::PeerDead | CloseReason::Unreachable => "PeerDead",
        CloseReason::PathTooNarrow { .. } => "PathTooNarrow",
        CloseReason::Violation => "ProtocolError",
    }
}
