//! Shows the progress of a copy: a bar on a terminal, events for machines, or nothing.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::IsTerminal;
use std::mem::{Discriminant, discriminant};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use zerolane_files::{Cause, Error, Failure, Observer, Totals, escape};

use crate::console;

/// An event of `--json`, one object a line on standard output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    /// The amount to copy.
    Counted { files: u64, bytes: u64 },
    /// The amount copied so far, at most once a second.
    Progress { bytes: u64 },
    /// A file begins; only with `-v`.
    Started { path: &'a str, bytes: u64 },
    /// A device, socket or FIFO, which is not copied.
    Skipped { path: &'a str },
    /// A file was not copied. The path is escaped as on screen if it is not plain text.
    Failed {
        path: &'a str,
        cause: &'a str,
        at_server: bool,
    },
    /// A file was copied without this attribute. Each cause is reported once.
    NotKept {
        path: &'a str,
        cause: &'a str,
        at_server: bool,
    },
    /// The connection broke. A new one is tried for this many seconds.
    Interrupted { cause: &'a str, seconds_left: f64 },
    /// A new connection continues, after an outage of this length; `bytes` belong to finished files.
    Reconnected { outage_seconds: f64, bytes: u64 },
    /// The last event.
    Summary(Summary),
}

/// The result of a copy.
#[derive(Serialize)]
struct Summary {
    files: u64,
    hard_links: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    bytes_kept: u64,
    bytes_in_holes: u64,
    skipped: u64,
    failed: u64,
    vanished: u64,
    reconnected: u64,
    seconds: f64,
}

/// How much a copy prints besides failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    /// Nothing.
    Quiet,
    /// A bar on a terminal, a line at the end.
    Normal,
    /// Also each file.
    Verbose,
}

/// Shows the progress of one copy.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    json: bool,
    talk: Talk,
    started: Instant,
    bytes: AtomicU64,
    /// Milliseconds after the start at which the next progress event is due.
    next_event: AtomicU64,
    corrupt: AtomicBool,
    repeated: Repeated,
    /// How often a new connection continued after one broke.
    reconnected: AtomicU64,
    /// An event could not be written.
    unsaid: AtomicBool,
    /// Attributes that could not be kept and were already reported.
    not_kept: Mutex<HashSet<Discriminant<Cause>>>,
    ends: Ends,
}

/// The names of the two ends in messages.
struct Ends {
    own: &'static str,
    other: &'static str,
}

const APART: Ends = Ends {
    own: ", here",
    other: ", at the server",
};
/// Within one machine, this process sends, and its own server receives.
const WITHIN: Ends = Ends {
    own: ", at the source",
    other: ", at the target",
};

const EVENT_MILLISECONDS: u64 = 1000;

impl Progress {
    /// A bar if standard error is a terminal that can show one and no other form is asked for.
    pub(crate) fn new(json: bool, talk: Talk) -> Progress {
        let term = std::env::var_os("TERM");
        let terminal = std::io::stderr().is_terminal() && moves_back(term.as_deref());
        Progress {
            bar: (terminal && !json && talk != Talk::Quiet).then(bar),
            json,
            talk,
            started: Instant::now(),
            bytes: AtomicU64::new(0),
            next_event: AtomicU64::new(EVENT_MILLISECONDS),
            corrupt: AtomicBool::new(false),
            repeated: Repeated::default(),
            reconnected: AtomicU64::new(0),
            unsaid: AtomicBool::new(false),
            not_kept: Mutex::default(),
            ends: APART,
        }
    }

    /// Names the ends of a copy within this machine.
    pub(super) fn within(mut self) -> Progress {
        self.ends = WITHIN;
        self
    }

    /// Whether a total is needed.
    pub(crate) fn wants_total(&self) -> bool {
        self.bar.is_some() || self.json
    }

    /// Whether a digest did not match.
    pub(crate) fn saw_corruption(&self) -> bool {
        self.corrupt.load(Ordering::Relaxed)
    }

    /// How often a new connection continued after one broke.
    pub(crate) fn times_reconnected(&self) -> u64 {
        self.reconnected.load(Ordering::Relaxed)
    }

    /// Whether all events were written.
    pub(crate) fn said_all(&self) -> bool {
        !self.unsaid.load(Ordering::Relaxed)
    }

    /// Ends the display: removes the bar, and prints the number of failures not printed singly.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if !self.json {
            self.repeated.summarize();
        }
    }

    /// Prints the result of the copy.
    pub(crate) fn summarize(&self, totals: &Totals) {
        let elapsed = self.started.elapsed();
        let reconnected = self.times_reconnected();
        if self.json {
            return self.emit(&Event::Summary(summary(totals, elapsed, reconnected)));
        }
        if self.talk != Talk::Quiet {
            console::note(in_words(totals, elapsed, reconnected));
        }
    }

    /// Prints a line for people, unless quiet.
    fn note(&self, line: impl Display) {
        if !self.json && self.talk != Talk::Quiet {
            self.above(line);
        }
    }

    /// Prints a line above the bar.
    fn above(&self, line: impl Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| console::note(line)),
            None => console::note(line),
        }
    }

    /// Writes an event. An event that cannot be written does not stop the copy.
    fn emit(&self, event: &Event<'_>) {
        let said = serde_json::to_string(event).is_ok_and(|line| console::say(line).is_ok());
        if !said {
            self.unsaid.store(true, Ordering::Relaxed);
        }
    }

    /// Prints a line on standard output, above the bar. A closed standard output does not stop the copy.
    pub(crate) fn line(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.suspend(|| drop(console::say(line))),
            None => drop(console::say(line)),
        }
    }

    /// Emits a progress event if one is due.
    fn tick(&self, bytes: u64) {
        let now = self.started.elapsed().as_millis() as u64;
        let due = self.next_event.load(Ordering::Relaxed);
        if now >= due {
            self.next_event
                .store(now + EVENT_MILLISECONDS, Ordering::Relaxed);
            self.emit(&Event::Progress { bytes });
        }
    }
}

/// Failures that come in great numbers: a full disk fails all files that follow, a missing directory all files in it.
/// Only the first is printed, and at the end the number of the others.
#[derive(Default)]
struct Repeated {
    no_space: AtomicU64,
    no_directory: AtomicU64,
}

impl Repeated {
    /// Counts a failure. Returns the count of its kind, this one included, or 1 for kinds that are always printed.
    fn count(&self, cause: &Cause) -> u64 {
        let count = match cause {
            Cause::NoSpace => &self.no_space,
            Cause::NoDirectory => &self.no_directory,
            _ => return 1,
        };
        count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Prints how many failures were not printed.
    fn summarize(&self) {
        for (count, cause) in [
            (&self.no_space, Cause::NoSpace),
            (&self.no_directory, Cause::NoDirectory),
        ] {
            let more = count.load(Ordering::Relaxed).saturating_sub(1);
            if more > 0 {
                let files = console::counted(more, "more file");
                console::note(format_args!("{files}: {cause}"));
            }
        }
    }
}

/// Whether a terminal of this type can overwrite a line, as a bar needs. Those called `dumb` cannot, nor those without
/// a name, such as an editor's window.
fn moves_back(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

fn bar() -> ProgressBar {
    let size = tcgetwinsize(std::io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    let bar = ProgressBar::new(0);
    // The templates are fixed; a style that does not parse would leave the default one.
    let style = ProgressStyle::with_template(template(columns));
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// The widest template that fits the terminal: a line that wraps cannot be overwritten. Zero columns means that the
/// terminal does not report its width.
fn template(columns: usize) -> &'static str {
    match columns {
        0 | 80.. => {
            "{bytes:>11} of {total_bytes:<11} {wide_bar} {binary_bytes_per_sec:>13} {eta:>4} {msg:24!}"
        }
        56.. => "{bytes:>11} of {total_bytes:<11} {wide_bar} {binary_bytes_per_sec:>13} {eta:>4}",
        32.. => "{bytes:>11} {wide_bar} {percent:>3}% {eta:>4}",
        _ => "{percent:>3}%",
    }
}

fn summary(totals: &Totals, elapsed: Duration, reconnected: u64) -> Summary {
    Summary {
        files: totals.files,
        hard_links: totals.hard_links,
        directories: totals.directories,
        links: totals.links,
        bytes: totals.bytes,
        bytes_kept: totals.bytes_kept,
        bytes_in_holes: totals.bytes_in_holes,
        skipped: totals.skipped,
        failed: totals.failed,
        vanished: totals.vanished,
        reconnected,
        seconds: elapsed.as_secs_f64(),
    }
}

fn in_words(totals: &Totals, elapsed: Duration, reconnected: u64) -> String {
    let rate = totals.bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    let mut words = format!(
        "{}, {}, {:.2} s, {}/s, verified",
        console::counted(totals.files, "file"),
        HumanBytes(totals.bytes),
        elapsed.as_secs_f64(),
        HumanBytes(rate as u64)
    );
    if totals.bytes_kept > 0 {
        words += &format!("; {} were there already", HumanBytes(totals.bytes_kept));
    }
    if totals.hard_links > 0 {
        words += &format!(
            "; {} among them",
            console::counted(totals.hard_links, "hard link")
        );
    }
    if totals.links > 0 {
        words += &format!("; {}", console::counted(totals.links, "link"));
    }
    if totals.skipped > 0 {
        words += &format!(
            "; {} skipped",
            console::counted(totals.skipped, "special file")
        );
    }
    match reconnected {
        0 => {}
        number => words += &format!("; reconnected {}", console::times(number)),
    }
    if totals.failed > 0 {
        words += &format!("; {} failed", totals.failed);
    }
    words
}

impl Progress {
    /// Prints a failure, at the server or here.
    fn tell(&self, failure: &Failure, at_server: bool) {
        if failure.cause == Cause::DigestMismatch {
            self.corrupt.store(true, Ordering::Relaxed);
        }
        if self.repeated.count(&failure.cause) > 1 && !self.json {
            return;
        }
        let path = escape(&failure.path);
        let cause = failure.cause.to_string();
        if self.json {
            return self.emit(&Event::Failed {
                path: &path,
                cause: &cause,
                at_server,
            });
        }
        let end = match (at_server, &failure.cause) {
            (true, _) => self.ends.other,
            (false, Cause::PermissionDenied) => self.ends.own,
            (false, _) => "",
        };
        let line = format_args!("{path}: {cause}{end}");
        self.above(line);
    }
}

impl Observer for Progress {
    fn counted(&self, files: u64, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(bytes);
        }
        if self.json {
            self.emit(&Event::Counted { files, bytes });
        }
    }

    fn file_started(&self, path: &[u8], size: u64) {
        if self.talk == Talk::Verbose {
            let path = escape(path);
            let line = || console::note(format_args!("{path}, {}", HumanBytes(size)));
            match (&self.bar, self.json) {
                (_, true) => self.emit(&Event::Started {
                    path: &path,
                    bytes: size,
                }),
                (Some(bar), _) => bar.suspend(line),
                (None, _) => line(),
            }
        }
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

    fn skipped(&self, path: &[u8]) {
        let path = escape(path);
        if self.json {
            return self.emit(&Event::Skipped { path: &path });
        }
        let line = format_args!("{path}: skipped (device, socket or FIFO)");
        self.above(line);
    }

    fn not_kept(&self, failure: &Failure, there: bool) {
        let mut said = self.not_kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.insert(discriminant(&failure.cause)) {
            return;
        }
        let (path, cause) = (escape(&failure.path), failure.cause.to_string());
        if self.json {
            return self.emit(&Event::NotKept {
                path: &path,
                cause: &cause,
                at_server: there,
            });
        }
        let end = if there { self.ends.other } else { "" };
        let line = format_args!("{path}: {cause}{end}. This is said once, for all files.");
        self.above(line);
    }

    fn interrupted(&self, why: &Error, left: Duration) {
        if self.json {
            let cause = why.to_string();
            return self.emit(&Event::Interrupted {
                cause: &cause,
                seconds_left: left.as_secs_f64(),
            });
        }
        self.note(format_args!(
            "The copy is interrupted: {why}. It goes on when the server can be reached again, within {} s \
             (--timeout).",
            left.as_secs_f64().ceil()
        ));
    }

    fn waiting(&self, left: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("waiting, {} s left", left.as_secs()));
        }
    }

    fn reconnected(&self, outage: Duration, bytes: u64) {
        self.reconnected.fetch_add(1, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        if self.json {
            return self.emit(&Event::Reconnected {
                outage_seconds: outage.as_secs_f64(),
                bytes,
            });
        }
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            bar.set_message("");
        }
        self.note(format_args!(
            "Connected again after {:.1} s: the copy goes on.",
            outage.as_secs_f64()
        ));
    }

    fn failed(&self, failure: &Failure) {
        self.tell(failure, false);
    }

    fn failed_remotely(&self, failure: &Failure) {
        self.tell(failure, true);
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
        let words = in_words(&totals, Duration::from_secs(1), 0);
        assert_eq!(words, "3 files, 2.00 KiB, 1.00 s, 2.00 KiB/s, verified");
        let totals = Totals {
            bytes_kept: 1024,
            failed: 1,
            ..totals
        };
        let words = in_words(&totals, Duration::from_secs(1), 2);
        assert!(
            words.ends_with("; 1.00 KiB were there already; reconnected 2 times; 1 failed"),
            "{words}"
        );
    }

    #[test]
    fn moves_back__not_a_dumb_terminal() {
        let of = |term: &'static str| moves_back(Some(OsStr::new(term)));
        assert!(of("xterm-256color") && of("linux"));
        assert!(!of("dumb") && !of("") && !moves_back(None));
    }

    #[test]
    fn events__are_one_flat_object() {
        let event = Event::Summary(summary(
            &Totals {
                files: 1,
                ..Totals::default()
            },
            Duration::ZERO,
            0,
        ));
        let json = serde_json::to_value(event).unwrap();
        assert_eq!(
            (&json["event"], &json["files"]),
            (&"summary".into(), &1.into())
        );
    }
}
