//! What a sync is asked for, what it tells, and what came of it.

use crate::filter::Filter;
use crate::message::{Attributes, Backup, EntryKind, Totals};
use crate::modes::Modes;
use crate::observe::Observer;
use std::fmt;
use std::path::PathBuf;

/// A directory, and the one that is to have its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncPaths {
    /// From this machine to the host.
    Push {
        /// The directory here. Symbolic links in this path are followed.
        source: PathBuf,
        /// The directory at the host; it is made if it is not there.
        destination: Vec<u8>,
    },
    /// From the host to this machine.
    Pull {
        /// The directory at the host.
        source: Vec<u8>,
        /// The directory here; it is made if it is not there.
        destination: PathBuf,
    },
}

/// How to make a directory equal to another.
#[derive(Debug, Default)]
pub struct SyncOptions {
    /// Tell what would be done, and do nothing.
    pub dry_run: bool,
    /// When all else is done, remove from the destination what the source has not.
    pub delete: bool,
    /// Remove also if the source has nothing at all.
    pub allow_empty_source: bool,
    /// Remove also what the filter leaves alone at both ends, but not what rules for the target protect.
    pub delete_excluded: bool,
    /// Remove at most so many files, links and directories; the others stay, and [`SyncTotals::over_limit`] counts them.
    pub max_delete: Option<u64>,
    /// Compare contents instead of size and time.
    pub checksum: bool,
    /// Seconds by which times of files may differ and count as the same. With 0, a time that is the
    /// source's cut to what a file system keeps (a second, 10 ms, a millisecond and so on) is the same.
    pub modify_window: u32,
    /// Keep what a killed sync left of a large file, after verifying it.
    pub resume: bool,
    /// Have each file on the disk (fsync) before it gets its name.
    pub durable: bool,
    /// Of changed files, send only the parts that differ: see [`CopyOptions::delta`](crate::CopyOptions::delta).
    pub delta: bool,
    /// Write changed files themselves: see [`CopyOptions::in_place`](crate::CopyOptions::in_place). Not with `backup`.
    pub in_place: bool,
    /// Keep what is replaced or removed as backups. Without a directory for them, `delete` leaves names with their suffix
    /// alone, unless a rule of `filter` says otherwise or `delete_excluded` is given.
    pub backup: Option<Backup>,
    /// Take what symbolic links of the source lead to: see [`CopyOptions::copy_links`](crate::CopyOptions::copy_links).
    pub copy_links: bool,
    /// Copy files that change meanwhile: see [`CopyOptions::allow_changing`](crate::CopyOptions::allow_changing).
    pub allow_changing: bool,
    /// Directories, as paths from the destination: a file that one of them has, the same in all that is compared and kept, is
    /// not sent but becomes a hard link of that. At most [`LINK_DIRECTORIES`](crate::limits::LINK_DIRECTORIES). Not with
    /// `in_place`.
    pub link_dest: Vec<Vec<u8>>,
    /// Leave permissions alone: see [`CopyOptions::no_permissions`](crate::CopyOptions::no_permissions).
    pub no_permissions: bool,
    /// Changes of the source's permissions, before they are compared and copied.
    pub modes: Modes,
    /// What is kept of files besides, and compared.
    pub attributes: Attributes,
    /// What is left alone, at both ends.
    pub filter: Filter,
}

/// One difference, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The path below the directories, as bytes.
    pub path: &'a [u8],
    /// What it is: at the source, or for [`Action::Remove`] at the destination.
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
    /// What is to be done.
    pub action: Action,
}

/// What a difference asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// It is not there.
    Create,
    /// A file or link whose content differs, or may.
    Update,
    /// Something of another type stands there, which goes when this has come.
    Replace,
    /// It is to be a hard link of a file that is there, or comes. Of one in [`SyncOptions::link_dest`] it is told after all
    /// else.
    Link,
    /// What stands there becomes a backup. Only with [`SyncOptions::backup`]; told after what else is done.
    BackUp,
    /// Only permissions or time differ.
    Settle,
    /// It is too much. Only with [`SyncOptions::delete`].
    Remove,
    /// A device, socket or FIFO: it is not copied, and nothing of its name is removed.
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
            Action::Settle => "attributes",
            Action::Remove => "deleted",
            Action::Skip => "skipped",
        })
    }
}

/// Gets the events of a sync, besides those of the copy in it.
pub trait SyncObserver: Observer {
    /// A difference was found. Nothing was done about it so far.
    fn change(&self, change: &Change<'_>) {
        let _ = change;
    }
}

/// Ignores all events.
impl SyncObserver for () {}

/// What a sync found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncTotals {
    /// Files and links of the source, without what filters leave out.
    pub listed: u64,
    /// Of these, those that are the same at the destination.
    pub unchanged: u64,
    /// Of these, those of which only permissions or time differ.
    pub settled: u64,
    /// Devices, sockets and FIFOs of the source.
    pub skipped: u64,
    /// What was copied. In a dry run files, links and bytes that would be.
    pub copied: Totals,
    /// Files, links and directories removed, or in a dry run to be removed.
    pub deleted: u64,
    /// Of the removed, files and links that were moved to backups. Those of what was replaced are in `copied`.
    pub deleted_to_backups: u64,
    /// Those that should go, too, and stay because of [`SyncOptions::max_delete`].
    pub over_limit: u64,
    /// What could not be listed, copied or removed.
    pub failed: u64,
    /// Why nothing was removed although it should have been.
    pub kept: Option<Kept>,
}

impl SyncOptions {
    /// How many files, links and directories may be removed.
    pub(crate) fn most_deleted(&self) -> u64 {
        self.max_delete.unwrap_or(u64::MAX)
    }
}

impl SyncTotals {
    /// What of this plan a later one has not: it was done.
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
pub enum Kept {
    /// The source has no files and directories.
    #[error("the source is empty")]
    EmptySource,
    /// Something could not be listed or copied, and had not only vanished from the source.
    #[error("not everything could be listed and copied")]
    Failures,
}
