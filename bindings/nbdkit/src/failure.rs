//! Why a call of nbdkit's failed.

use zerolane_block::sense::{Code, Key};
use zerolane_disk::initiator::{Error, Wrong};

/// Errors that NBD knows.
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// Why something failed, for nbdkit's log, and for the client.
pub(crate) struct Failure {
    pub(crate) words: String,
    pub(crate) errno: i32,
}

impl Failure {
    pub(crate) fn usage(words: &str) -> Failure {
        Failure {
            words: words.to_owned(),
            errno: EINVAL,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let errno = match &error {
            Error::Sense(Wrong(sense)) if sense.code == Code::SPACE_ALLOCATION_FAILED => ENOSPC,
            Error::Sense(Wrong(sense)) if sense.key == Key::DataProtect => EPERM,
            Error::Reserved => EPERM,
            Error::Range { .. } => EINVAL,
            _ => EIO,
        };
        let words = error.to_string();
        Failure { words, errno }
    }
}
