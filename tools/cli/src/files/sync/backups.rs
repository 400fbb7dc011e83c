//! Defines `--backup` and its options, which keep what a sync replaces or deletes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::ArgGroup;
use zerolane_files::Backup;

/// The default suffix of backups, as in cp and rsync.
const SUFFIX: &str = "~";

/// Options for backups of what a sync replaces or deletes.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new(BACKING_UP).multiple(true))]
pub(super) struct BackupArgs {
    /// Keep replaced and deleted files as NAME~
    #[arg(short, long, group = BACKING_UP, conflicts_with = "in_place")]
    backup: bool,
    /// Keep replaced and deleted files in DIR, a path relative to DST, under their paths in DST
    #[arg(long, value_name = "DIR", group = BACKING_UP, conflicts_with = "in_place")]
    backup_dir: Option<OsString>,
    /// With --backup: append SUFFIX to the names [default: ~, and nothing with --backup-dir]
    #[arg(long, value_name = "SUFFIX", requires = BACKING_UP)]
    suffix: Option<OsString>,
}

/// The group of options that make backups.
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
