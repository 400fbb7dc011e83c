//! How a cast is shown while it lasts, and at its end.

use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::HumanBytes;
use serde::Serialize;
use zerolane_castnet::{Outcome, Progress};

use crate::console;

/// Time between two lines about the progress.
const PACE: Duration = Duration::from_secs(2);

/// Hosts that are named as stragglers at a time.
const STRAGGLERS: usize = 5;

/// Says how far it is, now and then, to a terminal.
#[derive(Debug)]
pub(super) struct Talk {
    said: Instant,
    shown: bool,
}

impl Talk {
    pub(super) fn new(quiet: bool) -> Talk {
        Talk {
            said: Instant::now(),
            shown: !quiet && std::io::stderr().is_terminal(),
        }
    }

    pub(super) fn tell(&mut self, words: impl FnOnce() -> String) {
        if self.shown && self.said.elapsed() >= PACE {
            self.said = Instant::now();
            console::note(words());
        }
    }
}

/// A line for the group, and one for each that is far behind.
pub(super) fn progress(progress: &Progress<'_>) -> String {
    let percent = |chunks: u32| u64::from(chunks) * 100 / u64::from(progress.chunks.max(1));
    let mut chunks: Vec<u32> = progress.hosts.iter().map(|it| it.1).collect();
    chunks.sort_unstable();
    let median = chunks.get(chunks.len() / 2).copied().unwrap_or(0);
    let mut words = format!(
        "{} % at {} hosts; {} done, {} failed",
        percent(median),
        chunks.len(),
        progress.done,
        progress.failed
    );
    let behind = progress
        .hosts
        .iter()
        .filter(|it| 2 * u64::from(it.1) < u64::from(median));
    for (host, chunks) in behind.take(STRAGGLERS) {
        words += &format!("\n  {host}: {} %", percent(*chunks));
    }
    words
}

/// The end of a cast.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    seconds: f64,
    predicted_seconds: Option<f64>,
    nodes: usize,
    failed: Vec<Failed>,
    bytes: u64,
    sent_bytes: u64,
    source_changed: bool,
    hosts: Vec<HostShown>,
}

#[derive(Debug, Serialize)]
struct Failed {
    host: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct HostShown {
    host: String,
    ok: bool,
    seconds: f64,
}

impl From<&Outcome> for Summary {
    fn from(it: &Outcome) -> Summary {
        let failed = it.hosts.iter().filter_map(|it| {
            let (host, reason) = (it.name.clone(), it.result.clone().err()?);
            Some(Failed { host, reason })
        });
        let hosts = it.hosts.iter().map(|it| HostShown {
            host: it.name.clone(),
            ok: it.result.is_ok(),
            seconds: it.after.as_secs_f64(),
        });
        Summary {
            seconds: it.took.as_secs_f64(),
            predicted_seconds: it.predicted.map(|it| it.as_secs_f64()),
            nodes: it.hosts.len(),
            failed: failed.collect(),
            bytes: it.bytes,
            sent_bytes: it.sent,
            source_changed: it.changed,
            hosts: hosts.collect(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for host in self.hosts.iter().filter(|it| it.ok) {
            writeln!(f, "{}: has it after {:.1} s", host.host, host.seconds)?;
        }
        for failed in &self.failed {
            writeln!(f, "{}: FAILED: {}", failed.host, failed.reason)?;
        }
        let done = self.nodes - self.failed.len();
        write!(
            f,
            "{} to {done} of {} hosts in {:.1} s",
            HumanBytes(self.bytes),
            self.nodes,
            self.seconds
        )?;
        if let Some(predicted) = self.predicted_seconds {
            write!(f, "; {predicted:.1} s were predicted from its first part")?;
        }
        if self.source_changed {
            write!(
                f,
                "\nTHE SOURCE CHANGED while it was cast: what the hosts have may be of two states of it"
            )?;
        }
        Ok(())
    }
}
