//! `--backup` and its options: where what is replaced or deleted goes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::ArgGroup;
use zerolane_files::Backup;

/// What is appended to names when nothing else is said, as by cp and rsync.
const SUFFIX: &str = "~";

/// Backups of what is replaced or deleted.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new(BACKING_UP).multiple(true))]
pub(super) struct BackupArgs {
    /// Keep what is replaced or deleted as NAME~
    #[arg(short, long, group = BACKING_UP, conflicts_with = "in_place")]
    backup: bool,
    /// The same in the directory DIR, a path from DST, under the paths that the files have in DST
    #[arg(long, value_name = "DIR", group = BACKING_UP, conflicts_with = "in_place")]
    backup_dir: Option<OsString>,
    /// With --backup: append SUFFIX to the names [default: ~, and nothing with --backup-dir]
    #[arg(long, value_name = "SUFFIX", requires = BACKING_UP)]
    suffix: Option<OsString>,
}

/// The options with which a sync makes backups.
const BACKING_UP: &str = "backing_up";

impl BackupArgs {
    pub(super) fn backup(self) -> Option<Backup> {
        if !self.backup && self.backup_dir.is_none() {
            return None;
        }
        let directory = self.backup_dir.map(OsString::into_vec);
        let suffix = match (self.suffix, &directory) {
            (Some(suffix), _) => suffix.into_vec(),
            (None, None) => SUFFIX.into(),
            (None, Some(_)) => Vec::new(),
        };
        Some(Backup { directory, suffix })
    }
}
