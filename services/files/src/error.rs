//! Defines errors: of one file ([`Cause`], [`Failure`]; the copy continues), of a filter ([`FilterError`]), or of the
//! whole copy ([`Error`]).

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
    /// The operating system denied access.
    #[error("permission denied")]
    PermissionDenied,
    /// A directory is in the place of the file.
    #[error("is a directory")]
    IsADirectory,
    /// Something else stands where a directory is needed.
    #[error("is not a directory")]
    NotADirectory,
    /// The target file has no write permission for any user, or its file system is read-only.
    #[error("the target is read-only")]
    ReadOnly,
    /// Another copy is writing the same target.
    #[error("another copy is writing it")]
    Busy,
    /// The disk (or the quota) is full.
    #[error("no space left on the target's disk")]
    NoSpace,
    /// The source was truncated, grew or was written to while it was read.
    #[error("the source changed while it was read")]
    SourceChanged,
    /// What arrived differs from what was read: the target was not replaced.
    #[error("the digest of the data that arrived differs from that of the data that was read")]
    DigestMismatch,
    /// The path is absolute, contains `..`, or goes through a symbolic link.
    #[error("the path leads outside the served directory (absolute, '..' or a symbolic link)")]
    OutsideRoot,
    /// The name is empty, too long, or contains a NUL or a `/`.
    #[error("not a valid name")]
    InvalidName,
    /// A device, socket or FIFO is in the place of the file.
    #[error("is a device, socket or FIFO")]
    Special,
    /// Directories nest deeper than [`TREE_DEPTH`](crate::limits::TREE_DEPTH).
    #[error("directories nest too deeply")]
    TooDeep,
    /// The directory that it belongs in could not be made.
    #[error("its directory could not be created")]
    NoDirectory,
    /// Any other error of the operating system, by its number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// The temporary file was removed or replaced while it was written; the replacement stays.
    #[error("another program removed or replaced its temporary file: copy it again")]
    TemporaryLost,
    /// All [names](crate::limits::TEMPORARY_NAMES) for the temporary file are taken by files of other programs.
    #[error("other files have all names of its temporary file (.NAME.*.zlpart): move them away")]
    TemporaryTaken,
    /// A device, socket, FIFO, or an open file of a process, named as the target.
    #[error("is neither a file nor a directory: copy to a file, then write that there")]
    NotAFile,
    /// A directory was requested, without [`recursive`](crate::CopyOptions::recursive).
    #[error("is a directory: use -r to include it and all that it contains")]
    NotRecursive,
    /// A dangling symbolic link, named as the target or to be followed.
    #[error("is a symbolic link to nothing: remove it, or create its target")]
    LinkToNothing,
    /// A directory with more names than [`LISTING_HELD_BYTES`](crate::limits::LISTING_HELD_BYTES) can hold.
    #[error("the directory has too many names to sort in memory: split it")]
    TooManyNames,
    /// The file or its content changed after it was examined: left as it is.
    #[error("changed since it was listed: run it again")]
    ChangedSinceListed,
    /// Its replacement did not arrive: left as it is.
    #[error("stays: its replacement did not arrive")]
    NoReplacement,
    /// A directory that is not empty is in the place of a file or link, and may not be deleted.
    #[error(
        "a directory stands in the way: empty it, or sync with --delete, without filters for it and within --max-delete"
    )]
    InTheWay,
    /// A copy in place was killed, or failed, while it wrote this file.
    #[error("is incomplete: a copy with --in-place ended early. Copy it again")]
    Unfinished,
    /// A file to be written in place, on a file system without extended attributes.
    #[error(
        "its file system lacks the extended attributes that --in-place needs: copy without --in-place"
    )]
    CannotMark,
    /// A mounted device, or a running program.
    #[error("is in use: unmount or stop it")]
    InUse,
    /// It was written to while parts of it were copied into the new file.
    #[error("the old file at the target changed meanwhile: copy it again")]
    TargetChanged,
    /// The name exists, and must not be replaced.
    #[error("already exists")]
    Exists,
    /// Two sources of one copy that would get the same name at the receiver.
    #[error("another source has the same name: copy it on its own")]
    SameName,
    /// A pattern that nothing matches.
    #[error("nothing matches this pattern")]
    NoMatch,
    /// A pattern that needs more than [`PATTERN_NAMES`](crate::limits::PATTERN_NAMES) names to be examined, or matches
    /// more than [`PATTERN_HELD_BYTES`](crate::limits::PATTERN_HELD_BYTES) can hold.
    #[error("too many names to search for this pattern: name a directory, or match less")]
    TooManyMatches,
    /// The served directory cannot be removed or renamed.
    #[error("is the served directory itself")]
    ServedDirectory,
    /// A directory cannot be moved or copied into itself.
    #[error("cannot be moved or copied into itself")]
    IntoItself,
    /// A rename from one file system to another.
    #[error("is on another file system than its new place: copy it, then remove it")]
    OtherFileSystem,
    /// Both names of a rename, or source and target of a copy, are the same file.
    #[error("source and target are the same file")]
    SameFile,
    /// A directory that contains itself through a symbolic link that is followed.
    #[error("is a symbolic link to a directory that contains it")]
    LinkLoop,
    /// The file was written, but belongs to another user or group than the source.
    #[error("its owner was not kept: only root may change the owner")]
    OwnerNotKept,
    /// The file was written, without this extended attribute.
    #[error("its extended attribute {} was not kept: the file system or the system refuses to set it", escape(.0))]
    AttributeNotKept(Vec<u8>),
    /// More extended attributes than [`ATTRIBUTES_OF_FILE`](crate::limits::ATTRIBUTES_OF_FILE), or more than
    /// [`ATTRIBUTES_BYTES`](crate::limits::ATTRIBUTES_BYTES) of them.
    #[error("has too many extended attributes: at most 256, of 128 KiB, are copied")]
    TooManyAttributes,
    /// A hard link to a file that failed, or that is no longer where it was written.
    #[error("is a hard link of a file that was not copied, or no longer exists: copy it again")]
    FirstNotThere,
    /// The system refused a hard link.
    #[error(
        "cannot be a hard link there (another file system, one without hard links, or too many of the file): copy \
         without -H"
    )]
    NoHardLink,
    /// More files with several names than [`LINKED_FILES`](crate::limits::LINKED_FILES), or longer paths than
    /// [`LINKED_PATHS_BYTES`](crate::limits::LINKED_PATHS_BYTES).
    #[error(
        "too many files with several names (at most 1,048,576, with 64 MiB of paths): copy a part of the tree at a time"
    )]
    TooManyLinked,
    /// The sender did not offer it.
    #[error("was not offered, so it was left out")]
    NotOffered,
    /// The file is larger than the file system, or the limit of the process, allows.
    #[error("is too large: a limit of the file system there, or of the process (ulimit -f)")]
    TooLarge,
    /// A device, socket or FIFO, named as a source.
    #[error(
        "is a device, socket or FIFO, not a file: to copy what a program reads from it, use `zerolane cp - HOST:FILE`"
    )]
    SpecialSource,
    /// The file was written, but its time is off by so many seconds: the file system cannot store the right one.
    #[error(
        "its time was not kept: the file system there cannot hold it, and is {0} s off. A sync considers the file changed each time, unless you give {remedy}",
        remedy = for_times(*.0)
    )]
    TimeNotKept(u64),
    /// The file's length is unknown until it is read, and exceeds [`UNSIZED_BYTES`](crate::limits::UNSIZED_BYTES).
    #[error(
        "the system does not report its length, and it is long: to copy what a program reads from it, use \
         `zerolane cp - HOST:FILE`"
    )]
    LengthNotKnown,
    /// It disappeared after its directory was read, or its tree compared.
    #[error("vanished before it was read")]
    Vanished,
    /// A filter file that is not a regular file, or is longer than
    /// [`FILTER_FILE_BYTES`](crate::limits::FILTER_FILE_BYTES).
    #[error(
        "cannot be read as a filter file (a link, or more than 64 KiB): its directory is left alone"
    )]
    FilterFile,
    /// A line of a filter file that is not a rule.
    #[error("line {0} is not a filter rule: its directory is left alone")]
    FilterRule(u32),
    /// The filter files of a directory and its parents are longer than
    /// [`FILTER_TEXT_BYTES`](crate::limits::FILTER_TEXT_BYTES), or their patterns are too complex.
    #[error(
        "too many filter rules, with those of the directories above: its directory is left alone"
    )]
    FilterTooLarge,
    /// No backup could be made of a file to be replaced or removed, because of this system error.
    #[error("is unchanged, because no backup of it could be made: {}", why_no_backup(*.0))]
    NoBackup(i32),
    /// The directory of backups is the file's own directory, and there is no suffix.
    #[error(
        "is unchanged, because its backup would have the same name: use another --backup-dir or --suffix"
    )]
    BackupIsItself,
}

/// The reason why a backup could not get its name.
fn why_no_backup(errno: i32) -> String {
    match Errno::from_raw_os_error(errno) {
        Errno::XDEV => "the backup directory is on another file system".into(),
        Errno::ISDIR => "a directory has the name of the backup".into(),
        Errno::NOTDIR | Errno::LOOP => {
            "a file or link has the name of the backup's directory".into()
        }
        Errno::NAMETOOLONG => "its name with the suffix would be too long".into(),
        _ => std::io::Error::from_raw_os_error(errno).to_string(),
    }
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
            Errno::FBIG => Cause::TooLarge,
            other => Cause::Os(other.raw_os_error()),
        }
    }
}

/// One file that was not copied, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The path below the copy's target or source, as bytes. A path longer than [`REPORT_PATH_BYTES`] is cut at the
    /// front.
    pub path: Vec<u8>,
    /// The reason.
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

/// Why a server refused a whole request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It serves read-only.
    #[error("the server is read-only")]
    ReadOnly,
    /// It has reached its limit of connections.
    #[error("the server has too many connections: try again later")]
    Full,
    /// It refused one of the paths.
    #[error("{}: {cause}, at the server", escape(.path))]
    Path {
        /// The path, as the client sent it.
        path: Vec<u8>,
        /// The reason.
        cause: Cause,
    },
    /// The request was malformed.
    #[error("the server does not understand the request")]
    Malformed,
    /// The client's key has no rights here.
    #[error("the server does not admit this key")]
    NotAllowed,
    /// The client's key has rights only below a directory that does not exist.
    #[error(
        "the directory for this key, in the server's list of keys, does not exist: its owner can create it"
    )]
    NoPlace,
    /// The client's key may only read.
    #[error(
        "this key may only read there: the server's owner can allow more, with 'read-write' in the list of keys"
    )]
    ReadOnlyKey,
}

/// Why a text is not a filter rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It begins with no kind of rule, or has modifiers that this kind does not allow.
    #[error(
        "a rule is '+ PATTERN', '- PATTERN', 'H', 'S', 'P' or 'R PATTERN', ': NAME' or '!', and not {:?}",
        escape(.0)
    )]
    Rule(Vec<u8>),
    /// Nothing follows the kind of rule.
    #[error("a rule without a pattern")]
    Empty,
    /// `[` without `]`, a descending range, or an unknown class.
    #[error("not a pattern: {}", escape(.0))]
    Pattern(Vec<u8>),
    /// A rule that reads other rules, where that is not allowed.
    #[error("rules come from a file with --filter-from FILE, or with ': NAME' in a rule")]
    Merge,
    /// All patterns together need too much memory.
    #[error("too many patterns, or too long ones")]
    TooLarge,
    /// A line of a file.
    #[error("line {line}: {why}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// The problem.
        why: Box<FilterError>,
    },
}

impl FilterError {
    /// The same problem in this line of a file.
    pub(crate) fn in_line(self, line: usize) -> FilterError {
        let why = Box::new(self);
        FilterError::Line { line, why }
    }
}

/// Why a whole copy or listing ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address does not answer, or the peer there is not Zerolane.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// The server.
        host: Host,
        /// The error of the transport.
        source: zerolane::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {}", without_prefix(.source))]
    Listen {
        /// The address, as requested.
        address: String,
        /// The error of the transport.
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
    /// The local path that the copy reads from or writes to.
    #[error("{}: {cause}", escape(.path))]
    Local {
        /// The path.
        path: Vec<u8>,
        /// The reason.
        cause: Cause,
    },
    /// The peer violated the protocol.
    #[error("the peer broke the file service's protocol: {0}")]
    Protocol(&'static str),
    /// The server's list of keys changed: the client lost its rights.
    #[error("its key was removed from the list of keys, or given other rights")]
    Revoked,
    /// The connection failed: the peer or the network died.
    #[error("the connection was lost: {0}")]
    Transport(#[from] zerolane::Error),
    /// The other end gave up or disconnected before the copy was complete.
    #[error("the peer ended the copy early")]
    PeerGone,
    /// The peer is alive, but made no progress, or sent nothing, for too long.
    #[error("the peer is alive but no longer takes part")]
    Stalled,
    /// The connection was silent while another one to the same peer could be made: the peer was restarted, or this
    /// end's address changed.
    #[error("the peer no longer knows the connection")]
    Forgotten,
    /// The request is longer than a message can be.
    #[error("the request is too long: too many or too long paths or rules")]
    TooLong,
    /// There is no memory for buffers.
    #[error("the system is out of memory")]
    NoMemory,
    /// The filter cannot be used as a whole.
    #[error("{0}")]
    Filter(#[from] FilterError),
    /// The steps of a sync could not be stored: no room for temporary files.
    #[error("cannot write a temporary file (TMPDIR): {0}")]
    Notes(#[source] std::io::Error),
    /// The connection ended after the server began to carry out a request, and before it reported the result.
    #[error("{source}; how much of it was done is unknown")]
    Unanswered {
        /// The reason for the end of the connection.
        source: Box<Error>,
    },
    /// The system has no random bytes.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// The system cannot start a thread.
    #[error("the system refuses to start a thread")]
    NoThread,
    /// A defect of this program.
    #[error("internal error")]
    Internal,
    /// Too many wrong guesses invalidated the one-time code.
    #[error("too many wrong codes were tried: the code is void")]
    CodeGuessed,
    /// The connection broke, and no new one made progress for the permitted time.
    #[error("nothing could be copied for {} s: {source}", .patience.as_secs())]
    GaveUp {
        /// The permitted time.
        patience: std::time::Duration,
        /// The error of the last attempt.
        source: Box<Error>,
    },
    /// The one client that a one-time code admitted was not served completely.
    #[error(
        "the client with the code disconnected before it had everything: start again, for a new code"
    )]
    ClientLost,
    /// There is no sender with this code on the network.
    #[error("no sender on this network has this code{}", in_brackets(.0))]
    NoSender(Option<std::io::Error>),
    /// The receiver declined.
    #[error("the receiver declined")]
    Declined,
    /// The output of a stream takes no more data.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
    /// The connection broke during a stream that cannot be read again.
    #[error("standard input cannot be read again, so start anew: {0}")]
    InputGone(#[source] Box<Error>),
    /// The copy was told to stop.
    #[error("stopped")]
    Stopped,
}

/// The advice for a sync with times off by so many seconds: FAT stores even seconds; larger differences are times that
/// the file system cannot store.
fn for_times(off: u64) -> &'static str {
    match off {
        0..=1 => "--modify-window 1",
        2 => "--modify-window 2",
        _ => "--checksum",
    }
}

/// The system's own message, because the network is not the cause.
fn without_prefix(error: &zerolane::Error) -> String {
    match error {
        zerolane::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn in_brackets(why: &Option<std::io::Error>) -> String {
    why.as_ref()
        .map_or_else(String::new, |why| format!(" ({why})"))
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
