//! Defines the errors with which a cast fails at this end.

use std::io;
use std::path::PathBuf;

use zerolane_cast::Fault;

/// Why a cast failed at this end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network refused.
    #[error(transparent)]
    Network(#[from] zerolane::Error),
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// The attempted action.
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// There is nothing to cast: the stream was empty.
    #[error("the stream was empty: nothing to cast")]
    Empty,
    /// The content cannot be cast.
    #[error(transparent)]
    Content(#[from] zerolane_cast::Mismatch),
    /// The source's content with this name changed after the cast began.
    #[error("the source changed while it was cast: {0}")]
    Changed(String),
    /// The written bytes at this place read back differently.
    #[error("{0}: the disk returned different bytes than were written")]
    Disk(String),
    /// The racks of the hosts are not known; the words say why.
    #[error("racks: {0}")]
    Racks(String),
    /// The target is there.
    #[error("{}: already exists (--force replaces it)", .0.display())]
    Exists(PathBuf),
    /// The path of one of the cast's own files beside the target holds something that another user could write to, or
    /// through.
    #[error(
        "{}: is a link, a FIFO, another user's file, or has other names. Remove it, or receive elsewhere (--to)",
        .0.display()
    )]
    InTheWay(PathBuf),
    /// The target cannot take this content.
    #[error("{0}")]
    Target(String),
    /// The target is being received into by another process.
    #[error("{}: another cast is received there", .0.display())]
    Busy(PathBuf),
    /// The source excluded this node.
    #[error("the source excluded this node: it {0}")]
    Dismissed(Fault),
    /// The source ended the cast.
    #[error("the source ended the cast: {0}")]
    Aborted(String),
    /// Chunks are lacking, and no node that can be reached has them.
    #[error(
        "no reachable node has the missing chunks ({lacking}): nothing arrived for {seconds} s"
    )]
    Stuck {
        /// How many; 0 if it is not known how many there are.
        lacking: u32,
        /// For how long.
        seconds: u64,
    },
    /// The command that reads the content failed.
    #[error("{0}")]
    Command(String),
    /// The user asked to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        |error| Error::Io { what, error }
    }
}
