//! Prints the progress of a cast, and its summary.

use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::HumanBytes;
use serde::Serialize;
use zerolane_castnet::{Error, HostOutcome, Outcome, Progress};

use crate::console;

/// Time between two progress lines.
const PACE: Duration = Duration::from_secs(2);

/// Most hosts that one report names as stragglers.
const STRAGGLERS: usize = 5;

/// A host that finishes less than this after the median is no straggler.
const LATE: Duration = Duration::from_secs(1);

/// Reports progress at intervals.
#[derive(Debug)]
pub(super) struct Talk {
    said: Instant,
    form: Form,
}

/// The form of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// No reports.
    Silent,
    /// Lines on standard error.
    Lines,
    /// JSON objects on standard output.
    Objects,
}

impl Talk {
    /// Reports to the terminal, if there is one.
    pub(super) fn new(quiet: bool) -> Talk {
        let form = match !quiet && std::io::stderr().is_terminal() {
            true => Form::Lines,
            false => Form::Silent,
        };
        let said = Instant::now();
        Talk { said, form }
    }

    /// Reports to a program that reads JSON.
    pub(super) fn of_objects(quiet: bool) -> Talk {
        let form = if quiet { Form::Silent } else { Form::Objects };
        let said = Instant::now();
        Talk { said, form }
    }

    /// Prints a message that has no JSON form.
    pub(super) fn say(&mut self, words: impl FnOnce() -> String) {
        if self.form == Form::Lines && self.is_due() {
            console::note(words());
        }
    }

    /// Reports the state of a cast.
    pub(super) fn tell(&mut self, state: impl FnOnce() -> State) {
        if self.form == Form::Silent || !self.is_due() {
            return;
        }
        match (self.form, state()) {
            (Form::Objects, state) => {
                // A closed standard output is noticed when the summary is written.
                let object = serde_json::to_string(&state);
                let _ = console::say(object.expect("figures and names have a form"));
            }
            (_, state) => console::note(state),
        }
    }

    fn is_due(&mut self) -> bool {
        let due = self.said.elapsed() >= PACE;
        if due {
            self.said = Instant::now();
        }
        due
    }
}

/// The state of a cast.
#[derive(Debug, Serialize)]
pub(super) struct State {
    /// Of the content, at the median of the participating hosts.
    percent: u64,
    taking_part: usize,
    done: usize,
    failed: usize,
    /// Hosts that have less than half of the median, slowest first.
    stragglers: Vec<Straggler>,
}

#[derive(Debug, Serialize)]
struct Straggler {
    host: String,
    percent: u64,
}

impl From<&Progress<'_>> for State {
    fn from(it: &Progress<'_>) -> State {
        let percent = |chunks: u32| u64::from(chunks) * 100 / u64::from(it.chunks.max(1));
        let mut hosts = it.hosts.clone();
        hosts.sort_by_key(|it| it.1);
        let median = hosts.get(hosts.len() / 2).map_or(0, |it| it.1);
        let behind = hosts
            .iter()
            .take_while(|it| 2 * u64::from(it.1) < u64::from(median));
        let stragglers = behind.map(|(host, chunks)| Straggler {
            host: (*host).to_owned(),
            percent: percent(*chunks),
        });
        State {
            percent: percent(median),
            taking_part: hosts.len(),
            done: it.done,
            failed: it.failed,
            stragglers: stragglers.collect(),
        }
    }
}

/// One line for the group, and one for each straggler, if there are few.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} % at {}; {} done, {} failed",
            self.percent,
            console::counted(self.taking_part, "host"),
            self.done,
            self.failed
        )?;
        for it in self.stragglers.iter().take(STRAGGLERS) {
            write!(f, "\n  {}: {} %", it.host, it.percent)?;
        }
        match self.stragglers.len().saturating_sub(STRAGGLERS) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more that are far behind"),
        }
    }
}

/// The summary of a cast.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// Why the cast ended before each host had finished or failed; null if it did not.
    reason: Option<String>,
    seconds: f64,
    predicted_seconds: Option<f64>,
    /// The fraction of the needed content after which the time was predicted.
    predicted_from: Option<f64>,
    /// Hosts that finished far later than the median, last first.
    stragglers: Vec<Late>,
    nodes: usize,
    /// Stripes of the trees: 1 is a chain.
    tree: u32,
    failed: Vec<Failed>,
    bytes: u64,
    sent_bytes: u64,
    /// Devices, sockets and FIFOs in the directory.
    skipped: u64,
    source_changed: bool,
    racks: usize,
    hosts: Vec<HostShown>,
}

#[derive(Debug, Serialize)]
struct Failed {
    host: String,
    reason: String,
}

#[derive(Debug, PartialEq, Serialize)]
struct Late {
    host: String,
    seconds: f64,
}

/// Hosts that took twice as long as the median of all that finished, and at least [`LATE`] longer.
fn stragglers(hosts: &[HostOutcome]) -> Vec<Late> {
    let mut done: Vec<_> = hosts.iter().filter(|it| it.result.is_ok()).collect();
    done.sort_by_key(|it| it.after);
    // Of two hosts the faster one: the other is late relative to it.
    let Some(median) = done.get(done.len().saturating_sub(1) / 2) else {
        return Vec::new();
    };
    let late = (2 * median.after).max(median.after + LATE);
    let late = done.iter().rev().take_while(|it| it.after > late);
    let late = late.map(|it| Late {
        host: it.name.clone(),
        seconds: it.after.as_secs_f64(),
    });
    late.collect()
}

#[derive(Debug, Serialize)]
struct HostShown {
    host: String,
    ok: bool,
    seconds: f64,
    /// The protocol violation that others caught it at, even if it has everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    accused: Option<String>,
    /// By stripe, the host from which it was receiving when it finished; null is the source.
    from: Vec<Option<String>>,
}

impl Summary {
    /// The summary of a cast; `error` is what ended it early, if anything did.
    pub(super) fn new(it: &Outcome, error: Option<&Error>, skipped: u64) -> Summary {
        let failed = it.hosts.iter().filter_map(|it| {
            let (host, reason) = (it.name.clone(), it.result.clone().err()?);
            Some(Failed { host, reason })
        });
        let hosts = it.hosts.iter().map(|it| HostShown {
            host: it.name.clone(),
            ok: it.result.is_ok(),
            seconds: it.after.as_secs_f64(),
            accused: it.accused.clone(),
            from: it.from.clone(),
        });
        Summary {
            reason: error.map(ToString::to_string),
            seconds: it.took.as_secs_f64(),
            predicted_seconds: it.predicted.map(|it| it.time.as_secs_f64()),
            predicted_from: it.predicted.map(|it| it.from),
            stragglers: stragglers(&it.hosts),
            nodes: it.hosts.len(),
            tree: it.arity,
            failed: failed.collect(),
            bytes: it.bytes,
            sent_bytes: it.sent,
            skipped,
            source_changed: it.changed,
            racks: it.racks,
            hosts: hosts.collect(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for host in self.hosts.iter().filter(|it| it.ok) {
            write!(f, "{}: complete after {:.1} s", host.host, host.seconds)?;
            match &host.accused {
                Some(accused) => writeln!(f, ", but {accused}")?,
                None => writeln!(f)?,
            }
        }
        for failed in &self.failed {
            writeln!(f, "{}: FAILED: {}", failed.host, failed.reason)?;
        }
        let done = self.nodes - self.failed.len();
        write!(
            f,
            "{} to {done} of {} in {:.1} s",
            HumanBytes(self.bytes),
            console::counted(self.nodes, "host"),
            self.seconds
        )?;
        if let Some(predicted) = self.predicted_seconds {
            let percent = self.predicted_from.unwrap_or_default() * 100.0;
            write!(
                f,
                "; {predicted:.1} s were predicted from its first {percent:.0} %"
            )?;
        }
        if !self.stragglers.is_empty() {
            let named = self.stragglers.iter().take(STRAGGLERS);
            let named: Vec<_> = named.map(|it| &*it.host).collect();
            write!(f, "\nfar behind the others: {}", named.join(", "))?;
            match self.stragglers.len().saturating_sub(STRAGGLERS) {
                0 => {}
                more => write!(f, " and {more} more")?,
            }
        }
        if let Some(reason) = &self.reason {
            write!(f, "; ended before: {reason}")?;
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn progress__a_line_for_the_group_and_one_for_each_straggler() {
        let names: Vec<String> = (0..20).map(|it| format!("n{it}")).collect();
        let chunks = |index: usize| if index < 7 { index as u32 } else { 100 };
        let hosts = names.iter().enumerate();
        let progress = Progress {
            chunks: 200,
            hosts: hosts
                .map(|(index, name)| (&**name, chunks(index)))
                .collect(),
            done: 3,
            failed: 1,
            notes: Vec::new(),
        };
        let state = State::from(&progress);
        let lines = state.to_string();
        let expected = [
            "50 % at 20 hosts; 3 done, 1 failed",
            "  n0: 0 %",
            "  n1: 0 %",
            "  n2: 1 %",
            "  n3: 1 %",
            "  n4: 2 %",
            "  and 2 more that are far behind",
        ];
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
        let object = serde_json::to_value(&state).unwrap();
        assert_eq!(object["stragglers"].as_array().map(Vec::len), Some(7));
        assert_eq!(object["stragglers"][6]["host"], "n6");
    }

    #[test]
    fn summary__names_five_stragglers_and_counts_the_others() {
        let host = |(index, after): (usize, f64)| HostOutcome {
            name: format!("n{index}"),
            result: Ok(()),
            accused: (index == 3).then(|| "it sent a wrong chunk, says n4".into()),
            after: Duration::from_secs_f64(after),
            from: Vec::new(),
        };
        let times = [1.0; 10]
            .into_iter()
            .chain((0..7).map(|it| 3.0 + f64::from(it)));
        let mut outcome = Outcome {
            hosts: times.enumerate().map(host).collect(),
            took: Duration::from_secs(9),
            predicted: None,
            arity: 1,
            bytes: 1000,
            sent: 1000,
            changed: false,
            racks: 1,
        };
        let summary = Summary::new(&outcome, None, 0);
        let words = summary.to_string();
        let expected = "\nfar behind the others: n16, n15, n14, n13, n12 and 2 more";
        assert!(words.ends_with(expected), "{words}");
        let accused = "n3: complete after 1.0 s, but it sent a wrong chunk, says n4\n";
        assert!(words.contains(accused), "{words}");
        let object = serde_json::to_value(&summary).unwrap();
        assert_eq!(object["stragglers"].as_array().map(Vec::len), Some(7));
        assert_eq!(object["stragglers"][0]["host"], "n16");
        // A host that is twice as late by less than a second is no straggler; nor is one that failed.
        for host in &mut outcome.hosts {
            host.after /= 10;
        }
        outcome.hosts[0].after = Duration::from_secs(60);
        outcome.hosts[0].result = Err("gone".into());
        assert_eq!(stragglers(&outcome.hosts), []);
        assert_eq!(stragglers(&[]), []);
    }
}
