//! Prints what a sync does with each file, and its totals.

use std::time::{Duration, Instant};

use indicatif::HumanBytes;
use serde::Serialize;
use zerolane_files::{
    Action, Change, EntryKind, Error, Failure, Observer, SyncObserver, SyncOptions, SyncTotals,
    escape,
};

use crate::console;
use crate::files::list::kind;
use crate::files::progress::Progress;

/// A progress output that also prints changes.
pub(super) struct Shown {
    pub(super) progress: Progress,
    /// Whether to print what is done with each file.
    pub(super) lines: bool,
    pub(super) json: bool,
}

/// A change, as an event of `--json`.
#[derive(Serialize)]
struct Event<'a> {
    event: &'static str,
    action: &'a str,
    kind: &'static str,
    path: &'a str,
    bytes: u64,
}

impl Observer for Shown {
    fn counted(&self, files: u64, bytes: u64) {
        self.progress.counted(files, bytes);
    }

    fn file_started(&self, path: &[u8], size: u64) {
        self.progress.file_started(path, size);
    }

    fn advanced(&self, bytes: u64) {
        self.progress.advanced(bytes);
    }

    fn skipped(&self, path: &[u8]) {
        self.progress.skipped(path);
    }

    fn failed(&self, failure: &Failure) {
        self.progress.failed(failure);
    }

    fn failed_remotely(&self, failure: &Failure) {
        self.progress.failed_remotely(failure);
    }

    fn not_kept(&self, failure: &Failure, there: bool) {
        self.progress.not_kept(failure, there);
    }

    fn interrupted(&self, why: &Error, left: Duration) {
        self.progress.interrupted(why, left);
    }

    fn waiting(&self, left: Duration) {
        self.progress.waiting(left);
    }

    fn reconnected(&self, outage: Duration, bytes: u64) {
        self.progress.reconnected(outage, bytes);
    }
}

impl SyncObserver for Shown {
    fn change(&self, change: &Change<'_>) {
        // Skipped paths are always printed.
        if !self.lines && change.action != Action::Skip {
            return;
        }
        match self.json {
            true => {
                let event = Event {
                    event: "change",
                    action: &change.action.to_string(),
                    kind: kind(change.kind),
                    path: &escape(change.path),
                    bytes: change.size,
                };
                if let Ok(line) = serde_json::to_string(&event) {
                    self.progress.line(line);
                }
            }
            false => self.progress.line(line(change)),
        }
    }
}

/// Formats one change: `new         dir/file (1.00 KiB)`.
fn line(change: &Change<'_>) -> String {
    let path = escape(change.path);
    let end = match change.kind {
        EntryKind::Directory => "/".into(),
        EntryKind::File => format!(" ({})", HumanBytes(change.size)),
        EntryKind::Link => " (link)".into(),
        EntryKind::Special => " (device, socket or FIFO)".into(),
    };
    format!("{:<11}{path}{end}", change.action)
}

/// The last event of `--json`.
#[derive(Serialize)]
pub(super) struct Summary {
    event: &'static str,
    dry_run: bool,
    listed: u64,
    unchanged: u64,
    attributes: u64,
    sent: u64,
    hard_links: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    bytes_kept: u64,
    bytes_in_holes: u64,
    deleted: u64,
    backed_up: u64,
    over_limit: u64,
    skipped: u64,
    failed: u64,
    vanished: u64,
    reconnected: u64,
    not_deleted: Option<String>,
    unused_filters: Vec<String>,
    seconds: f64,
}

impl Summary {
    pub(super) fn of(
        totals: &SyncTotals,
        options: &SyncOptions,
        started: Instant,
        reconnected: u64,
    ) -> Summary {
        Summary {
            event: "summary",
            dry_run: options.dry_run,
            listed: totals.listed,
            unchanged: totals.unchanged,
            attributes: totals.attributes_set,
            sent: totals.copied.files.saturating_sub(totals.copied.hard_links),
            hard_links: totals.copied.hard_links,
            directories: totals.copied.directories,
            links: totals.copied.links,
            bytes: totals.copied.bytes,
            bytes_kept: totals.copied.bytes_kept,
            bytes_in_holes: totals.copied.bytes_in_holes,
            deleted: totals.deleted,
            backed_up: backed_up(totals),
            over_limit: totals.over_limit,
            skipped: totals.skipped,
            failed: totals.failed,
            vanished: totals.copied.vanished,
            reconnected,
            not_deleted: totals.not_deleted.as_ref().map(ToString::to_string),
            unused_filters: options.filter.unused(),
            seconds: started.elapsed().as_secs_f64(),
        }
    }
}

/// The number of files that became backups when they were replaced or deleted.
fn backed_up(totals: &SyncTotals) -> u64 {
    totals.copied.backed_up + totals.deleted_to_backups
}

pub(super) fn in_words(
    totals: &SyncTotals,
    options: &SyncOptions,
    started: Instant,
    reconnected: u64,
) -> String {
    let would = if options.dry_run { "to be " } else { "" };
    let mut words = format!(
        "{} listed, {} unchanged, {} {would}sent ({}), {} {would}deleted, {} failed; {:.2} s",
        totals.listed,
        totals.unchanged,
        totals.copied.files.saturating_sub(totals.copied.hard_links) + totals.copied.links,
        HumanBytes(totals.copied.bytes),
        totals.deleted,
        totals.failed,
        started.elapsed().as_secs_f64(),
    );
    let mut add = |number: u64, what: &str| {
        if number > 0 {
            words += &format!("; {number} {what}");
        }
    };
    add(totals.copied.hard_links, "linked");
    add(backed_up(totals), "backed up");
    add(
        totals.attributes_set,
        "that differed only in permissions or time",
    );
    if totals.skipped > 0 {
        let skipped = console::counted(totals.skipped, "special file");
        words += &format!("; {skipped} skipped");
    }
    match reconnected {
        0 => {}
        number => words += &format!("; reconnected {}", console::times(number)),
    }
    let unused = options.filter.unused();
    if !unused.is_empty() {
        words += &format!("; filters that matched nothing: {}", unused.join(" "));
    }
    words
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn line__says_what_and_where() {
        let change = |path, kind, action| Change {
            path,
            kind,
            size: 2048,
            action,
        };
        let said = |it: Change<'_>| line(&it);
        assert_eq!(
            said(change(b"a/b\n", EntryKind::File, Action::Update)),
            "changed    a/b\\n (2.00 KiB)"
        );
        assert_eq!(
            said(change(b"a", EntryKind::Directory, Action::Remove)),
            "deleted    a/"
        );
    }
}
