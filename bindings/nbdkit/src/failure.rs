//! Why a call of nbdkit's failed.

use zerolane_disk::initiator::Error;

const EINVAL: i32 = 22;

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
        Failure {
            words: error.to_string(),
            errno: error.errno(),
        }
    }
}
