//! Defines the errors with which a request fails.

use std::time::Duration;

use zerolane_block::sense::{Code, Key, Sense};

/// Why a request, or a queue, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There was no connection for as long as the queue is patient.
    #[error("no connection for {patience:?}: {last}")]
    Unreachable {
        /// How long it tried.
        patience: Duration,
        /// Why the last attempt failed.
        last: String,
    },
    /// The connection could not be made, at the first attempt.
    #[error(transparent)]
    Connecting(std::sync::Arc<zerolane::Error>),
    /// The target gave an answer that violates the protocol.
    #[error("the target does not speak this protocol: {0}")]
    Protocol(String),
    /// The command failed.
    #[error("{0}")]
    Sense(DisplaySense),
    /// Another initiator has reserved the unit.
    #[error("the unit is reserved by another initiator")]
    Reserved,
    /// It was repeated too often.
    #[error("repeated {0} times without an answer")]
    Repeated(u32),
    /// The connection broke, and it may be done or not: a comparison is not repeated.
    #[error("the connection broke, and it is unknown whether the command was executed")]
    InDoubt,
    /// Bytes that the disk has not, or that are no whole blocks.
    #[error("{bytes} bytes at {at}: not whole blocks of a disk of {capacity} bytes")]
    Range {
        /// Where.
        at: u64,
        /// How many.
        bytes: u64,
        /// Length of the disk, bytes.
        capacity: u64,
    },
    /// Memory whose address is not a multiple of 8.
    #[error("the memory is not aligned to 8 bytes")]
    Misaligned,
    /// Unflushed writes may be lost: the target's machine restarted, or the target restarted after one of its disks had
    /// failed, or with a disk in memory.
    #[error("the target restarted, and earlier writes that were not flushed may be lost")]
    Lost,
    /// After a reconnect, the unit is a different disk.
    #[error("a different disk than before: {found} instead of {known}")]
    OtherDisk {
        /// The earlier disk.
        known: String,
        /// The present disk.
        found: String,
    },
    /// The system refused.
    #[error("{0}")]
    System(String),
    /// A thread panicked as it drove the queue's connection: by a fault of the queue, or in a function that it was given.
    /// The queue has ended with all of its requests.
    #[error("a thread of the queue panicked (it said why on standard error)")]
    Panicked,
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed,
}

/// Error numbers that NBD knows: those of Linux.
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

impl Error {
    /// Combines the errors of two commands of one request. An error that names a block implies that the blocks before
    /// it are good; an error without a block does not.
    pub(super) fn and(self, other: Error) -> Error {
        match (self.of_medium(), other.of_medium()) {
            (Some(one), Some(two)) => {
                let both = one.information.zip(two.information);
                let information = both.map(|(one, two)| one.min(two));
                Error::Sense(DisplaySense(Sense { information, ..one }))
            }
            (Some(_), None) => other,
            (None, _) => self,
        }
    }

    fn of_medium(&self) -> Option<Sense> {
        match self {
            Error::Sense(DisplaySense(sense)) if sense.key == Key::MediumError => Some(*sense),
            _ => None,
        }
    }

    /// The matching error number: EPERM, EINVAL, ENOSPC or EIO.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Sense(DisplaySense(sense)) if sense.code == Code::SPACE_ALLOCATION_FAILED => {
                ENOSPC
            }
            Error::Sense(DisplaySense(sense)) if sense.key == Key::DataProtect => EPERM,
            Error::Reserved => EPERM,
            Error::Range { .. } => EINVAL,
            _ => EIO,
        }
    }
}

/// Formats sense data as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplaySense(pub Sense);

impl std::fmt::Display for DisplaySense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sense { key, code, .. } = self.0;
        match Code::ALL.iter().find(|(it, _)| *it == code) {
            Some((_, name)) => write!(f, "{name} ({key:?}, {code:?})")?,
            None => write!(f, "{key:?}, {code:?}")?,
        }
        match self.0.information {
            Some(at) => write!(f, ", at {at}"),
            None => Ok(()),
        }
    }
}

impl From<zerolane::Error> for Error {
    fn from(error: zerolane::Error) -> Error {
        Error::Connecting(std::sync::Arc::new(error))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Error__of_two_commands_names_no_block_behind_one_that_may_have_failed() {
        let medium = |block: Option<u64>| {
            let sense = Sense::new(Key::MediumError, Code::READ_ERROR);
            Error::Sense(DisplaySense(
                block.map_or(sense, |it| sense.with_information(it)),
            ))
        };
        let block = |error: Error| error.of_medium().map(|it| it.information);
        for (one, two, both) in [
            (Some(7), Some(9), Some(7)),
            (Some(9), Some(7), Some(7)),
            (Some(7), None, None),
            (None, Some(7), None),
        ] {
            assert_eq!(block(medium(one).and(medium(two))), Some(both));
        }
        for (one, two) in [
            (medium(Some(7)), Error::Reserved),
            (Error::Reserved, medium(Some(7))),
        ] {
            assert!(matches!(one.and(two), Error::Reserved));
        }
    }
}
