//! Defines the options that `cp`, `sync` and `receive` share: writing, patience and output.

use std::time::Duration;

use super::limit::LimitArgs;
use super::progress::{Progress, Talk};
use super::within::Side;

/// How `cp` and `sync` write files.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WritingArgs {
    /// Continue a large file that a killed copy left incomplete, as far as it is the same
    #[arg(long)]
    pub(crate) resume: bool,
    /// Of existing files, send only the parts that differ
    #[arg(long)]
    pub(crate) delta: bool,
    /// Write existing files in place, also block devices named as targets; they are marked while incomplete
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Write each file to the disk (fsync) before it gets its name
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Copy files that change while they are read, such as logs, instead of refusing them
    #[arg(long)]
    pub(crate) allow_changing: bool,
}

/// How long `cp`, `sync` and `receive` try, how fast they copy, and what they print.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CopyingArgs {
    /// When the connection breaks, try for this many seconds to continue over a new one; 0: do not [default: 300]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print events for machines, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress, and no summary at the end
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
}

impl CopyingArgs {
    /// The patience on the command line, if given.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }

    /// The progress output for a copy to or from `side`; with `verbose`, also each file.
    pub(super) fn progress_with(&self, side: &Side, verbose: bool) -> Progress {
        let progress = self.progress(verbose);
        match side {
            Side::Host(_) => progress,
            Side::Here => progress.within(),
        }
    }

    /// The progress output; with `verbose`, also each file.
    pub(crate) fn progress(&self, verbose: bool) -> Progress {
        let talk = match (self.quiet, verbose) {
            (true, _) => Talk::Quiet,
            (false, true) => Talk::Verbose,
            (false, false) => Talk::Normal,
        };
        Progress::new(self.json, talk)
    }
}
