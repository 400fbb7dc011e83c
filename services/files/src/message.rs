//! The messages that the ends exchange besides file content.
//!
//! Requests and replies open with magic and version, whose place never changes; everything else is
//! postcard. Decoding never trusts a length: a message is at most one buffer, and postcard cannot
//! make more of it than its bytes allow.

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

/// The request of a client, its first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The client sends files, the server writes them.
    Put {
        destination: Vec<u8>,
        sources: u32,
        /// Whether a source is the contents of a directory, without a name of its own.
        contents: bool,
        landing: Landing,
        share: Share,
        options: CopyOptions,
        /// Its key also says which copy this is: the connection before is ended.
        digester: Digester,
    },
    /// The server sends files, the client writes them.
    Get {
        sources: Vec<Vec<u8>>,
        share: Share,
        options: CopyOptions,
        /// Rules about what is left alone, as lines.
        filter: Vec<Vec<u8>>,
        /// As in a Put.
        digester: Digester,
        /// How far the connection before it came; the start, if there was none.
        from: Position,
        /// Steps that were begun there.
        begun: u64,
    },
    /// The server sends what these paths and patterns name, and what is in the directories among it.
    List {
        paths: Vec<Vec<u8>>,
        options: ListOptions,
    },
    /// The server sends the listing of a tree, in order.
    Walk {
        path: Vec<u8>,
        /// Whether a directory that is not there counts as an empty one.
        may_be_missing: bool,
        /// With digests of files.
        digests: bool,
        /// What links lead to, in place of them.
        copy_links: bool,
        /// With these.
        attributes: Attributes,
        /// With the content of these files of each directory.
        filter_files: Vec<Vec<u8>>,
        /// As in a Put: a sync that goes on comes with the key of the connection that broke.
        digester: Digester,
    },
    /// The client sends files for places that it chose by a listing, the server writes them.
    Update {
        destination: Vec<u8>,
        options: CopyOptions,
        backup: Option<Backup>,
        /// Directories, as paths from the destination, that have files which need not be sent.
        link_dest: Vec<Vec<u8>>,
        digester: Digester,
    },
    /// The server sends the files that the steps which follow name.
    Fetch {
        source: Vec<u8>,
        options: CopyOptions,
        digester: Digester,
        /// As in a Get.
        begun: u64,
    },
    /// The server removes what the steps which follow name.
    Remove {
        path: Vec<u8>,
        backup: Option<Backup>,
        /// Only its key matters, as in a Put.
        digester: Digester,
    },
    /// The server sends one file as a stream, to be passed on.
    Read {
        source: Vec<u8>,
        /// As in a Put.
        digester: Digester,
        /// The parts that the connections before passed on.
        from: Position,
        /// As in the options of a copy.
        allow_changing: bool,
    },
    /// By one that proved the code: the server says what it offers.
    Meet,
    /// The client wants nothing of what it was offered.
    Decline,
    /// Before another request: the client takes at most so many bytes of payload a second.
    Limit { max_rate: u64 },
    /// The server removes what these paths and patterns name.
    Delete {
        paths: Vec<Vec<u8>>,
        options: RemoveOptions,
    },
    /// The server makes directories; with `parents` also those above, and one that is there is no failure.
    MakeDirectories { paths: Vec<Vec<u8>>, parents: bool },
    /// The server gives what is at `from` the name `to`, or moves it into that directory.
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
        replace: Replace,
    },
}

/// What a destination is to sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Landing {
    /// As `cp` has it: a directory to copy into if it is one, else the new name of the one source.
    AsCp,
    /// A directory to copy into, as it was for the connection before.
    Into,
    /// The new name of the one source, as it was for the connection before: by now it may be a directory.
    Named,
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
    /// Of a file that is there already, send only the parts that differ: units of
    /// [`UNIT_BYTES`](crate::limits::UNIT_BYTES) at the same offsets, compared by digest. What the old file has is
    /// copied at the receiver. Files smaller than [`DELTA_BYTES`](crate::limits::DELTA_BYTES) are sent whole.
    pub delta: bool,
    /// Write a file that is there already itself, instead of a new one that replaces it. It is marked while it is
    /// incomplete. A block device that is named as the target is written so, too.
    pub in_place: bool,
    /// Copy what symbolic links of the source lead to, in place of the links. What a client asks a server for stays below
    /// the served directory.
    pub copy_links: bool,
    /// Copy links that are named as sources as links. Else what they lead to is copied, also without `copy_links`.
    pub keep_links: bool,
    /// What is kept of files besides.
    pub attributes: Attributes,
    /// Copy files that are written to while they are read, as they are read: what arrives may be of no one moment. Of one that
    /// grows, what was there when it was opened is copied; a large one that becomes shorter is a failure all the same.
    pub allow_changing: bool,
    /// Leave the permissions of what is at the target as they are; what is new gets those of the source that a new file may
    /// have there (`umask`).
    pub no_permissions: bool,
}

/// Where a sync keeps what it replaces or removes. Of what is replaced by the same name, only one backup is kept: the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// A directory, as a path from the destination: backups have the paths there that the files have below the
    /// destination. A server takes none that leads out of what it serves. `None`: backups stand beside the files.
    pub directory: Option<Vec<u8>>,
    /// What is appended to the names of files. Without a directory it cannot be empty.
    pub suffix: Vec<u8>,
}

/// What is kept of files besides content, permissions and time, where the end that writes them may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// User and group, by their numbers.
    pub owner: bool,
    /// Extended attributes: those of `user.`, and as root also others but `system.`. A served directory gets only the former.
    pub xattrs: bool,
    /// POSIX access control lists, with users and groups by their numbers.
    pub acls: bool,
    /// Which files of the source have several names: they have them at the target, too.
    pub hard_links: bool,
}

impl Attributes {
    /// Nothing.
    pub const NONE: Attributes = Attributes {
        owner: false,
        xattrs: false,
        acls: false,
        hard_links: false,
    };

    /// Whether there is something to ask the file system for beyond its usual answer.
    pub(crate) fn are_extended(self) -> bool {
        self.xattrs || self.acls
    }
}

/// What to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOptions {
    /// Also what is in the directories below, at every depth.
    pub recursive: bool,
    /// Also names in directories that begin with a dot.
    pub hidden: bool,
}

/// How to remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveOptions {
    /// Remove directories with all that is in them.
    pub recursive: bool,
    /// Remove files that have no write permission, too; what is not there is no failure.
    pub force: bool,
}

/// What may be replaced when something gets a new name. A directory never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replace {
    /// Files that have a write permission, and links.
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
        /// How digests are made.
        algorithm: Algorithm,
        /// How the destination of a Put was understood: never [`Landing::AsCp`].
        landing: Landing,
        /// Differs after the server's system was started anew: what was written before that and not
        /// synced may be lost.
        boot: [u8; 16],
    },
    /// It may not.
    Refused(Refusal),
    /// How much was done since the last such reply, and what was not. The first one, with nothing of either, says that
    /// the request is going to be carried out: nothing is done before that has arrived.
    Done {
        done: u64,
        /// Of these, files and links that were moved to a backup.
        backed_up: u64,
        failures: Vec<Failure>,
        last: bool,
    },
    /// Before another reply: the server takes at most so many bytes of payload a second.
    Limit { max_rate: u64 },
    /// What there is for one that knows the code: files and bytes in all, the first entries, and how many
    /// more.
    Offer {
        files: u64,
        bytes: u64,
        entries: Vec<OfferedEntry>,
        more: u64,
    },
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

/// One of the files and directories that are offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedEntry {
    /// Its name, as bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes of content, of a directory those of all that is in it.
    pub size: u64,
    /// Permission bits and time of the last change of content.
    pub meta: Meta,
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
    /// Whose it is, if that was asked for.
    pub owner: Option<Owner>,
}

/// User and group of a file, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Owner {
    /// Whether there can be such users and groups: the greatest number means none.
    pub(crate) fn can_be(self) -> bool {
        self.uid != u32::MAX && self.gid != u32::MAX
    }
}

/// A record of the sender of files, in the manifest of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record<'a> {
    /// What follows goes on from there. Before all other steps.
    From { position: Position },
    /// What follows is in this directory, which was entered on a connection before.
    Reenter {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
    },
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
        /// The receiver says first what it has of it.
        resume: bool,
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
    /// The content is there, but permissions or time are to be these. `was`: what they were when it was
    /// compared, so that no other content gets them.
    Settle {
        #[serde(borrow)]
        name: &'a [u8],
        size: u64,
        meta: Meta,
        was: Meta,
    },
    /// What came under the name `with` changes places with what stands at `name`. A file or link that was
    /// there is removed then, a directory stays under the name `with`.
    Exchange {
        #[serde(borrow)]
        name: &'a [u8],
        #[serde(borrow)]
        with: &'a [u8],
    },
    /// The sender could not read this one.
    Unreadable {
        #[serde(borrow)]
        name: &'a [u8],
        cause: Cause,
    },
    /// This one is a device, socket or FIFO, and is not copied.
    Skipped {
        #[serde(borrow)]
        name: &'a [u8],
    },
    /// Everything was sent.
    Finish,
    /// A file whose length nobody knows yet, from a stream. Parts follow, until Close or Abandon.
    Stream {
        #[serde(borrow)]
        name: &'a [u8],
        meta: Meta,
    },
    /// The next part of the stream; its content stands in this pack. One of less than a unit is the last.
    Part { size: u32, digest: Digest },
    /// An extended attribute of what the next record that is none is about; its value stands in this pack.
    Attribute {
        #[serde(borrow)]
        name: &'a [u8],
        size: u32,
    },
    /// The next File or Open is of a file that has other names, too: it is to be remembered.
    Shared,
    /// Another name of a file that is there. `level`: directories that this one and `first`, its path, have in common;
    /// below these `first` begins. `size` and `meta`: the file is still the one that is meant. `before`: it was there,
    /// or came on a connection before.
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
    /// The file at `path` in one of the directories of links is the same: `name` becomes a link of it. `was`: it is still
    /// the one that was compared. `meta`: what a copy of it gets, where it can have no other name.
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
    /// Changes the permissions that a file or directory is to have.
    pub(crate) fn with_modes(mut self, modes: &Modes) -> Self {
        let meta = match &mut self {
            Record::Reenter { meta, .. } | Record::Enter { meta, .. } => Some((meta, true)),
            Record::File { meta, .. }
            | Record::Open { meta, .. }
            | Record::Settle { meta, .. }
            | Record::Same { meta, .. }
            | Record::Stream { meta, .. } => Some((meta, false)),
            _ => None,
        };
        if let Some((meta, directory)) = meta {
            meta.mode = modes.applied(meta.mode, directory);
        }
        self
    }

    /// What is to be kept besides content, if it says so.
    pub(crate) fn meta(&self) -> Option<&Meta> {
        match self {
            Record::Reenter { meta, .. }
            | Record::Enter { meta, .. }
            | Record::Link { meta, .. }
            | Record::File { meta, .. }
            | Record::Open { meta, .. }
            | Record::Settle { meta, .. }
            | Record::HardLink { meta, .. }
            | Record::Same { meta, .. }
            | Record::Stream { meta, .. } => Some(meta),
            _ => None,
        }
    }
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
    /// Digests of the units it has of the open file, from the first; answers an Open that asks for it.
    Have { digests: Vec<Digest>, last: bool },
    /// Files it could not write. `open`: the number of the file to stop sending, if it is one.
    Failed {
        failures: Vec<Failure>,
        open: Option<u64>,
    },
    /// All steps up to there are taken, with these totals on this connection.
    Settled { position: Position, totals: Totals },
    /// What could not be kept of files that are in their place: one for each kind. None: [`Feedback::AT_WORK`].
    NotKept { failures: Vec<Failure> },
    /// Everything is in its place, but for the failures. Answers Finish.
    Done(Totals),
}

impl Feedback {
    /// Says nothing but that the receiver is at work: of what could not be kept, none.
    pub(crate) const AT_WORK: Feedback = Feedback::NotKept {
        failures: Vec::new(),
    };
}

/// What a copy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files in their place, verified.
    pub files: u64,
    /// Of these, those that are further names of others, or of files in directories of links. Their bytes do not count.
    pub hard_links: u64,
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
    /// Files and links that were kept as backups when others took their place.
    pub backed_up: u64,
    /// Devices, sockets and FIFOs of the sources, which are not copied.
    pub skipped: u64,
    /// Files, directories and links that failed.
    pub failed: u64,
    /// Of these, those that vanished from the source before they were read.
    pub vanished: u64,
}

impl Totals {
    /// Of two connections of one copy.
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
