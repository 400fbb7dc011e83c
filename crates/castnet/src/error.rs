//! Why a cast failed at this end.

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
    /// Something of the system refused; the words say what.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// There is nothing to cast: a stream ended before anything came.
    #[error("there is nothing to cast: nothing came from the stream")]
    Empty,
    /// The content cannot be cast.
    #[error(transparent)]
    Content(#[from] zerolane_cast::Mismatch),
    /// The source's content, of this name, is not any more what it was when the cast began.
    #[error("the source changed while it was cast: {0}")]
    Changed(String),
    /// What was written, at this place, reads otherwise.
    #[error("{0}: the disk gave back other bytes than were written")]
    Disk(String),
    /// The racks of the hosts are not known; the words say why.
    #[error("racks: {0}")]
    Racks(String),
    /// The target is there.
    #[error("{}: is there already (--force replaces it)", .0.display())]
    Exists(PathBuf),
    /// What is in the way of a file of the cast's own, beside the target: another user could write to it, or through it.
    #[error(
        "{}: is in the way: it is a link, a FIFO, another user's, or has other names. Remove it, or receive elsewhere (--to)",
        .0.display()
    )]
    InTheWay(PathBuf),
    /// The target cannot take this content.
    #[error("{0}")]
    Target(String),
    /// The target is being received into by another process.
    #[error("{}: another cast is being received there", .0.display())]
    Busy(PathBuf),
    /// The source put this node out.
    #[error("the source put this node out: it {0}")]
    Dismissed(Fault),
    /// The source ended the cast.
    #[error("the source ended the cast: {0}")]
    Aborted(String),
    /// Chunks are lacking, and no node that can be reached has them.
    #[error(
        "{lacking} chunks are lacking, and nothing came for {seconds} s: no node in reach has them"
    )]
    Stuck {
        /// How many; 0 if it is not known how many there are.
        lacking: u32,
        /// For how long.
        seconds: u64,
    },
    /// The command that was to read the content failed.
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
