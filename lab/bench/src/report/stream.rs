//! Computes the figures of streams from sources to sinks.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::comparison::gbps;
use super::{Report, Spread, cell, median, mtu, percent, table};
use crate::harness::machine::Machine;
use crate::harness::runs::Run;
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::source_sink::{Sink, Source};
use crate::measured::Measured;

/// The method, as text; part of every report.
const METHOD: &str = "One buffer, or a file of its length in memory, is sent piece by piece, repeatedly. Sender and \
     receiver are processes, each pinned to its own core; combinations of one size and MTU take turns (A B .. B A). \
     Goodput: received payload bytes divided by the receiver's time from the start signal to the last byte, with the \
     95 % confidence interval of the mean (Student). CPU: getrusage of the process plus its core's ksoftirqd; beside \
     it the time withheld from a soaker, a thread of the same core that runs only when nothing else does \
     (SCHED_IDLE). 1 GB is 1e9 bytes. Content: every word of the last lap is checked after the run; the sums or files \
     of a sink are compared; for UDP the first word of each datagram, and everything that the sink saw if no datagram \
     was lost. The file of a sink has the length of the buffer and is overwritten.";

/// Everything `bench stream` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StreamReport {
    #[serde(flatten)]
    setup: Setup,
    /// Half of the interval that was asked for, percent of the mean.
    within_percent: f64,
    rows: Vec<Row>,
    left_out: Vec<LeftOut>,
}

/// Where and how it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setup {
    method: &'static str,
    /// The path between the ends, in words.
    path: String,
    /// Those of the interfaces.
    offloads: &'static str,
    sender: Machine,
    receiver: Machine,
    /// Protection of Zerolane's connections.
    security: Protection,
}

/// A combination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    contender: Name,
    source: Source,
    sink: Sink,
    /// What was handed over at a time, bytes.
    size: usize,
    /// `None` where it was not set.
    mtu: Option<u32>,
    /// Bytes of an STU; `None` where it was not set.
    stu: Option<u32>,
    figures: Option<Figures>,
}

/// What was measured of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    runs: usize,
    pub(super) gbps: Spread,
    mean_gbps: f64,
    /// Half of the interval that holds the mean, Gb/s; `None` of one run.
    half_width_gbps: Option<f64>,
    /// Of what was sent, over all runs.
    lost_fraction: f64,
    sender: Cost,
    receiver: Cost,
}

/// What a GB cost an end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// By accounting.
    cpu_s_per_gb: f64,
    /// By a soaker; `None` without one.
    unsoaked_s_per_gb: Option<f64>,
    syscalls_per_mib: f64,
}

/// A combination that cannot be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LeftOut {
    what: String,
    why: String,
}

impl Setup {
    pub(crate) fn new(
        path: String,
        offloads: &'static str,
        [sender, receiver]: [Machine; 2],
        security: Protection,
    ) -> Setup {
        Setup {
            method: METHOD,
            path,
            offloads,
            sender,
            receiver,
            security,
        }
    }
}

impl LeftOut {
    pub(crate) fn of(row: &Row, why: String) -> LeftOut {
        LeftOut {
            what: row.name(),
            why,
        }
    }
}

impl Row {
    /// One that is not measured yet.
    pub(crate) fn new(
        contender: Name,
        (source, sink): (Source, Sink),
        size: usize,
        (mtu, stu): (Option<u32>, Option<u32>),
    ) -> Row {
        Row {
            contender,
            source,
            sink,
            size,
            mtu,
            stu,
            figures: None,
        }
    }

    /// With what these runs measured.
    pub(crate) fn with(self, runs: &[Run]) -> Row {
        Row {
            figures: Figures::of(runs),
            ..self
        }
    }

    /// In words.
    pub(crate) fn name(&self) -> String {
        let (source, sink) = (self.source.name(), self.sink.name());
        let title = self.contender.title();
        let at = self
            .mtu
            .map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
        let of = self
            .stu
            .map_or_else(String::new, |stu| format!(", STU {stu}"));
        format!(
            "{title}, {source} to {sink}, {}{at}{of}",
            in_words(self.size)
        )
    }
}

/// A size.
pub(super) fn in_words(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

impl Figures {
    /// `None` of no runs.
    pub(crate) fn of(runs: &[Run]) -> Option<Figures> {
        let speeds: Vec<f64> = runs.iter().map(gbps).collect();
        let sum = |count: fn(&Run) -> u64| runs.iter().map(count).sum::<u64>() as f64;
        let (mean_gbps, half_width_gbps) = interval(&speeds)?;
        Some(Figures {
            runs: runs.len(),
            gbps: Spread::of(speeds)?,
            mean_gbps,
            half_width_gbps,
            lost_fraction: sum(|run| run.rx.lost_bytes) / sum(|run| run.tx.bytes).max(1.0),
            sender: Cost::of(runs, |run| &run.tx)?,
            receiver: Cost::of(runs, |run| &run.rx)?,
        })
    }

    /// CPU seconds a GB of the receiver, by accounting.
    pub(crate) fn receiver_cpu_s_per_gb(&self) -> f64 {
        self.receiver.cpu_s_per_gb
    }

    /// Half of the interval that holds the mean, percent of it; `None` of one run.
    pub(crate) fn half_width_percent(&self) -> Option<f64> {
        Some(self.half_width_gbps? / self.mean_gbps * 100.0)
    }
}

impl Cost {
    fn of(runs: &[Run], end: fn(&Run) -> &Measured) -> Option<Cost> {
        let gb = |it: &Measured| (it.bytes as f64 / 1e9).max(1e-9);
        let ends = || runs.iter().map(end);
        let soaked = ends().filter_map(|it| Some(it.cpu.unsoaked_s? / gb(it)));
        Some(Cost {
            cpu_s_per_gb: median(ends().map(|it| it.cpu.total_s() / gb(it)))?,
            unsoaked_s_per_gb: median(soaked),
            syscalls_per_mib: median(
                ends().map(|it| it.syscalls as f64 * 1_048_576.0 / (gb(it) * 1e9)),
            )?,
        })
    }
}

/// The mean, and half of the interval that holds it with a confidence of 95 %.
fn interval(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|it| (it - mean).powi(2)).sum::<f64>();
    let half = StudentsT::new(0.0, 1.0, count - 1.0).ok().map(|student| {
        let deviation = (squares / (count - 1.0)).sqrt();
        student.inverse_cdf(0.975) * deviation / count.sqrt()
    });
    (!values.is_empty()).then_some((mean, half))
}

impl StreamReport {
    pub(crate) fn new(
        setup: Setup,
        within_percent: f64,
        rows: Vec<Row>,
        left_out: Vec<LeftOut>,
    ) -> StreamReport {
        StreamReport {
            setup,
            within_percent,
            rows,
            left_out,
        }
    }
}

impl Report for StreamReport {
    /// A table with a row for each combination.
    fn text(&self) -> String {
        let header = [
            "",
            "source",
            "sink",
            "size",
            "MTU",
            "STU",
            "goodput, Gb/s\nmean ± half of the 95 % interval",
            "lost",
            "CPU s/GB\nsender",
            "by soaker",
            "CPU s/GB\nreceiver",
            "by soaker",
            "calls/MiB\nsender",
            "receiver",
        ];
        let mut table = table(header, 3);
        for row in &self.rows {
            let figures = row.figures.as_ref();
            let cost = |of: fn(&Figures) -> f64| cell(figures.map(of), |it| format!("{it:.3}"));
            let soaked = |of: fn(&Figures) -> Option<f64>| {
                cell(figures.and_then(of), |it| format!("{it:.3}"))
            };
            let calls = |of: fn(&Figures) -> f64| cell(figures.map(of), |it| format!("{it:.1}"));
            table.add_row([
                row.contender.title().to_owned(),
                row.source.name().to_owned(),
                row.sink.name().to_owned(),
                in_words(row.size),
                mtu(row.mtu),
                cell(row.stu, |it| it.to_string()),
                cell(figures, |it| match it.half_width_gbps {
                    Some(half) => format!("{:.1} ± {half:.1} ({})", it.mean_gbps, it.runs),
                    None => format!("{:.1} (1)", it.mean_gbps),
                }),
                percent(figures.map(|it| it.lost_fraction), 1),
                cost(|it| it.sender.cpu_s_per_gb),
                soaked(|it| it.sender.unsoaked_s_per_gb),
                cost(|it| it.receiver.cpu_s_per_gb),
                soaked(|it| it.receiver.unsoaked_s_per_gb),
                calls(|it| it.sender.syscalls_per_mib),
                calls(|it| it.receiver.syscalls_per_mib),
            ]);
        }
        // One example of each reason.
        let mut left_out: Vec<&LeftOut> = self.left_out.iter().collect();
        left_out.sort_by(|a, b| a.why.cmp(&b.why));
        left_out.dedup_by(|this, before| this.why == before.why);
        let left_out = left_out.iter();
        let left_out =
            left_out.map(|it| format!("\nleft out, for example: {}: {}", it.what, it.why));
        format!(
            "{table}\n{}, offloads {}; Zerolane {}; number of runs in parentheses; payload verified.{}",
            self.setup.path,
            self.setup.offloads,
            self.setup.security.name(),
            left_out.collect::<String>()
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn interval__is_students() {
        assert_eq!(interval(&[]), None);
        assert_eq!(interval(&[3.0]), Some((3.0, None)));
        // Four values, three degrees of freedom: 3.182 of the mean's standard error, 1.
        let (mean, half) = interval(&[8.0, 12.0, 8.0, 12.0]).unwrap();
        let error = (16.0_f64 / 3.0).sqrt() / 2.0;
        assert_eq!(mean, 10.0);
        assert!((half.unwrap() - 3.182 * error).abs() < 0.001, "{half:?}");
    }

    #[test]
    fn Figures__of_what_came_and_what_was_lost() {
        let run = |seconds| {
            let tx = Measured {
                syscalls: 1000,
                ..Measured::stream(1_000_000_000, seconds)
            };
            let mut rx = Measured {
                lost_bytes: 250_000_000,
                ..Measured::stream(750_000_000, seconds)
            };
            rx.cpu.process_s = 0.3;
            rx.cpu.unsoaked_s = Some(0.6);
            Run {
                contender: Name::Udp,
                tx,
                rx,
            }
        };
        let figures = Figures::of(&[run(1.0), run(2.0), run(1.0)]).unwrap();
        assert_eq!((figures.gbps.median, figures.mean_gbps), (6.0, 5.0));
        assert_eq!(figures.lost_fraction, 0.25);
        let near = |it: f64, expected: f64| (it - expected).abs() < 1e-9;
        assert!(near(figures.receiver.cpu_s_per_gb, 0.4));
        assert!(near(figures.receiver.unsoaked_s_per_gb.unwrap(), 0.8));
        assert_eq!(figures.sender.unsoaked_s_per_gb, None);
        assert!(figures.half_width_percent() > Some(50.0));
        assert_eq!(Figures::of(&[]), None);
    }
}
