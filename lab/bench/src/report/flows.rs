//! Computes the figures of contenders that move as much as they can in a given time, over an emulated link.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use netlab::lab::{LabStats, Lateness};
use netsim::link::LinkStats;
use serde::Serialize;

use zerolane_cli::exit::Exit;

use super::Spread;
use crate::harness::failure::is_giving_up;
use crate::harness::network::Outcome;
use crate::harness::runs::Run;
use crate::job::name::Name;

const MEGA: f64 = 1e6;

/// One run of one contender: what was counted, or why it failed.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    contender: Name,
    result: Result<(Run, LabStats), Failed>,
}

/// Why there is nothing.
#[derive(Clone, Debug)]
struct Failed {
    why: String,
    /// The contender gave up: nothing came, which counts. Another failure says nothing of it.
    gave_up: bool,
}

/// A contender that was not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) contender: Name,
    pub(crate) why: String,
}

impl LeftOut {
    pub(crate) fn all(left_out: Vec<(Name, String)>) -> Vec<LeftOut> {
        let all = left_out.into_iter();
        all.map(|(contender, why)| LeftOut { contender, why })
            .collect()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left out: {}: {}", self.contender.title(), self.why)
    }
}

impl Attempt {
    /// A contender that gives up on a link loses; wrong bytes end everything.
    pub(crate) fn of(contender: Name, outcome: Result<Outcome>) -> Result<Attempt> {
        let result = match outcome {
            Ok(mut outcome) => match outcome.runs.pop() {
                Some(flow) => Ok((flow, outcome.network)),
                None => bail!("no flow"),
            },
            Err(error) if Exit::of(&error) == Exit::Corrupt => return Err(error),
            Err(error) => Err(Failed {
                why: format!("{error:#}"),
                gave_up: is_giving_up(&error),
            }),
        };
        Ok(Attempt { contender, result })
    }

    fn mbps(&self) -> Option<f64> {
        match &self.result {
            Ok((flow, _)) => Some(mbps(flow)),
            Err(failed) => failed.gave_up.then_some(0.0),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.contender.title();
        match &self.result {
            Ok((flow, _)) => write!(f, "{name}: {:.1} Mb/s", mbps(flow)),
            Err(failed) => write!(f, "{name} failed: {}", failed.why),
        }
    }
}

/// Receiver's goodput, Mb/s.
pub(crate) fn mbps(flow: &Run) -> f64 {
    flow.rx.bytes as f64 * 8.0 / MEGA / flow.rx.seconds.max(1e-9)
}

/// How one contender fared over one link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FlowFigures {
    pub(crate) contender: Name,
    /// A run in which it gave up counts as 0; one that failed for another reason does not count.
    pub(crate) mbps: Option<Spread>,
    /// Of the bottleneck's rate.
    pub(crate) link_fraction: Option<f64>,
    /// Of its own goodput over the first link of the report.
    pub(crate) first_fraction: Option<f64>,
    /// Payload sent again, for each byte of payload.
    pub(crate) resent_fraction: Option<f64>,
    /// Payload that came twice, for each byte of payload: for Zerolane what
    /// its receiver dropped as there already, for TCP what its receiver
    /// reported (DSACK).
    pub(crate) repeated_fraction: Option<f64>,
    pub(crate) network: NetworkFigures,
    /// Why runs failed.
    pub(crate) failures: Vec<String>,
}

/// What the network did to the frames of some runs, both ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NetworkFigures {
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    pub(crate) queue_dropped: u64,
    pub(crate) reordered: u64,
    pub(crate) marked: u64,
    /// Frames that the emulator itself dropped: should be none.
    pub(crate) not_emulated: u64,
    /// How late frames left; the worst run's.
    pub(crate) added_jitter_us: Jitter,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Jitter {
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl NetworkFigures {
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = &'a LabStats>) -> NetworkFigures {
        let mut sum = NetworkFigures::default();
        for run in runs {
            sum.add(run);
        }
        sum
    }

    fn add(&mut self, run: &LabStats) {
        let LinkStats {
            sent,
            lost,
            queue_dropped,
            reordered,
            marked,
            ..
        } = run.total();
        self.frames += sent;
        self.lost += lost;
        self.queue_dropped += queue_dropped;
        self.reordered += reordered;
        self.marked += marked;
        self.not_emulated += run.missed + run.overflowed + run.unsent;
        self.added_jitter_us.worsen(run.lateness);
    }
}

impl Jitter {
    /// Median and 99th percentile, microseconds.
    pub(crate) fn text(&self) -> String {
        format!("{:.0}, {:.0}", self.median, self.p99)
    }

    fn worsen(&mut self, run: Lateness) {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        self.median = self.median.max(micros(run.median));
        self.p99 = self.p99.max(micros(run.p99));
        self.max = self.max.max(micros(run.max));
    }
}

/// Payload sent again, for each byte of payload.
pub(crate) fn resent_fraction(flows: &[Run]) -> f64 {
    let resent: u64 = flows.iter().map(|flow| flow.tx.resent_bytes).sum();
    let bytes: u64 = flows.iter().map(|flow| flow.rx.bytes).sum();
    resent as f64 / bytes.max(1) as f64
}

impl FlowFigures {
    /// The contender's figures of all its runs over a link of `rate` bits per
    /// second; `first_mbps` is what it reached over the first link.
    pub(crate) fn of(
        contender: Name,
        runs: &[Attempt],
        rate: u64,
        first_mbps: Option<f64>,
    ) -> FlowFigures {
        let own = || runs.iter().filter(|run| run.contender == contender);
        let good: Vec<&(Run, LabStats)> =
            own().filter_map(|run| run.result.as_ref().ok()).collect();
        let mbps = Spread::of(own().filter_map(Attempt::mbps));
        let median = mbps.map(|mbps| mbps.median);
        let bytes: u64 = good.iter().map(|(flow, _)| flow.rx.bytes).sum();
        let share = |count: &dyn Fn(&Run) -> u64| {
            let sum: u64 = good.iter().map(|(flow, _)| count(flow)).sum();
            (bytes > 0).then(|| sum as f64 / bytes as f64)
        };
        FlowFigures {
            contender,
            mbps,
            link_fraction: median.map(|median| median * MEGA / rate as f64),
            first_fraction: median
                .zip(first_mbps)
                .filter(|(_, first)| *first > 0.0)
                .map(|(median, first)| median / first),
            resent_fraction: share(&|flow| flow.tx.resent_bytes),
            repeated_fraction: share(&|flow| {
                flow.rx.repeated_bytes + flow.tx.reported_repeats_bytes
            }),
            network: NetworkFigures::of(good.iter().map(|(_, network)| network)),
            failures: own()
                .filter_map(|run| Some(run.result.as_ref().err()?.why.clone()))
                .collect(),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::harness::failure::{Failure, said};
    use crate::measured::Measured;
    use anyhow::anyhow;

    fn outcome(bytes: u64, resent_bytes: u64, late_us: u64) -> Outcome {
        let lateness = Lateness {
            frames: 1,
            median: Duration::from_micros(late_us),
            p99: Duration::from_micros(late_us),
            max: Duration::from_micros(late_us),
        };
        let link = LinkStats {
            sent: 10,
            lost: 1,
            ..LinkStats::default()
        };
        Outcome {
            runs: vec![Run {
                contender: Name::Extended,
                rx: Measured {
                    bytes,
                    seconds: 2.0,
                    repeated_bytes: 100,
                    ..Measured::default()
                },
                tx: Measured {
                    resent_bytes,
                    ..Measured::default()
                },
            }],
            network: LabStats {
                towards: vec![link, link],
                missed: 0,
                overflowed: 0,
                unsent: 0,
                lateness,
            },
        }
    }

    fn run(outcome: Result<Outcome>) -> Attempt {
        Attempt::of(Name::Extended, outcome).unwrap()
    }

    #[test]
    fn of__sums_and_medians_of_the_contenders_own_runs() {
        let runs = [
            run(Ok(outcome(1_000_000, 10_000, 7))),
            run(Ok(outcome(3_000_000, 30_000, 9))),
            Attempt::of(Name::Cubic, Ok(outcome(9, 9, 99))).unwrap(),
        ];
        let figures = FlowFigures::of(Name::Extended, &runs, 16_000_000, Some(16.0));
        // 4 and 12 Mb/s.
        assert_eq!(figures.mbps.unwrap().median, 8.0);
        assert_eq!(figures.link_fraction, Some(0.5));
        assert_eq!(figures.first_fraction, Some(0.5));
        assert_eq!(figures.resent_fraction, Some(0.01));
        assert_eq!(figures.repeated_fraction, Some(0.00005));
        assert_eq!(figures.network.frames, 40);
        assert_eq!(figures.network.lost, 4);
        assert_eq!(figures.network.added_jitter_us.p99, 9.0);
    }

    #[test]
    fn of__a_run_that_was_given_up_counts_as_nothing_arrived() {
        let gave_up = said("peer gone".into(), Failure::GaveUp);
        let runs = [run(Ok(outcome(1_000_000, 0, 1))), run(Err(gave_up))];
        let figures = FlowFigures::of(Name::Extended, &runs, 1, None);
        assert_eq!(figures.mbps.unwrap().min, 0.0);
        assert_eq!(figures.failures, ["peer gone"]);
        assert_eq!(figures.first_fraction, None);
    }

    /// A process that did not start, a core that there is not.
    #[test]
    fn of__what_is_not_the_contenders_failure_is_not_counted() {
        let at_an_end = || said("cannot run on core 99".into(), Failure::Other);
        for error in [anyhow!("cannot start the sender process"), at_an_end()] {
            let why = error.to_string();
            let runs = [run(Ok(outcome(1_000_000, 0, 1))), run(Err(error))];
            let figures = FlowFigures::of(Name::Extended, &runs, 1, None);
            assert_eq!(figures.mbps.unwrap().min, 4.0);
            assert_eq!(figures.failures, [why]);
        }
        let figures = FlowFigures::of(Name::Extended, &[run(Err(at_an_end()))], 1, None);
        assert_eq!((figures.mbps, figures.failures.len()), (None, 1));
    }

    #[test]
    fn of__wrong_bytes_end_everything() {
        let corrupt = anyhow!("word 3").context(Exit::Corrupt);
        assert!(Attempt::of(Name::Extended, Err(corrupt)).is_err());
    }
}
