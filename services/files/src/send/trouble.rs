//! Defines what interrupts the sending of one file.

use crate::error::{Cause, Error};
use rustix::io::Errno;

/// Why the sending of one file was interrupted.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The whole copy ends.
    Copy(Error),
    /// This file fails; the next one is sent.
    File(Cause),
    /// The receiver has reported this file already.
    Refused,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Copy(error)
    }
}

impl From<Cause> for Trouble {
    fn from(cause: Cause) -> Trouble {
        Trouble::File(cause)
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Trouble {
        Trouble::File(errno.into())
    }
}
