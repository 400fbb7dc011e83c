//! Options of the commands that copy: how they write, how long they try, what they say.

use std::time::Duration;

use super::limit::LimitArgs;
use super::progress::{Progress, Talk};
use super::within::Side;

/// How `cp` and `sync` write files.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WritingArgs {
    /// Keep what a killed copy left of a large file, where it is the same
    #[arg(long)]
    pub(crate) resume: bool,
    /// Of files that are there already, send only the parts that differ
    #[arg(long)]
    pub(crate) delta: bool,
    /// Write files that are there already themselves, and block devices that are named; marked while incomplete
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Have each file on the disk (fsync) before it gets its name
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Copy files that are written to meanwhile as they are read, such as logs, and do not refuse them
    #[arg(long)]
    pub(crate) allow_changing: bool,
}

/// How long `cp`, `sync` and `receive` try, how fast they are, and what they say.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CopyingArgs {
    /// When the connection breaks, try for this many seconds to go on with another one; 0: not at all [default: 300]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Events for machines, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress, and no summary at the end
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) limit: LimitArgs,
}

impl CopyingArgs {
    /// How long to try, if that was said.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }

    /// What is said of a copy to or from `side`; `verbose`: each file, too.
    pub(super) fn progress_with(&self, side: &Side, verbose: bool) -> Progress {
        let progress = self.progress(verbose);
        match side {
            Side::Host(_) => progress,
            Side::Here => progress.within(),
        }
    }

    /// What is said; `verbose`: each file, too.
    pub(crate) fn progress(&self, verbose: bool) -> Progress {
        let talk = match (self.quiet, verbose) {
            (true, _) => Talk::Quiet,
            (false, true) => Talk::Verbose,
            (false, false) => Talk::Normal,
        };
        Progress::new(self.json, talk)
    }
}
