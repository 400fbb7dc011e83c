//! Where sending starts.

use crate::error::Cause;
use rustix::fd::OwnedFd;

/// Where sending starts.
#[derive(Debug)]
pub(crate) enum Start {
    /// An entry of a directory, under its own name.
    Named {
        /// Where it is.
        directory: OwnedFd,
        /// What it is called, there and at the target.
        name: Vec<u8>,
    },
    /// The entries of a directory, without a directory around them.
    Contents(OwnedFd),
    /// Something that was asked for and cannot be had.
    Missing {
        /// As asked for.
        path: Vec<u8>,
        /// Why not.
        cause: Cause,
    },
}
