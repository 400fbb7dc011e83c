//! Defines the options, events and results of a sync.

use crate::filter::Filter;
use crate::message::{Attributes, Backup, EntryKind, Totals};
use crate::modes::Modes;
use crate::observe::Observer;
use std::fmt;
use std::path::PathBuf;

/// A source directory, and the destination that gets its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncPaths {
    /// From this machine to the host.
    Push {
        /// The directory here. Symbolic links in this path are followed.
        source: PathBuf,
        /// The directory at the host; it is made if it does not exist.
        destination: Vec<u8>,
    },
    /// From the host to this machine.
    Pull {
        /// The directory at the host.
        source: Vec<u8>,
        /// The directory here; it is made if it does not exist.
        destination: PathBuf,
    },
}

/// How to make a directory equal to another.
#[derive(Debug, Default)]
pub struct SyncOptions {
    /// Report the steps without carrying them out.
    pub dry_run: bool,
    /// When everything else is done, remove extra files from the destination.
    pub delete: bool,
    /// Remove also if the source is empty.
    pub allow_empty_source: bool,
    /// Remove also files that the filter excludes at both ends, but not those that rules for the target protect.
    pub delete_excluded: bool,
    /// Remove at most that many files, links and directories; the others stay, and [`SyncTotals::over_limit`] counts
    /// them.
    pub max_delete: Option<u64>,
    /// Compare contents instead of size and time.
    pub checksum: bool,
    /// Seconds by which times of files may differ and count as the same. With 0, the target's time may still be the
    /// source's cut to a file system's resolution (a second, 10 ms, a millisecond and so on).
    pub modify_window: u32,
    /// Keep the part of a large file that a killed sync left, after verifying it.
    pub resume: bool,
    /// Write each file to disk (fsync) before it gets its name.
    pub durable: bool,
    /// Of changed files, send only the parts that differ: see [`CopyOptions::delta`](crate::CopyOptions::delta).
    pub delta: bool,
    /// Write into changed files: see [`CopyOptions::in_place`](crate::CopyOptions::in_place). Not with `backup`.
    pub in_place: bool,
    /// Keep replaced and removed files as backups. Without a directory for them, `delete` excludes names with their
    /// suffix, unless a rule of `filter` or `delete_excluded` says otherwise.
    pub backup: Option<Backup>,
    /// Copy the targets of the source's symbolic links: see
    /// [`CopyOptions::copy_links`](crate::CopyOptions::copy_links).
    pub copy_links: bool,
    /// Copy files that change meanwhile: see [`CopyOptions::allow_changing`](crate::CopyOptions::allow_changing).
    pub allow_changing: bool,
    /// Directories, as paths from the destination. A file that one of them has with the same compared and kept
    /// attributes is not sent but becomes a hard link to that. At most
    /// [`LINK_DIRECTORIES`](crate::limits::LINK_DIRECTORIES). Not with `in_place`.
    pub link_dest: Vec<Vec<u8>>,
    /// Leave permissions alone: see [`CopyOptions::no_permissions`](crate::CopyOptions::no_permissions).
    pub no_permissions: bool,
    /// Changes of the source's permissions, before they are compared and copied.
    pub modes: Modes,
    /// Attributes to keep and compare.
    pub attributes: Attributes,
    /// Files to exclude, at both ends.
    pub filter: Filter,
}

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The path below the directories, as bytes.
    pub path: &'a [u8],
    /// The entry's type: at the source, or for [`Action::Remove`] at the destination.
    pub kind: EntryKind,
    /// Size of a file, bytes.
    pub size: u64,
    /// The planned action.
    pub action: Action,
}

/// The action for a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The destination does not have it.
    Create,
    /// A file or link whose content differs, or may.
    Update,
    /// The destination has an entry of another type, which is removed when the new one has arrived.
    Replace,
    /// It becomes a hard link to another file at the destination. Links into [`SyncOptions::link_dest`] are reported
    /// after everything else.
    Link,
    /// The destination's file becomes a backup. Only with [`SyncOptions::backup`]; reported after the other action.
    BackUp,
    /// Only permissions or time differ.
    SetAttributes,
    /// It is extra. Only with [`SyncOptions::delete`].
    Remove,
    /// A device, socket or FIFO: it is not copied, and an entry with its name is not removed.
    Skip,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Action::Create => "new",
            Action::Update => "changed",
            Action::Replace => "replaced",
            Action::Link => "linked",
            Action::BackUp => "backup",
            Action::SetAttributes => "attributes",
            Action::Remove => "deleted",
            Action::Skip => "skipped",
        })
    }
}

/// Receives the events of a sync, in addition to those of the copy in it.
pub trait SyncObserver: Observer {
    /// A difference was found. Nothing was done about it so far.
    fn change(&self, change: &Change<'_>) {
        let _ = change;
    }
}

/// Ignores all events.
impl SyncObserver for () {}

/// The results of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncTotals {
    /// Files and links of the source, without excluded ones.
    pub listed: u64,
    /// How many of these are the same at the destination.
    pub unchanged: u64,
    /// How many of these differ only in permissions or time.
    pub attributes_set: u64,
    /// Devices, sockets and FIFOs of the source.
    pub skipped: u64,
    /// Results of copying. In a dry run, the files, links and bytes that would be copied.
    pub copied: Totals,
    /// Files, links and directories removed, or in a dry run those to be removed.
    pub deleted: u64,
    /// How many removed files and links were moved to backups. Backups of replaced files are counted in `copied`.
    pub deleted_to_backups: u64,
    /// Entries that stay because of [`SyncOptions::max_delete`].
    pub over_limit: u64,
    /// Entries that could not be listed, copied or removed.
    pub failed: u64,
    /// Why nothing was removed although it was requested.
    pub not_deleted: Option<NotDeleted>,
}

impl SyncOptions {
    /// How many files, links and directories may be removed.
    pub(crate) fn most_deleted(&self) -> u64 {
        self.max_delete.unwrap_or(u64::MAX)
    }
}

impl SyncTotals {
    /// The part of this plan that a later plan no longer has, because it was done.
    pub(crate) fn done_by(&self, later: &SyncTotals) -> SyncTotals {
        let (planned, left) = (&self.copied, &later.copied);
        SyncTotals {
            copied: Totals {
                files: planned.files.saturating_sub(left.files),
                hard_links: planned.hard_links.saturating_sub(left.hard_links),
                links: planned.links.saturating_sub(left.links),
                backed_up: planned.backed_up.saturating_sub(left.backed_up),
                bytes: planned.bytes.saturating_sub(left.bytes),
                ..Totals::default()
            },
            deleted: self.deleted.saturating_sub(later.deleted),
            deleted_to_backups: (self.deleted_to_backups).saturating_sub(later.deleted_to_backups),
            ..SyncTotals::default()
        }
    }
}

/// Why nothing was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDeleted {
    /// The source has no files and directories.
    #[error("the source is empty")]
    EmptySource,
    /// Some entries could not be listed or copied, and had not merely vanished from the source.
    #[error("not everything could be listed and copied")]
    Failures,
}
