//! How a copy shows its progress: a bar on a terminal, events for machines, or nothing.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde::Serialize;
use zerolane_files::{Cause, Failure, Observer, Totals, escape};

use crate::console;

/// An event of `--json`, one object a line on standard output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// What there is to copy.
    Counted { files: u64, bytes: u64 },
    /// How far it is, at most once a second.
    Progress { bytes: u64 },
    /// A file was not copied. The path is escaped as on screen if it is not plain text.
    Failed { path: &'a str, cause: &'a str },
    /// The last event.
    Summary(Summary),
}

/// What a copy did.
#[derive(Serialize)]
struct Summary {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    bytes_kept: u64,
    bytes_in_holes: u64,
    failed: u64,
    seconds: f64,
}

/// Shows the progress of one copy.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    json: bool,
    started: Instant,
    bytes: AtomicU64,
    /// Milliseconds after the start at which the next progress event is due.
    next_event: AtomicU64,
    corrupt: AtomicBool,
    /// Files for which the disk was full.
    no_space: AtomicU64,
}

const EVENT_MILLISECONDS: u64 = 1000;

impl Progress {
    /// A bar if standard error is a terminal and nothing else is asked for.
    pub(crate) fn new(json: bool, quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress {
            bar: (terminal && !json && !quiet).then(bar),
            json,
            started: Instant::now(),
            bytes: AtomicU64::new(0),
            next_event: AtomicU64::new(EVENT_MILLISECONDS),
            corrupt: AtomicBool::new(false),
            no_space: AtomicU64::new(0),
        }
    }

    /// Whether a total is needed.
    pub(crate) fn wants_total(&self) -> bool {
        self.bar.is_some() || self.json
    }

    /// Whether a digest did not match.
    pub(crate) fn saw_corruption(&self) -> bool {
        self.corrupt.load(Ordering::Relaxed)
    }

    /// The copy is over: removes the bar, and says what was not said for each file.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let more = self.no_space.load(Ordering::Relaxed).saturating_sub(1);
        if more > 0 && !self.json {
            let cause = Cause::NoSpace;
            console::note(format_args!("{more} more files: {cause}"));
        }
    }

    /// Says what the copy did.
    pub(crate) fn summarize(&self, totals: &Totals) {
        let elapsed = self.started.elapsed();
        if self.json {
            return emit(&Event::Summary(summary(totals, elapsed)));
        }
        if std::io::stderr().is_terminal() {
            console::note(in_words(totals, elapsed));
        }
    }

    /// Emits a progress event if one is due.
    fn tick(&self, bytes: u64) {
        let now = self.started.elapsed().as_millis() as u64;
        let due = self.next_event.load(Ordering::Relaxed);
        if now >= due {
            self.next_event
                .store(now + EVENT_MILLISECONDS, Ordering::Relaxed);
            emit(&Event::Progress { bytes });
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bytes:>11} of {total_bytes:<11} {wide_bar} {binary_bytes_per_sec:>13} {eta:>4} {msg:24!}",
    );
    let bar = ProgressBar::new(0);
    // The template is fixed; a style that does not parse would leave the default one.
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// A closed standard output is no reason to stop a copy.
fn emit(event: &Event<'_>) {
    if let Ok(line) = serde_json::to_string(event) {
        let _ = console::say(line);
    }
}

fn summary(totals: &Totals, elapsed: Duration) -> Summary {
    Summary {
        files: totals.files,
        directories: totals.directories,
        links: totals.links,
        bytes: totals.bytes,
        bytes_kept: totals.bytes_kept,
        bytes_in_holes: totals.bytes_in_holes,
        failed: totals.failed,
        seconds: elapsed.as_secs_f64(),
    }
}

fn in_words(totals: &Totals, elapsed: Duration) -> String {
    let rate = totals.bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    let mut words = format!(
        "{} files, {}, {:.2} s, {}/s, verified",
        totals.files,
        HumanBytes(totals.bytes),
        elapsed.as_secs_f64(),
        HumanBytes(rate as u64)
    );
    if totals.bytes_kept > 0 {
        words += &format!("; {} were there already", HumanBytes(totals.bytes_kept));
    }
    if totals.failed > 0 {
        words += &format!("; {} failed", totals.failed);
    }
    words
}

impl Observer for Progress {
    fn counted(&self, files: u64, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(bytes);
        }
        if self.json {
            emit(&Event::Counted { files, bytes });
        }
    }

    fn file_started(&self, path: &[u8], _size: u64) {
        if let Some(bar) = &self.bar {
            let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
            bar.set_message(escape(name));
        }
    }

    fn advanced(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
        if self.json {
            let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.tick(before + bytes);
        }
    }

    fn failed(&self, failure: &Failure) {
        if failure.cause == Cause::DigestMismatch {
            self.corrupt.store(true, Ordering::Relaxed);
        }
        // A full disk fails all files that follow: one message is enough.
        let no_space = failure.cause == Cause::NoSpace;
        if no_space && self.no_space.fetch_add(1, Ordering::Relaxed) > 0 && !self.json {
            return;
        }
        let path = escape(&failure.path);
        let cause = failure.cause.to_string();
        match (&self.bar, self.json) {
            (_, true) => emit(&Event::Failed {
                path: &path,
                cause: &cause,
            }),
            (Some(bar), _) => bar.suspend(|| console::note(format_args!("{path}: {cause}"))),
            (None, _) => console::note(format_args!("{path}: {cause}")),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn in_words__says_what_matters() {
        let totals = Totals {
            files: 3,
            bytes: 2048,
            ..Totals::default()
        };
        let words = in_words(&totals, Duration::from_secs(1));
        assert_eq!(words, "3 files, 2.00 KiB, 1.00 s, 2.00 KiB/s, verified");
        let totals = Totals {
            bytes_kept: 1024,
            failed: 1,
            ..totals
        };
        let words = in_words(&totals, Duration::from_secs(1));
        assert!(
            words.ends_with("; 1.00 KiB were there already; 1 failed"),
            "{words}"
        );
    }

    #[test]
    fn events__are_one_flat_object() {
        let event = Event::Summary(summary(
            &Totals {
                files: 1,
                ..Totals::default()
            },
            Duration::ZERO,
        ));
        let json = serde_json::to_value(event).unwrap();
        assert_eq!(
            (&json["event"], &json["files"]),
            (&"summary".into(), &1.into())
        );
    }
}
