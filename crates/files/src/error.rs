//! What can go wrong: with one file ([`Cause`], [`Failure`]; the copy goes on), or with the whole
//! copy ([`Error`]).

use crate::escape::escape;
use crate::limits::{FILE_PROTOCOL_VERSION, REPORT_PATH_BYTES};
use crate::location::Host;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why one file was not copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// The operating system denies access.
    #[error("permission denied")]
    PermissionDenied,
    /// A directory stands where a file is to be written, or was asked for without `-r`.
    #[error("is a directory")]
    IsADirectory,
    /// Something else stands where a directory is needed.
    #[error("is not a directory")]
    NotADirectory,
    /// The target file has no write permission for any user, or its file system is read-only.
    #[error("the target is read-only")]
    ReadOnly,
    /// Another copy writes the same target at the moment.
    #[error("is being written by another copy")]
    Busy,
    /// The disk (or the quota) is full.
    #[error("no space left on the target's disk")]
    NoSpace,
    /// The source was truncated, grew or was written to while it was read.
    #[error("the source changed while it was read")]
    SourceChanged,
    /// What arrived is not what was read: the target was not replaced.
    #[error("the digest of what arrived differs from that of what was read")]
    DigestMismatch,
    /// The path is absolute, has a `..`, or goes through a symbolic link.
    #[error("the path leads outside the served directory (absolute, '..' or a symbolic link)")]
    OutsideRoot,
    /// The name is empty, too long, or has a NUL or a `/`.
    #[error("not a valid name")]
    InvalidName,
    /// A device, socket or FIFO: skipped.
    #[error("is a device, socket or FIFO: skipped")]
    Special,
    /// Directories nest deeper than [`TREE_DEPTH`](crate::limits::TREE_DEPTH).
    #[error("directories nest too deeply")]
    TooDeep,
    /// The directory it belongs in could not be made.
    #[error("its directory could not be made")]
    NoDirectory,
    /// Any other error of the operating system, by its number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// The temporary file was removed or replaced while it was written; what replaced it stays.
    #[error("another program removed or replaced its temporary file: copy it again")]
    TemporaryLost,
    /// Files that are not this program's have all [names](crate::limits::TEMPORARY_NAMES) that its
    /// temporary file may have.
    #[error("other files have all names of its temporary file (.NAME.*.zlpart): move them away")]
    TemporaryTaken,
    /// A device, socket, FIFO, or an open file of a process, named as the target.
    #[error("is no file or directory: copy to a file, then write that there")]
    NotAFile,
    /// A symbolic link, named as the target, without anything at its end.
    #[error("is a symbolic link that leads nowhere: remove it, or make what it leads to")]
    LinkToNothing,
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Cause {
        match errno {
            Errno::NOENT => Cause::NotFound,
            Errno::ACCESS | Errno::PERM => Cause::PermissionDenied,
            Errno::ISDIR => Cause::IsADirectory,
            Errno::NOTDIR => Cause::NotADirectory,
            Errno::ROFS => Cause::ReadOnly,
            Errno::NOSPC | Errno::DQUOT => Cause::NoSpace,
            Errno::XDEV | Errno::LOOP => Cause::OutsideRoot,
            Errno::NAMETOOLONG => Cause::InvalidName,
            other => Cause::Os(other.raw_os_error()),
        }
    }
}

/// One file that was not copied, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The path below the copy's target or source, as bytes. The front of a path longer than
    /// [`REPORT_PATH_BYTES`] is cut off.
    pub path: Vec<u8>,
    /// Why.
    pub cause: Cause,
}

impl Failure {
    pub(crate) fn new(path: &[u8], cause: Cause) -> Failure {
        let start = path.len().saturating_sub(REPORT_PATH_BYTES);
        Failure {
            path: path[start..].to_vec(),
            cause,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", escape(&self.path), self.cause)
    }
}

/// Why a server does not carry out a request at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It serves read-only.
    #[error("the server is read-only")]
    ReadOnly,
    /// It has as many connections as it may have.
    #[error("the server has all the connections it may have: try again later")]
    Full,
    /// The path asked for.
    #[error("{}: {cause}", escape(.path))]
    Path {
        /// As asked for.
        path: Vec<u8>,
        /// What is wrong with it.
        cause: Cause,
    },
    /// The request could not be understood.
    #[error("the server does not understand the request")]
    Malformed,
    /// The client's key has no rights here, or only below a directory that is not there.
    #[error("the server does not allow that")]
    NotAllowed,
}

/// Why a whole copy or listing ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no answer from the address, or what answers is not Zerolane.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// The server that was asked.
        host: Host,
        /// What the transport says.
        source: zerolane::Error,
    },
    /// The peer speaks Zerolane but not its file service.
    #[error("the peer is not a Zerolane file service")]
    NotFileService,
    /// The peer speaks another version of the file service.
    #[error(
        "the peer speaks version {peer} of the file service, this program version {FILE_PROTOCOL_VERSION}"
    )]
    Version {
        /// The peer's version.
        peer: u16,
    },
    /// The server refused the request.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The local path that the copy starts from or goes to.
    #[error("{}: {cause}", escape(.path))]
    Local {
        /// The path.
        path: Vec<u8>,
        /// What is wrong with it.
        cause: Cause,
    },
    /// The peer sent what the protocol does not allow here.
    #[error("the peer broke the file service's protocol: {0}")]
    Protocol(&'static str),
    /// The connection failed: the peer died, or the network did.
    #[error("the connection was lost: {0}")]
    Transport(#[from] zerolane::Error),
    /// The other end gave up or went away before the copy was complete.
    #[error("the peer ended the copy early")]
    PeerGone,
    /// The peer is alive but takes nothing, or says nothing, for longer than it may.
    #[error("the peer is alive but has stopped taking part")]
    Stalled,
    /// The request is longer than a message may be.
    #[error("the request is too long: too many or too long paths")]
    TooLong,
    /// The system gives no memory for buffers.
    #[error("the system gives no more memory")]
    NoMemory,
    /// The system gives no random bytes.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// The system gives no thread.
    #[error("the system gives no more threads")]
    NoThread,
    /// A defect of this program.
    #[error("internal error")]
    Internal,
    /// Wrong codes were tried so often that the one-time code is void.
    #[error("wrong codes were tried too often: the code is void")]
    CodeGuessed,
    /// The copy was told to stop.
    #[error("stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn local(path: &std::path::Path, cause: impl Into<Cause>) -> Error {
        use std::os::unix::ffi::OsStrExt;
        Error::Local {
            path: path.as_os_str().as_bytes().to_vec(),
            cause: cause.into(),
        }
    }
}
