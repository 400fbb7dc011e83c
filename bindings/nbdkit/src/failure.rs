//! Describes why a call from nbdkit failed.

use zerolane_disk::initiator::Error;

const EIO: i32 = 5;
const EINVAL: i32 = 22;

/// The reason for nbdkit's log, and the error code for the client.
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

    /// A panic, with its message.
    pub(crate) fn bug(words: &str) -> Failure {
        Failure {
            words: format!("a bug in the plugin zerolane; please report it: {words}"),
            errno: EIO,
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
