//! Writes the log of a server: a line for each event on standard error, as text or as JSON.
//!
//! Clients cannot flood the log: each kind of line has a rate limit. The next line reports how many were left out.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;
use zerolane::counters::Account;
use zerolane_files::{Error, Failure, Peer, Refusal, ServerObserver, Totals, Verb, escape};

use super::pace::{Kind, Pace};
use crate::console;

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Bytes of paths in the line of a request, which may name many thousands.
const PATHS_BYTES: usize = 4096;

/// Writes lines.
pub(crate) struct Log {
    format: Format,
    pace: Mutex<Pace>,
    /// When each connection made its current request.
    since: Mutex<HashMap<u64, Instant>>,
}

/// A line. Fields without a value are left out.
#[derive(Clone, Debug, Default, Serialize)]
struct Line {
    time: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Escaped as on screen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// The number of lines or paths left out, or of keys not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// The reason, or another remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Line {
    fn new(event: &'static str) -> Line {
        Line {
            event,
            ..Line::default()
        }
    }

    fn of(event: &'static str, peer: &Peer) -> Line {
        Line {
            event,
            peer: Some(peer.address),
            key: peer.key.map(|key| key.to_string()),
            name: peer.name.as_ref().map(|name| escape(name.as_bytes())),
            ..Line::default()
        }
    }

    /// Names as many paths as fit.
    fn request(peer: &Peer, verb: Verb, paths: &[Vec<u8>]) -> Line {
        let mut room = PATHS_BYTES;
        let shown = paths.iter().map(|path| escape(path)).take_while(|it| {
            room = room.saturating_sub(it.len() + 3);
            room > 0
        });
        let shown: Vec<String> = shown.collect();
        let more = paths.len() - shown.len();
        Line {
            paths: shown,
            count: (more > 0).then_some(more as u64),
            ..Line::of(verb.word(), peer)
        }
    }

    fn because(self, reason: impl std::fmt::Display) -> Line {
        Line {
            reason: Some(reason.to_string()),
            ..self
        }
    }

    /// Formats the line as text: time, peer, event.
    fn text(&self) -> String {
        let mut words = vec![self.time.clone()];
        words.extend(self.peer.map(|peer| peer.to_string()));
        words.extend(self.key.clone());
        words.extend(self.name.as_ref().map(|name| format!("({name})")));
        words.push(format!("{}:", self.event));
        words.extend(self.paths.iter().map(|path| format!("{path:?}")));
        let counts = [
            (self.files, "files"),
            (self.bytes, "bytes"),
            (self.failed, "failed"),
            (self.count, "more"),
        ];
        let counts = counts
            .iter()
            .filter_map(|(count, of)| count.map(|count| format!("{count} {of}")));
        let seconds = self.seconds.map(|seconds| format!("{seconds:.3} s"));
        let rest: Vec<String> = counts.chain(seconds).chain(self.reason.clone()).collect();
        words.push(rest.join(", "));
        words.join(" ").trim_end_matches([' ', ':']).to_owned()
    }
}

impl Log {
    pub(crate) fn new(format: Format) -> Log {
        Log {
            format,
            pace: Mutex::new(Pace::new(Instant::now())),
            since: Mutex::default(),
        }
    }

    /// Logs a remark about the server itself.
    pub(crate) fn note(&self, reason: impl std::fmt::Display) {
        self.write(Line::new("note").because(reason));
    }

    /// Writes a line if the limit of its kind allows.
    fn tell(&self, kind: Kind, line: Line) {
        let now = Instant::now();
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left_out) = pace.admit(kind, now) else {
            return;
        };
        drop(pace);
        if left_out > 0 {
            let count = Some(left_out);
            let line = Line {
                count,
                ..Line::new("left-out")
            };
            self.write(line.because(format_args!("{} were too many to be written", kind.words())));
        }
        self.write(line);
    }

    fn write(&self, line: Line) {
        let time = format!("{:.3}", Timestamp::now());
        let line = Line { time, ..line };
        match self.format {
            Format::Text => console::note(line.text()),
            // Numbers and texts always serialize.
            Format::Json => console::note(serde_json::to_string(&line).unwrap_or_default()),
        }
    }

    fn since(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerObserver for Log {
    fn requested(&self, peer: &Peer, verb: Verb, paths: &[Vec<u8>]) {
        self.since().insert(peer.connection, Instant::now());
        self.tell(Kind::Request, Line::request(peer, verb, paths));
    }

    fn list_changed(&self, news: Result<usize, String>) {
        let line = Line::new("keys");
        self.write(match news {
            Ok(count) => line.because(format_args!(
                "the list of keys was read again: {} may connect",
                console::counted(count, "key")
            )),
            Err(why) => line.because(format_args!(
                "WARNING: the list of keys stays as it was, for it cannot be used: {why}"
            )),
        });
    }

    fn untrusted(&self, clients: &[Peer], more: u64) {
        for peer in clients {
            let line = Line::of("refused", peer);
            self.tell(Kind::Refusal, line.because("not on the list of keys"));
        }
        if more > 0 {
            let line = Line {
                count: Some(more),
                ..Line::new("refused")
            };
            self.tell(Kind::Refusal, line.because("not on the list of keys"));
        }
    }

    fn refused(&self, peer: &Peer, why: &Refusal) {
        self.tell(Kind::Refusal, Line::of("refused", peer).because(why));
    }

    fn wrong_code(&self, left: u32) {
        let line = Line::new("wrong-code");
        self.write(match left {
            0 => line.because("WARNING: a wrong code was tried again. This one is void now"),
            _ => line.because(format_args!(
                "WARNING: a client tried a wrong code. After {left} more this one is void"
            )),
        });
    }

    fn failed(&self, peer: &Peer, failure: &Failure) {
        let line = Line {
            paths: vec![escape(&failure.path)],
            ..Line::of("not-copied", peer)
        };
        self.tell(Kind::File, line.because(&failure.cause));
    }

    fn ended(&self, peer: &Peer, outcome: &Result<Option<Totals>, Error>, _: &Account) {
        let since = self.since().remove(&peer.connection);
        let seconds = since.map(|since| since.elapsed().as_secs_f64());
        let line = match outcome {
            Ok(totals) => Line {
                files: totals.as_ref().map(|it| it.files),
                bytes: totals.as_ref().map(|it| it.bytes),
                failed: totals.as_ref().map(|it| it.failed),
                ..Line::of("done", peer)
            },
            Err(Error::Refused(why)) => Line::of("refused", peer).because(why),
            Err(error) => Line::of("ended", peer).because(error),
        };
        self.tell(Kind::Request, Line { seconds, ..line });
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
