//! Computes the figures of contenders that do single operations, size by size.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Report, Spread, cell, median, mtu, table};
use crate::harness::machine::Machine;
use crate::harness::runs::Run;
use crate::job::name::Name;
use crate::job::operations::{Operations, Target, Wait};
use crate::job::settings::Protection;
use crate::job::test::{Metric, Test};
use crate::measured::Measured;
use crate::measured::times::Quantiles;

/// How the figures were measured, as text; part of every report.
pub(crate) const METHOD: &str = "Initiator and responder are processes, each pinned to its own core. The contenders \
     take turns (A B C, C B A) at the same sizes, each run on its own connection after a warm-up. Latency: the time \
     of each operation at the initiator, in a histogram for each run; half of it for one-way operations, which the \
     peer answers with the same operation. Quantiles are the medians of the runs' quantiles, min and max those of all \
     runs. Bandwidth: payload in place, from the receiver's start signal to the last byte; of puts from the first \
     post to the last completion. Every message carries its number and is checked, the last ones byte by byte. Of \
     UDP's stream, only arrived datagrams count.";

/// The runs of one size, in the order they were run.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    pub(crate) operations: Operations,
    pub(crate) runs: Vec<Run>,
}

/// A contender that was not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Skipped {
    #[serde(rename = "side")]
    pub(crate) contender: Name,
    /// `None` if it is so for all sizes.
    pub(crate) size: Option<usize>,
    pub(crate) why: String,
}

/// The full report of a test; `--json` prints it unchanged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct OperationsReport {
    pub(crate) test: Test,
    pub(crate) wait: Wait,
    pub(crate) target: Target,
    pub(crate) method: &'static str,
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// Every message that was received was the right one. A wrong one ends the command.
    pub(crate) verified: bool,
    pub(crate) sizes: Vec<SizeReport>,
    pub(crate) skipped: Vec<Skipped>,
}

/// What was measured, where and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setup {
    /// The path between the ends, in words.
    pub(crate) path: String,
    /// MTU of the path, bytes; `None` where it was not set.
    pub(crate) mtu: Option<u32>,
    pub(crate) initiator: Machine,
    pub(crate) responder: Machine,
    /// Of Zerolane's connection; nothing else is protected.
    pub(crate) security: Protection,
    /// Runs of each contender.
    pub(crate) reps: u32,
}

/// The figures of one size of messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SizeReport {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Operations of a run.
    pub(crate) iters: u64,
    /// Operations in flight at once.
    pub(crate) depth: usize,
    pub(crate) sides: BTreeMap<Name, Figures>,
    /// Zerolane's figure over each other contender's, run by run: the median over the runs. The figure
    /// is the median time (the mean where a program tells no median) or the bandwidth.
    pub(crate) ratio_vs: BTreeMap<Name, f64>,
}

/// The figures of one contender, over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Figures {
    Latency {
        us: Quantiles,
    },
    Stream {
        gbps: Spread,
        /// Million messages a second.
        mops: Spread,
        lost_fraction: f64,
    },
}

/// The measurements of the measuring end of a run.
pub(super) fn measured(run: &Run) -> &Measured {
    match run.tx.latency.is_some() || run.tx.seconds > 0.0 {
        true => &run.tx,
        false => &run.rx,
    }
}

/// Payload in place, bytes a second.
fn bytes_per_s(run: &Run) -> f64 {
    let measured = measured(run);
    measured.bytes as f64 / measured.seconds
}

/// The headline figure of a run.
pub(super) fn headline(run: &Run) -> Option<f64> {
    match &measured(run).latency {
        Some(latency) => latency.median.or(latency.mean),
        None => Some(bytes_per_s(run)),
    }
}

impl SizeReport {
    pub(crate) fn of(of: &Runs) -> SizeReport {
        let Operations {
            size, iters, depth, ..
        } = of.operations;
        let mut by: BTreeMap<Name, Vec<&Run>> = BTreeMap::new();
        for run in &of.runs {
            by.entry(run.contender).or_default().push(run);
        }
        let figures = by.iter();
        let figures = figures.filter_map(|(&name, runs)| Some((name, Figures::of(runs, size)?)));
        SizeReport {
            size,
            iters,
            depth,
            sides: figures.collect(),
            ratio_vs: ratios(&by),
        }
    }
}

fn ratios(by: &BTreeMap<Name, Vec<&Run>>) -> BTreeMap<Name, f64> {
    let ours = by.get(&Name::Zerolane).map_or(&[][..], |runs| &runs[..]);
    let others = by.iter().filter(|(name, _)| **name != Name::Zerolane);
    let ratio = |(&name, runs): (&Name, &Vec<&Run>)| {
        let pairs = ours.iter().zip(runs);
        let ratios = pairs.filter_map(|(ours, other)| Some(headline(ours)? / headline(other)?));
        Some((name, median(ratios)?))
    };
    others.filter_map(ratio).collect()
}

impl Figures {
    /// `None` of no runs.
    fn of(runs: &[&Run], size: usize) -> Option<Figures> {
        let times: Vec<Quantiles> = runs
            .iter()
            .filter_map(|run| measured(run).latency)
            .collect();
        if !times.is_empty() {
            return Some(Figures::Latency {
                us: overall(&times),
            });
        }
        let spread = |figure: &dyn Fn(&Run) -> f64| Spread::of(runs.iter().map(|run| figure(run)));
        let lost = |run: &Run| {
            let Measured {
                bytes, lost_bytes, ..
            } = *measured(run);
            lost_bytes as f64 / (bytes + lost_bytes) as f64
        };
        Some(Figures::Stream {
            gbps: spread(&|run| bytes_per_s(run) * 8.0 / 1e9)?,
            mops: spread(&|run| bytes_per_s(run) / size as f64 / 1e6)?,
            lost_fraction: spread(&lost)?.median,
        })
    }
}

fn overall(runs: &[Quantiles]) -> Quantiles {
    let spread = |field: fn(&Quantiles) -> Option<f64>| Spread::of(runs.iter().filter_map(field));
    let median = |field| spread(field).map(|spread| spread.median);
    Quantiles {
        min: spread(|it| it.min).map(|spread| spread.min),
        median: median(|it| it.median),
        mean: median(|it| it.mean),
        p99: median(|it| it.p99),
        p999: median(|it| it.p999),
        max: spread(|it| it.max).map(|spread| spread.max),
    }
}

impl Report for OperationsReport {
    /// A line for each size and contender, as perftest prints them.
    fn text(&self) -> String {
        let mut table = table(header(self.test.metric()).iter().copied(), 0);
        for size in &self.sizes {
            for (&contender, figures) in &size.sides {
                table.add_row(row(size, contender, figures));
            }
        }
        format!("{table}\n{}{}", facts(self), left_out(&self.skipped))
    }
}

/// A line for each contender and reason.
pub(super) fn left_out(skipped: &[Skipped]) -> String {
    let alike =
        |one: &Skipped, other: &Skipped| (one.contender, &one.why) == (other.contender, &other.why);
    let lines = skipped.chunk_by(alike).map(|group| {
        let sizes: Vec<String> = group
            .iter()
            .filter_map(|it| Some(it.size?.to_string()))
            .collect();
        let sizes = match sizes.is_empty() {
            true => String::new(),
            false => format!(" at {} bytes", sizes.join(", ")),
        };
        format!(
            "\n{}{sizes} left out: {}.",
            group[0].contender.title(),
            group[0].why
        )
    });
    lines.collect()
}

fn header(metric: Metric) -> &'static [&'static str] {
    const LATENCY: [&str; 8] = [
        "bytes",
        "contender",
        "min us",
        "median",
        "p99",
        "max",
        "mean",
        "Zerolane /",
    ];
    const STREAM: [&str; 6] = [
        "bytes",
        "contender",
        "Gb/s: median (min to max)",
        "million/s",
        "lost",
        "Zerolane /",
    ];
    match metric {
        Metric::Latency => &LATENCY,
        Metric::Stream => &STREAM,
    }
}

fn row(size: &SizeReport, contender: Name, figures: &Figures) -> Vec<String> {
    let mut row = vec![size.size.to_string(), contender.title().to_owned()];
    match figures {
        Figures::Latency { us } => {
            let times = [us.min, us.median, us.p99, us.max, us.mean];
            row.extend(times.map(|us| cell(us, |us| format!("{us:.2}"))));
        }
        Figures::Stream {
            gbps,
            mops,
            lost_fraction,
        } => row.extend([
            gbps.text(2),
            format!("{:.3}", mops.median),
            format!("{:.1} %", lost_fraction * 1e2),
        ]),
    }
    row.push(cell(size.ratio_vs.get(&contender), |it| format!("{it:.2}")));
    row
}

fn facts(report: &OperationsReport) -> String {
    let way = match (report.test.metric(), report.target) {
        (Metric::Stream, _) => "",
        (_, Target::Active) => "until confirmed, target polling, ",
        (_, Target::Background) => "until confirmed, worker thread at the sleeping target, ",
        (_, Target::Answers) if report.test.round_trip_parts() == 1 => "there and back, ",
        (_, Target::Answers) => "one way, ",
    };
    let wait = match report.wait {
        Wait::Poll => "polling",
        Wait::Event => "asleep while waiting",
    };
    format!(
        "{}: {way}{wait}; {}, MTU {}, {} runs; {}Zerolane {}; payload verified.",
        report.test.name(),
        report.setup.path,
        mtu(report.setup.mtu),
        report.setup.reps,
        tcp(report),
        report.setup.security.name(),
    )
}

/// What TCP ran with, if it was run.
fn tcp(report: &OperationsReport) -> String {
    let mut sizes = report.sizes.iter();
    if !sizes.any(|size| size.sides.contains_key(&Name::Tcp)) {
        return String::new();
    }
    let Setup {
        initiator,
        responder,
        ..
    } = &report.setup;
    match (&*initiator.tcp_baseline, &*responder.tcp_baseline) {
        (both, other) if both == other => format!("TCP with {both}; "),
        (one, other) => format!("TCP with {one} here, {other} there; "),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::operations::tests::operations;

    fn runs(runs: impl IntoIterator<Item = (Name, Measured)>) -> Runs {
        let run = |(contender, tx)| Run {
            contender,
            tx,
            rx: Measured::default(),
        };
        Runs {
            operations: operations(),
            runs: runs.into_iter().map(run).collect(),
        }
    }

    #[test]
    fn SizeReport__ratios_are_run_by_run() {
        let (udp, ours) = (Name::Udp, Name::Zerolane);
        // The machine was four times slower in the second round.
        let times = [(udp, 2.0), (ours, 3.0), (ours, 12.0), (udp, 8.0)];
        let report = SizeReport::of(&runs(times.map(|(name, us)| {
            let latency = Quantiles {
                median: Some(us),
                mean: Some(2.0 * us),
                ..Quantiles::default()
            };
            (name, Measured::latency(latency))
        })));
        assert_eq!(report.ratio_vs, BTreeMap::from([(udp, 1.5)]));
        let Figures::Latency { us } = &report.sides[&udp] else {
            panic!("a latency");
        };
        assert_eq!((us.median, us.mean, us.p99), (Some(5.0), Some(10.0), None));
    }

    #[test]
    fn SizeReport__stream_counts_what_arrived_and_what_did_not() {
        let stream = Measured {
            lost_bytes: 100,
            ..Measured::stream(300, 2.0)
        };
        let report = SizeReport::of(&runs([(Name::Udp, stream)]));
        let Figures::Stream {
            gbps,
            lost_fraction,
            ..
        } = &report.sides[&Name::Udp]
        else {
            panic!("a stream");
        };
        assert_eq!((gbps.median, *lost_fraction), (150.0 * 8.0 / 1e9, 0.25));
    }
}
