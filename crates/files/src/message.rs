//! The messages that the ends exchange besides file content.
//!
//! Requests and replies open with magic and version, whose place never changes; everything else is
//! postcard. Decoding never trusts a length: a message is at most one buffer, and postcard cannot
//! make more of it than its bytes allow.

use crate::digest::{Algorithm, Digest, Digester};
use crate::error::{Cause, Error, Failure, Refusal};
use crate::limits::{CONTROL_BYTES, FILE_PROTOCOL_VERSION, RECORD_BYTES};
use serde::{Deserialize, Serialize};

/// First bytes of requests and replies.
const MAGIC: [u8; 4] = *b"ZLfs";
const PROLOGUE_BYTES: usize = MAGIC.len() + size_of::<u16>();

/// The request of a client, its first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The client sends files, the server writes them.
    Put {
        destination: Vec<u8>,
        sources: u32,
        /// Whether a source is the contents of a directory, without a name of its own.
        contents: bool,
        options: CopyOptions,
        digester: Digester,
    },
    /// The server sends files, the client writes them.
    Get {
        sources: Vec<Vec<u8>>,
        options: CopyOptions,
        digester: Digester,
    },
    /// The server sends the entries of a directory, or the one file.
    List { path: Vec<u8> },
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Copy directories with all that is in them.
    pub recursive: bool,
    /// Keep what a killed copy left of a large file, after verifying it.
    pub resume: bool,
    /// Have each file on the disk (fsync) before it gets its name.
    pub durable: bool,
    /// Replace target files that have no write permission.
    pub replace_read_only: bool,
    /// Count files and bytes before sending, so that progress has a total.
    pub count_first: bool,
}

/// The reply of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The copy may begin, with digests made so.
    Accepted(Algorithm),
    /// It may not.
    Refused(Refusal),
    /// Part of a listing.
    Entries { entries: Vec<Entry>, last: bool },
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name in its directory, as bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of content.
    pub size: u64,
    /// Permission bits and time of the last change of content.
    pub meta: Meta,
}

/// What a directory's entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, socket or FIFO; never copied.
    Special,
}

/// What is kept of a file besides its name and content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits. Of these only `0o777` are set at the target: set-user-ID, set-group-ID and
    /// sticky bits are not taken from another machine.
    pub mode: u32,
    /// Time of the last change of content, seconds since 1970.
    pub mtime_seconds: i64,
    /// And nanoseconds, 0 to 999,999,999.
    pub mtime_nanoseconds: u32,
}

/// A record of the sender of files, in the manifest of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record<'a> {
    /// Files and bytes to come, as counted before.
    Total { files: u64, bytes: u64 },
    /// What follows, until the matching Leave, is in this directory.
    Enter {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
    },
    /// The directory is complete.
    Leave,
    /// A symbolic link.
    Link {
        #[serde(borrow)]
        name: &'a [u8],
        #[serde(borrow)]
        target: &'a [u8],
        meta: Meta,
    },
    /// A whole file; its content stands in this pack.
    File {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
        size: u32,
        digest: Digest,
    },
    /// A file whose segments follow, until Close or Abandon. Numbered from 0.
    Open {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
        size: u64,
        number: u64,
    },
    /// The next `units` units are one Transfer each, after this pack. The last record of its pack.
    Run { units: u64 },
    /// The next `units` units are holes.
    Hole { units: u64 },
    /// The next `units` units are what the receiver has already.
    Keep { units: u64 },
    /// The next unit is a hole but for these pieces; their content stands in this pack.
    Patch { pieces: Vec<Piece> },
    /// The open file is complete; the digest of what was read.
    Close { digest: Digest },
    /// The open file cannot be completed.
    Abandon { cause: Cause },
    /// The sender could not read this one.
    Unreadable {
        #[serde(borrow)]
        name: &'a [u8],
        cause: Cause,
    },
    /// Everything was sent.
    Finish,
}

/// A piece of data in a unit that is partly holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Bytes from the start of the unit.
    pub offset: u32,
    /// Bytes, at least 1.
    pub len: u32,
}

/// A message of the receiver of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Feedback {
    /// Digests of the units it has of the open file, from the first; answers Open when resuming.
    Have { digests: Vec<Digest>, last: bool },
    /// Files it could not write. `open`: the number of the file to stop sending, if it is one.
    Failed {
        failures: Vec<Failure>,
        open: Option<u64>,
    },
    /// Everything is in its place, but for the failures. Answers Finish.
    Done(Totals),
}

/// What a copy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files in their place, verified.
    pub files: u64,
    /// Directories made or found.
    pub directories: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Of these, bytes that the receiver had already (resume).
    pub bytes_kept: u64,
    /// Of these, bytes in holes that were not sent.
    pub bytes_in_holes: u64,
    /// Files, directories and links that failed.
    pub failed: u64,
}

/// Encodes a request or a reply. At most [`CONTROL_BYTES`], or `None`.
pub(crate) fn encode_opening(message: &impl Serialize) -> Option<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FILE_PROTOCOL_VERSION.to_le_bytes());
    let bytes = postcard::to_extend(message, bytes).ok()?;
    (bytes.len() <= CONTROL_BYTES).then_some(bytes)
}

/// Decodes a request or a reply.
pub(crate) fn decode_opening<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> Result<M, Error> {
    let (prologue, body) = bytes
        .split_at_checked(PROLOGUE_BYTES)
        .ok_or(Error::NotFileService)?;
    let (magic, version) = prologue.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Error::NotFileService);
    }
    let peer = u16::from_le_bytes([version[0], version[1]]);
    if peer != FILE_PROTOCOL_VERSION {
        return Err(Error::Version { peer });
    }
    postcard::from_bytes(body).map_err(|_| Error::Protocol("malformed opening message"))
}

/// Encodes feedback into `buffer`; its length, or `None` if it does not fit.
pub(crate) fn encode_feedback(feedback: &Feedback, buffer: &mut [u8]) -> Option<usize> {
    postcard::to_slice(feedback, buffer)
        .ok()
        .map(|written| written.len())
}

/// Decodes feedback.
pub(crate) fn decode_feedback(bytes: &[u8]) -> Result<Feedback, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Protocol("malformed feedback"))
}

/// Appends `record` to a manifest; `None` if it is longer than a record may be.
pub(crate) fn encode_record(record: &Record<'_>, manifest: &mut Vec<u8>) -> Option<usize> {
    let mut scratch = [0; RECORD_BYTES];
    let bytes = postcard::to_slice(record, &mut scratch).ok()?;
    manifest.extend_from_slice(bytes);
    Some(bytes.len())
}

/// Takes the first record off a manifest.
pub(crate) fn decode_record<'a>(manifest: &mut &'a [u8]) -> Result<Record<'a>, Error> {
    let (record, rest) =
        postcard::take_from_bytes(manifest).map_err(|_| Error::Protocol("malformed record"))?;
    *manifest = rest;
    Ok(record)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
