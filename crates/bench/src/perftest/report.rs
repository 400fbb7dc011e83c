//! From runs to the figures that are printed. Pure: no clock, no IO.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;

use super::command::{Plan, Side};
use super::job::{Job, Seen, Wait};
use super::measure::{Measured, Outcomes, Skipped};
use super::test::Test;
use super::times::Quantiles;
use crate::protocol::{Machine, Protection};
use crate::report::Spread;

/// How the figures came about, in words; part of every report.
const METHOD: &str = "Initiator and responder are processes pinned to one core each. The sides take \
    turns (A B C, C B A) at the same sizes, each run on a connection of its own, after a warm-up. \
    Latency: time of each operation at the initiator, in a histogram for each run; half of it where \
    the operation goes one way and is answered by the same. Quantiles are the medians of the runs', \
    min and max those of all. Bandwidth: payload in place, from the receiver's go to the last \
    byte, of a put from the first one posted to the last one completed. Every message carries its \
    number and is checked; the last ones byte by byte. UDP's stream is what arrived.";

/// What one run of one side brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Latency(Latency),
    Stream(Stream),
}

/// Times of single operations, microseconds; `None` where a program does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) min: Option<f64>,
    pub(crate) median: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// How fast, and how much got lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stream {
    /// Payload in place, bytes a second.
    pub(crate) bytes_per_s: f64,
    /// Messages of this size, bytes.
    pub(crate) size: usize,
    /// Share of the payload that never arrived.
    pub(crate) lost: f64,
}

/// Everything a test says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) test: Test,
    pub(crate) wait: Wait,
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
    /// Of Zerolane's connection; no other side is protected.
    pub(crate) security: Protection,
    /// Runs of each side.
    pub(crate) reps: u32,
}

/// The figures of one size of messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SizeReport {
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Operations of a run.
    pub(crate) iters: u64,
    /// Operations under way at once.
    pub(crate) depth: usize,
    pub(crate) sides: BTreeMap<Side, Figures>,
    /// Zerolane's figure over each other side's, run by run: the median over the runs. The figure
    /// is the median time (the mean where a program tells no median) or the bandwidth.
    pub(crate) ratio_vs: BTreeMap<Side, f64>,
}

/// The figures of one side, over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Figures {
    Latency {
        us: Latency,
    },
    Stream {
        gbps: Spread,
        /// Million messages a second.
        mops: Spread,
        lost_fraction: f64,
    },
}

impl Outcome {
    /// What the ends saw of a run.
    pub(crate) fn of(job: &Job, seen: &Seen) -> Result<Outcome> {
        if let Some(quantiles) = &seen.latency {
            return Ok(Outcome::Latency(quantiles.into()));
        }
        let stream = seen.stream.context("no end measured anything")?;
        Ok(Outcome::Stream(Stream {
            bytes_per_s: stream.bytes as f64 / stream.seconds,
            size: job.size,
            lost: stream.lost as f64 / (stream.bytes + stream.lost) as f64,
        }))
    }

    /// The one figure that stands for the run.
    fn headline(&self) -> Option<f64> {
        match self {
            Outcome::Latency(latency) => latency.median.or(latency.mean),
            Outcome::Stream(stream) => Some(stream.bytes_per_s),
        }
    }

    /// Of a program that tells a median and a mean, microseconds.
    pub(crate) fn medians(median: f64, mean: f64) -> Outcome {
        Outcome::Latency(Latency {
            median: Some(median),
            mean: Some(mean),
            ..Latency::default()
        })
    }

    /// Of a program that tells a mean, microseconds.
    pub(crate) fn mean(mean: f64) -> Outcome {
        Outcome::Latency(Latency {
            mean: Some(mean),
            ..Latency::default()
        })
    }

    /// Of a program that loses nothing.
    pub(crate) fn stream(bytes_per_s: f64, size: usize) -> Outcome {
        Outcome::Stream(Stream {
            bytes_per_s,
            size,
            lost: 0.0,
        })
    }
}

impl From<&Quantiles> for Latency {
    fn from(it: &Quantiles) -> Latency {
        Latency {
            min: Some(it.min),
            median: Some(it.median),
            mean: Some(it.mean),
            p99: Some(it.p99),
            p999: Some(it.p999),
            max: Some(it.max),
        }
    }
}

impl Report {
    /// The report of verified runs.
    pub(crate) fn of(plan: &Plan, setup: Setup, measured: Measured) -> Report {
        Report {
            test: plan.test,
            wait: plan.wait,
            method: METHOD,
            setup,
            verified: true,
            sizes: measured.sizes.iter().map(SizeReport::of).collect(),
            skipped: measured.skipped,
        }
    }
}

impl SizeReport {
    fn of(outcomes: &Outcomes) -> SizeReport {
        let sides = Side::ALL.into_iter().filter_map(|side| {
            let runs: Vec<Outcome> = outcomes.of(side).collect();
            Some((side, Figures::of(&runs)?))
        });
        SizeReport {
            size: outcomes.size,
            iters: outcomes.iters,
            depth: outcomes.depth,
            sides: sides.collect(),
            ratio_vs: outcomes.ratios(),
        }
    }
}

impl Outcomes {
    /// The runs of one side, in their order.
    fn of(&self, side: Side) -> impl Iterator<Item = Outcome> {
        self.runs
            .iter()
            .filter(move |(of, _)| *of == side)
            .map(|&(_, outcome)| outcome)
    }

    fn ratios(&self) -> BTreeMap<Side, f64> {
        let others = Side::ALL.into_iter().filter(|&side| side != Side::Zerolane);
        let ratio = |side| {
            let pairs = self.of(Side::Zerolane).zip(self.of(side));
            let ratios =
                pairs.filter_map(|(ours, other)| Some(ours.headline()? / other.headline()?));
            Spread::of(ratios).map(|spread| (side, spread.median))
        };
        others.filter_map(ratio).collect()
    }
}

impl Figures {
    /// `None` of no runs.
    fn of(runs: &[Outcome]) -> Option<Figures> {
        match runs.first()? {
            Outcome::Latency(_) => {
                let times = runs.iter().filter_map(|run| match run {
                    Outcome::Latency(latency) => Some(*latency),
                    Outcome::Stream(_) => None,
                });
                Some(Figures::Latency {
                    us: latency(&times.collect::<Vec<_>>()),
                })
            }
            Outcome::Stream(_) => {
                let streams = runs.iter().filter_map(|run| match run {
                    Outcome::Stream(stream) => Some(*stream),
                    Outcome::Latency(_) => None,
                });
                stream(&streams.collect::<Vec<_>>())
            }
        }
    }
}

fn latency(runs: &[Latency]) -> Latency {
    let spread = |field: fn(&Latency) -> Option<f64>| Spread::of(runs.iter().filter_map(field));
    let median = |field| spread(field).map(|spread| spread.median);
    Latency {
        min: spread(|it| it.min).map(|spread| spread.min),
        median: median(|it| it.median),
        mean: median(|it| it.mean),
        p99: median(|it| it.p99),
        p999: median(|it| it.p999),
        max: spread(|it| it.max).map(|spread| spread.max),
    }
}

fn stream(runs: &[Stream]) -> Option<Figures> {
    let spread = |figure: fn(&Stream) -> f64| Spread::of(runs.iter().map(figure));
    Some(Figures::Stream {
        gbps: spread(|it| it.bytes_per_s * 8.0 / 1e9)?,
        mops: spread(|it| it.bytes_per_s / it.size as f64 / 1e6)?,
        lost_fraction: spread(|it| it.lost)?.median,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn outcomes(runs: &[(Side, f64)]) -> Outcomes {
        let runs = runs.iter();
        Outcomes {
            runs: runs
                .map(|&(side, us)| (side, Outcome::medians(us, 2.0 * us)))
                .collect(),
            ..Outcomes::default()
        }
    }

    #[test]
    fn SizeReport__ratios_are_run_by_run() {
        let (udp, ours) = (Side::Udp, Side::Zerolane);
        // The machine was four times slower in the second round.
        let runs = outcomes(&[(udp, 2.0), (ours, 3.0), (ours, 12.0), (udp, 8.0)]);
        let report = SizeReport::of(&runs);
        assert_eq!(report.ratio_vs, BTreeMap::from([(udp, 1.5)]));
        let Figures::Latency { us } = &report.sides[&udp] else {
            panic!("a latency");
        };
        assert_eq!((us.median, us.mean, us.p99), (Some(5.0), Some(10.0), None));
    }

    #[test]
    fn Outcome__stream_counts_what_arrived_and_what_did_not() {
        let job = super::super::job::tests::job();
        let stream = super::super::job::Streamed {
            seconds: 2.0,
            bytes: 300,
            lost: 100,
        };
        let seen = Seen {
            latency: None,
            stream: Some(stream),
        };
        let lost = Stream {
            bytes_per_s: 150.0,
            size: 8,
            lost: 0.25,
        };
        assert_eq!(Outcome::of(&job, &seen).unwrap(), Outcome::Stream(lost));
        assert!(Outcome::of(&job, &Seen::default()).is_err());
    }
}
