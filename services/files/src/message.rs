//! Defines the messages between the ends, other than file content.
//!
//! Requests and replies start with magic and version, whose place never changes; the rest is postcard. Decoding never
//! trusts a length: a message fits one buffer, and postcard allocates no more than the message's bytes allow.

use crate::digest::{Algorithm, Digest, Digester};
use crate::error::{Cause, Error, Failure, Refusal};
use crate::limits::{CONTROL_BYTES, FILE_PROTOCOL_VERSION, RECORD_BYTES};
use crate::modes::Modes;
use crate::position::Position;
use crate::share::Share;
use serde::{Deserialize, Serialize};

/// First bytes of requests and replies.
const MAGIC: [u8; 4] = *b"ZLfs";
const PROLOGUE_BYTES: usize = MAGIC.len() + size_of::<u16>();

/// A client's request, its first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The client sends files, the server writes them.
    Put {
        destination: Vec<u8>,
        sources: u32,
        /// Whether a source stands for the contents of a directory.
        contents: bool,
        landing: Landing,
        share: Share,
        options: CopyOptions,
        /// Its key also identifies the copy: the copy's previous connection is ended.
        digester: Digester,
    },
    /// The server sends files, the client writes them.
    Get {
        sources: Vec<Vec<u8>>,
        share: Share,
        options: CopyOptions,
        /// Filter rules, one a line.
        filter: Vec<Vec<u8>>,
        /// As in a Put.
        digester: Digester,
        /// How far the previous connection came; the start, if there was none.
        from: Position,
        /// Steps that were begun on the previous connection.
        started: u64,
    },
    /// The server lists what these paths and patterns name, and the contents of directories among it.
    List {
        paths: Vec<Vec<u8>>,
        options: ListOptions,
    },
    /// The server sends the listing of a tree, in order.
    Walk {
        path: Vec<u8>,
        /// Whether a missing directory counts as an empty one.
        may_be_missing: bool,
        /// With digests of files.
        digests: bool,
        /// Replaces links by their targets.
        copy_links: bool,
        /// With these attributes.
        attributes: Attributes,
        /// With the content of these filter files of each directory.
        filter_files: Vec<Vec<u8>>,
        /// As in a Put: a sync that continues comes with the key of the connection that broke.
        digester: Digester,
    },
    /// The client sends files for places that it chose by a listing, the server writes them.
    Update {
        destination: Vec<u8>,
        options: CopyOptions,
        backup: Option<Backup>,
        /// Directories, as paths from the destination, with files that need not be sent.
        link_dest: Vec<Vec<u8>>,
        digester: Digester,
    },
    /// The server sends the files named by the steps that follow.
    Fetch {
        source: Vec<u8>,
        options: CopyOptions,
        digester: Digester,
        /// As in a Get.
        started: u64,
    },
    /// The server removes the files named by the steps that follow.
    Remove {
        path: Vec<u8>,
        backup: Option<Backup>,
        /// Only its key matters, as in a Put.
        digester: Digester,
    },
    /// The server sends one file as a stream.
    Read {
        source: Vec<u8>,
        /// As in a Put.
        digester: Digester,
        /// The parts that previous connections passed on.
        from: Position,
        /// As in the options of a copy.
        allow_changing: bool,
    },
    /// From a client that proved the code: the server says what it offers.
    AskOffer,
    /// The client declines the offer.
    Decline,
    /// Before another request: the client's limit of payload, in bytes per second.
    Limit { max_rate: u64 },
    /// The server removes what these paths and patterns name.
    Delete {
        paths: Vec<Vec<u8>>,
        options: RemoveOptions,
    },
    /// The server makes directories; `parents` also makes missing parents, and accepts a directory that exists.
    MakeDirectories { paths: Vec<Vec<u8>>, parents: bool },
    /// The server renames `from` to `to`, or moves it into that directory.
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
        replace: Replace,
    },
    /// The server answers each [`RangeRequest`] that follows.
    Ranges,
}

/// A client's request for the status of a path, and for a range of the file there. The answer is one message for each
/// unit of the range, and one if it is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RangeRequest {
    pub path: Vec<u8>,
    /// Start of the range, bytes.
    pub offset: u64,
    /// Length of the range, bytes. 0: only the status.
    pub len: u64,
    /// The file must still be this version.
    pub version: Option<Version>,
}

/// The control of a message that answers a [`RangeRequest`]. Its payload is the unit's part of the file: less than a
/// unit at the end of the file, none beyond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RangeReply {
    /// The entry at the path.
    Found(Status),
    /// The unit cannot be read.
    Failed(Cause),
}

/// A file, directory or special file at a path. Symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its type.
    pub kind: EntryKind,
    /// Bytes of content.
    pub size: u64,
    /// Permission bits and modification time.
    pub meta: Meta,
    /// Its version.
    pub version: Version,
}

/// Differs between two states of a file, unless a writer changed it within a tick of the server's clock, or through a
/// mapping that the kernel has not noticed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Number of the file in its file system.
    pub inode: u64,
    /// Bytes of content.
    pub size: u64,
    /// Time of change of content or attributes, seconds since 1970.
    pub changed_seconds: i64,
    /// Nanoseconds of it, 0 to 999,999,999.
    pub changed_nanoseconds: u32,
}

/// How the destination relates to the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Landing {
    /// As in `cp`: a directory to copy into if it is one, else the new name of the one source.
    AsCp,
    /// A directory to copy into, as resolved on the previous connection.
    Into,
    /// The new name of the one source, as resolved on the previous connection: by now it may be a directory.
    Named,
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Copy directories with all their contents.
    pub recursive: bool,
    /// Keep the part of a large file that a killed copy left, after verifying it.
    pub resume: bool,
    /// Write each file to disk (fsync) before it gets its name.
    pub durable: bool,
    /// Replace target files that have no write permission.
    pub replace_read_only: bool,
    /// Count files and bytes before sending, so that progress has a total.
    pub count_first: bool,
    /// Send only the parts of an existing file that differ: units of [`UNIT_BYTES`](crate::limits::UNIT_BYTES) at the
    /// same offsets, compared by digest. The receiver copies the others from the old file. Files smaller than
    /// [`DELTA_BYTES`](crate::limits::DELTA_BYTES) are sent whole.
    pub delta: bool,
    /// Write into an existing file, instead of replacing it with a new one. The file is marked while it is incomplete.
    /// A block device named as the target is written this way too.
    pub in_place: bool,
    /// Copy the targets of the source's symbolic links instead of the links. If a server is the source, the targets
    /// must be below the served directory.
    pub copy_links: bool,
    /// Copy symbolic links that are named as sources as links. Otherwise their targets are copied, even without
    /// `copy_links`.
    pub keep_links: bool,
    /// The attributes to keep.
    pub attributes: Attributes,
    /// Copy files that are written to while they are read: the copy may mix old and new content. Of a file that grows,
    /// the part that existed when it was opened is copied; a large file that becomes shorter is a failure all the same.
    pub allow_changing: bool,
    /// Leave the permissions of existing files at the target as they are; new files get those of the source, less the
    /// `umask`.
    pub no_permissions: bool,
}

/// Where a sync keeps the files that it replaces or removes. Of several files with the same name only the last backup
/// is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// A directory, as a path from the destination: a backup has the path there that its file has below the
    /// destination. A server refuses a directory outside of the served one. `None`: backups stand beside the files.
    pub directory: Option<Vec<u8>>,
    /// The suffix of backups. Without a directory it cannot be empty.
    pub suffix: Vec<u8>,
}

/// Attributes to keep besides content, permissions and time, where the writing end may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// User and group, as numbers.
    pub owner: bool,
    /// Extended attributes: those in `user.`, and for root also others except `system.`. A served directory gets only
    /// the former.
    pub xattrs: bool,
    /// POSIX access control lists, with users and groups as numbers.
    pub acls: bool,
    /// Hard links: files of the source with several names get them at the target, too.
    pub hard_links: bool,
}

impl Attributes {
    /// No attributes.
    pub const NONE: Attributes = Attributes {
        owner: false,
        xattrs: false,
        acls: false,
        hard_links: false,
    };

    /// Whether these need queries to the file system beyond stat.
    pub(crate) fn are_extended(self) -> bool {
        self.xattrs || self.acls
    }
}

/// What to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOptions {
    /// Also list the contents of directories, at every depth.
    pub recursive: bool,
    /// Also list names that begin with a dot.
    pub hidden: bool,
}

/// How to remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveOptions {
    /// Remove directories with all their contents.
    pub recursive: bool,
    /// Also remove files without write permission; a missing file is no failure.
    pub force: bool,
    /// Remove only empty directories, and nothing else.
    pub empty: bool,
}

/// What a rename may replace. It never replaces a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replace {
    /// Files with a write permission, and links.
    #[default]
    Writable,
    /// All files and links.
    Any,
    /// Nothing.
    Nothing,
}

/// The reply of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The copy may begin.
    Accepted {
        /// The algorithm of digests.
        algorithm: Algorithm,
        /// The meaning of a Put's destination: never [`Landing::AsCp`].
        landing: Landing,
        /// The boot ID of the server's system. It changes with a restart, which may lose data written before and not
        /// synced.
        boot: [u8; 16],
    },
    /// The server refuses the request.
    Refused(Refusal),
    /// How much was done since the previous such reply, and the failures. The first one, without either, announces that
    /// the request is going to be carried out: nothing is done before it has arrived.
    Done {
        done: u64,
        /// How many of these files and links were moved to a backup.
        backed_up: u64,
        failures: Vec<Failure>,
        last: bool,
    },
    /// Before another reply: the server's limit of payload, in bytes per second.
    Limit { max_rate: u64 },
    /// The offer, for a client that knows the code: files and bytes in total, the first entries, and how many more
    /// there are.
    Offer {
        files: u64,
        bytes: u64,
        entries: Vec<OfferedEntry>,
        more: u64,
    },
}

/// The type of a directory entry.
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

/// One of the offered files and directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedEntry {
    /// Its name, as bytes.
    pub name: Vec<u8>,
    /// Its type.
    pub kind: EntryKind,
    /// Bytes of content; for a directory, of all its contents.
    pub size: u64,
    /// Permission bits and modification time.
    pub meta: Meta,
}

/// The metadata of a file that a copy keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits. Only `0o777` of them are set at the target: set-user-ID, set-group-ID and sticky bits are not
    /// taken from another machine.
    pub mode: u32,
    /// Modification time, seconds since 1970.
    pub mtime_seconds: i64,
    /// Nanoseconds of the modification time, 0 to 999,999,999.
    pub mtime_nanoseconds: u32,
    /// The owner, if requested.
    pub owner: Option<Owner>,
}

/// User and group of a file, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Owner {
    /// Whether such a user and group can exist: the greatest number means none.
    pub(crate) fn can_be(self) -> bool {
        self.uid != u32::MAX && self.gid != u32::MAX
    }
}

/// A record of the sender, in the manifest of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record<'a> {
    /// The copy continues from there. Precedes all other steps.
    From { position: Position },
    /// The following records are in this directory, which was entered on a previous connection.
    Reenter {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
    },
    /// The counted total of files and bytes to come.
    Total { files: u64, bytes: u64 },
    /// The following records, until the matching Leave, are in this directory.
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
    /// A whole file; its content is in this pack.
    File {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
        size: u32,
        digest: Digest,
    },
    /// A file whose segments follow, until Close or Abandon. Files are numbered from 0.
    Open {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
        size: u64,
        number: u64,
        /// The receiver first says what it has of the file.
        resume: bool,
    },
    /// The next `units` units follow this pack, as one Transfer each. The last record of its pack.
    Run { units: u64 },
    /// The next `units` units are holes.
    Hole { units: u64 },
    /// The next `units` units are those that the receiver has already.
    Keep { units: u64 },
    /// The next unit is a hole except for these pieces; their content is in this pack.
    Patch { pieces: Vec<Piece> },
    /// The open file is complete; the digest of the content that was read.
    Close { digest: Digest },
    /// The open file cannot be completed.
    Abandon { cause: Cause },
    /// The content is up to date, but permissions or time must change. `was`: their values when the content was
    /// compared, so that the change is not applied to another content.
    SetAttributes {
        #[serde(borrow)]
        name: &'a [u8],
        size: u64,
        meta: Meta,
        was: Meta,
    },
    /// Exchanges the file that came under the name `with` and the entry at `name`. An old file or link is then removed,
    /// an old directory stays under the name `with`.
    Exchange {
        #[serde(borrow)]
        name: &'a [u8],
        #[serde(borrow)]
        with: &'a [u8],
    },
    /// The sender could not read this file.
    Unreadable {
        #[serde(borrow)]
        name: &'a [u8],
        cause: Cause,
    },
    /// A device, socket or FIFO, which is not copied.
    Skipped {
        #[serde(borrow)]
        name: &'a [u8],
    },
    /// Everything was sent.
    Finish,
    /// A file of unknown length, from a stream. Parts follow, until Close or Abandon.
    Stream {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
    },
    /// The next part of the stream; its content is in this pack. A part of less than a unit is the last.
    Part { size: u32, digest: Digest },
    /// An extended attribute of the file that the next other record describes; its value is in this pack.
    Attribute {
        #[serde(borrow)]
        name: &'a [u8],
        size: u32,
    },
    /// The next File or Open has other names, too: the receiver must remember it.
    Shared,
    /// Another name of an existing file. `level`: how many directories this name and `first`, that file's path, have in
    /// common; `first` begins below these. `size` and `meta`: identify the version of the file. `before`: the file
    /// existed, or came on a previous connection.
    HardLink {
        #[serde(borrow)]
        name: &'a [u8],
        level: u32,
        #[serde(borrow)]
        first: &'a [u8],
        size: u64,
        meta: Meta,
        before: bool,
    },
    /// The file at `path` in one of the link directories is the same: `name` becomes a link to it. `was`: identifies
    /// the version that was compared. `meta`: the metadata of a copy, if the file cannot have another name.
    Same {
        #[serde(borrow)]
        name: &'a [u8],
        directory: u8,
        #[serde(borrow)]
        path: &'a [u8],
        size: u64,
        meta: Meta,
        was: Meta,
    },
}

impl Record<'_> {
    /// Changes the permissions that a file or directory must get.
    pub(crate) fn with_modes(mut self, modes: &Modes) -> Self {
        let meta = match &mut self {
            Record::Reenter { meta, .. } | Record::Enter { meta, .. } => Some((meta, true)),
            Record::File { meta, .. }
            | Record::Open { meta, .. }
            | Record::SetAttributes { meta, .. }
            | Record::Same { meta, .. }
            | Record::Stream { meta, .. } => Some((meta, false)),
            _ => None,
        };
        if let Some((meta, directory)) = meta {
            meta.mode = modes.applied(meta.mode, directory);
        }
        self
    }

    /// The metadata in the record, if any.
    pub(crate) fn meta(&self) -> Option<&Meta> {
        match self {
            Record::Reenter { meta, .. }
            | Record::Enter { meta, .. }
            | Record::Link { meta, .. }
            | Record::File { meta, .. }
            | Record::Open { meta, .. }
            | Record::SetAttributes { meta, .. }
            | Record::HardLink { meta, .. }
            | Record::Same { meta, .. }
            | Record::Stream { meta, .. } => Some(meta),
            _ => None,
        }
    }
}

/// A piece of data in a unit that has holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Offset from the start of the unit, bytes.
    pub offset: u32,
    /// Length in bytes, at least 1.
    pub len: u32,
}

/// A message of the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Feedback {
    /// Digests of the units that the receiver has of the open file, from the first; answers an Open that asks for it.
    Have { digests: Vec<Digest>, last: bool },
    /// Files that the receiver could not write. `open`: the number of the file to stop sending, if it is one of them.
    Failed {
        failures: Vec<Failure>,
        open: Option<u64>,
    },
    /// All steps up to there are done, with these totals on this connection.
    Settled { position: Position, totals: Totals },
    /// Attributes that could not be kept of written files: one failure for each kind. Empty: [`Feedback::AT_WORK`].
    NotKept { failures: Vec<Failure> },
    /// Everything is in place, except for the failures. Answers Finish.
    Done(Totals),
}

impl Feedback {
    /// Only says that the receiver is at work: an empty list of attributes not kept.
    pub(crate) const AT_WORK: Feedback = Feedback::NotKept {
        failures: Vec::new(),
    };
}

/// The results of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files written and verified.
    pub files: u64,
    /// How many of these are further names of other files, or of files in link directories. Their bytes do not count.
    pub hard_links: u64,
    /// Directories made, or that existed.
    pub directories: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// How many of these bytes the receiver already had (resume).
    pub bytes_kept: u64,
    /// How many of these bytes are in holes that were not sent.
    pub bytes_in_holes: u64,
    /// Files and links that were kept as backups when others took their place.
    pub backed_up: u64,
    /// Devices, sockets and FIFOs of the sources, which are not copied.
    pub skipped: u64,
    /// Files, directories and links that failed.
    pub failed: u64,
    /// How many of these vanished from the source before they were read.
    pub vanished: u64,
}

impl Totals {
    /// The sum of the totals of two connections of one copy.
    pub(crate) fn plus(self, other: Totals) -> Totals {
        Totals {
            files: self.files.saturating_add(other.files),
            hard_links: self.hard_links.saturating_add(other.hard_links),
            directories: self.directories.saturating_add(other.directories),
            links: self.links.saturating_add(other.links),
            bytes: self.bytes.saturating_add(other.bytes),
            bytes_kept: self.bytes_kept.saturating_add(other.bytes_kept),
            bytes_in_holes: self.bytes_in_holes.saturating_add(other.bytes_in_holes),
            backed_up: self.backed_up.saturating_add(other.backed_up),
            skipped: self.skipped.saturating_add(other.skipped),
            failed: self.failed.saturating_add(other.failed),
            vanished: self.vanished.saturating_add(other.vanished),
        }
    }
}

/// Encodes a request or a reply; `None` if it is longer than [`CONTROL_BYTES`].
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

/// Encodes feedback into `buffer`; returns its length, or `None` if it does not fit.
pub(crate) fn encode_feedback(feedback: &Feedback, buffer: &mut [u8]) -> Option<usize> {
    postcard::to_slice(feedback, buffer)
        .ok()
        .map(|written| written.len())
}

/// Decodes feedback.
pub(crate) fn decode_feedback(bytes: &[u8]) -> Result<Feedback, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Protocol("malformed feedback"))
}

/// Encodes the control of an answer to a range into `buffer`; returns its length, or `None` if it does not fit.
pub(crate) fn encode_range(reply: &RangeReply, buffer: &mut [u8]) -> Option<usize> {
    postcard::to_slice(reply, buffer)
        .ok()
        .map(|written| written.len())
}

/// Decodes the control of an answer to a range.
pub(crate) fn decode_range(bytes: &[u8]) -> Result<RangeReply, Error> {
    postcard::from_bytes(bytes).map_err(|_| Error::Protocol("malformed answer to a range"))
}

/// Appends `record` to a manifest; `None` if it exceeds the limit of a record.
pub(crate) fn encode_record(record: &Record<'_>, manifest: &mut Vec<u8>) -> Option<usize> {
    let mut scratch = [0; RECORD_BYTES];
    let bytes = postcard::to_slice(record, &mut scratch).ok()?;
    manifest.extend_from_slice(bytes);
    Some(bytes.len())
}

/// Removes and decodes the first record of a manifest.
pub(crate) fn decode_record<'a>(manifest: &mut &'a [u8]) -> Result<Record<'a>, Error> {
    let (record, rest) =
        postcard::take_from_bytes(manifest).map_err(|_| Error::Protocol("malformed record"))?;
    *manifest = rest;
    Ok(record)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
