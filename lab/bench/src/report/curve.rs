//! Computes goodput, latency and CPU time of the contenders by message size.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;
use zerolane::request::MAX_INLINE;

use super::operations::{Setup, Skipped, headline, left_out, measured};
use super::{Report, Spread, cell, median, mtu, table};
use crate::harness::runs::Run;
use crate::job::name::Name;
use crate::job::test::{Metric, Test};

/// How the figures were measured, as text; part of every report.
pub(crate) const METHOD: &str = "As in `bench send_bw`, `put_bw`, `send_lat` and `put_lat`: initiator and responder are \
     processes, each pinned to its own core. The contenders take turns (A B C, C B A), each run on its own connection. \
     Goodput: payload in place, from the receiver's start signal to the last byte; of puts from the first post to the \
     last completion. Both ends of all contenders use the same amount of memory, in which the messages take turns. CPU \
     time: of both processes and their cores' ksoftirqd over that time. Latency: half of a round trip of two messages or \
     two puts, both ends polling, after a warm-up. Every message is checked, the last ones byte by byte.";

/// Who moves messages, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// The kernel's TCP
    Tcp,
    /// Raw UDP
    Udp,
    /// Messages of Zerolane
    #[value(name = "messages")]
    #[serde(rename = "messages")]
    ZerolaneMessages,
    /// Puts of Zerolane
    #[value(name = "puts")]
    #[serde(rename = "puts")]
    ZerolanePuts,
    /// ucx_perftest over TCP
    Ucx,
    /// fi_pingpong over libfabric's tcp
    Libfabric,
}

impl Side {
    /// In the order of the first round.
    pub(crate) const ALL: [Side; 6] = [
        Side::Tcp,
        Side::Udp,
        Side::ZerolaneMessages,
        Side::ZerolanePuts,
        Side::Ucx,
        Side::Libfabric,
    ];

    pub(crate) fn name(self) -> Name {
        match self {
            Side::Tcp => Name::Tcp,
            Side::Udp => Name::Udp,
            Side::ZerolaneMessages | Side::ZerolanePuts => Name::Zerolane,
            Side::Ucx => Name::Ucx,
            Side::Libfabric => Name::Libfabric,
        }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Side::ZerolaneMessages => "Zerolane messages",
            Side::ZerolanePuts => "Zerolane puts",
            _ => self.name().title(),
        }
    }

    /// What it does for a figure of this size.
    pub(crate) fn test(self, metric: Metric, size: usize) -> Test {
        match (self, metric) {
            (Side::ZerolanePuts, Metric::Latency) => Test::PutLat,
            (Side::ZerolanePuts, Metric::Stream) if size <= MAX_INLINE => Test::PutRate,
            (Side::ZerolanePuts, Metric::Stream) => Test::PutBw,
            (_, Metric::Latency) => Test::SendLat,
            (_, Metric::Stream) => Test::SendBw,
        }
    }
}

/// A run for one figure.
#[derive(Clone, Debug)]
pub(crate) struct SideRun {
    pub(crate) side: Side,
    pub(crate) metric: Metric,
    pub(crate) run: Run,
}

/// The report of `bench curve`; `--json` prints it unchanged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CurveReport {
    pub(crate) bench: &'static str,
    pub(crate) method: &'static str,
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// Whether the ends of streams polled.
    pub(crate) polls: bool,
    /// Every message that was received was the right one. A wrong one ends the command.
    pub(crate) verified: bool,
    pub(crate) sizes: Vec<SizeReport>,
    pub(crate) skipped: Vec<Skipped>,
}

/// The figures of one size of messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SizeReport {
    /// Bytes of a message.
    pub(crate) size: usize,
    pub(crate) sides: BTreeMap<Side, Figures>,
    /// A contender's figures over TCP's, run by run: the medians.
    pub(crate) ratio_vs_tcp: BTreeMap<Side, Ratios>,
}

/// The figures of one contender, over its runs; `None` where it has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Payload in place.
    pub(crate) gbps: Option<Spread>,
    /// Of payload sent.
    pub(crate) lost_fraction: Option<f64>,
    /// CPU seconds of both ends for 10^9 bytes in place.
    pub(crate) cpu_s_per_gb: Option<Spread>,
    /// Medians of the runs.
    pub(crate) one_way_us: Option<Spread>,
}

/// Ratios to TCP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratios {
    pub(crate) goodput: Option<f64>,
    pub(crate) cpu: Option<f64>,
    pub(crate) latency: Option<f64>,
}

/// Of both ends; `None` of a program whose ends do not tell.
fn cpu_s_per_gb(run: &Run) -> Option<f64> {
    let seconds = run.tx.cpu.total_s() + run.rx.cpu.total_s();
    let bytes = measured(run).bytes;
    (seconds > 0.0 && bytes > 0).then(|| seconds / bytes as f64 * 1e9)
}

fn lost(run: &Run) -> f64 {
    let it = measured(run);
    it.lost_bytes as f64 / (it.bytes + it.lost_bytes).max(1) as f64
}

impl SizeReport {
    pub(crate) fn of(size: usize, runs: &[SideRun]) -> SizeReport {
        let of = |side, metric| -> Vec<&Run> {
            let runs = runs
                .iter()
                .filter(|it| (it.side, it.metric) == (side, metric));
            runs.map(|it| &it.run).collect()
        };
        let ran = |side: &Side| runs.iter().any(|it| it.side == *side);
        let sides = Side::ALL.into_iter().filter(ran);
        let figures = |side| {
            let (streams, times) = (of(side, Metric::Stream), of(side, Metric::Latency));
            let gbps = streams.iter().filter_map(|it| headline(it));
            Figures {
                gbps: Spread::of(gbps.map(|bytes| bytes * 8.0 / 1e9)),
                lost_fraction: median(streams.iter().map(|it| lost(it))),
                cpu_s_per_gb: Spread::of(streams.iter().filter_map(|it| cpu_s_per_gb(it))),
                one_way_us: Spread::of(times.iter().filter_map(|it| headline(it))),
            }
        };
        let ratio = |side, metric, figure: fn(&Run) -> Option<f64>| {
            let (ours, theirs) = (of(side, metric), of(Side::Tcp, metric));
            let pairs = ours.into_iter().zip(theirs);
            median(pairs.filter_map(|(ours, theirs)| Some(figure(ours)? / figure(theirs)?)))
        };
        let ratios = |side| Ratios {
            goodput: ratio(side, Metric::Stream, headline),
            cpu: ratio(side, Metric::Stream, cpu_s_per_gb),
            latency: ratio(side, Metric::Latency, headline),
        };
        let others = sides.clone().filter(|side| *side != Side::Tcp);
        SizeReport {
            size,
            sides: sides.map(|side| (side, figures(side))).collect(),
            ratio_vs_tcp: others.map(|side| (side, ratios(side))).collect(),
        }
    }
}

impl Report for CurveReport {
    fn text(&self) -> String {
        let header = [
            "bytes",
            "contender",
            "Gb/s: median (min to max)",
            "/ TCP",
            "one way us",
            "/ TCP",
            "CPU s/GB",
            "/ TCP",
        ];
        let mut table = table(header, 2);
        for size in &self.sizes {
            for (side, figures) in &size.sides {
                let ratios = size.ratio_vs_tcp.get(side);
                let ratio = |of: fn(&Ratios) -> Option<f64>| {
                    cell(ratios.and_then(of), |it| format!("{it:.2}"))
                };
                table.add_row([
                    size.size.to_string(),
                    side.title().to_owned(),
                    cell(figures.gbps, |it| it.text(2)),
                    ratio(|it| it.goodput),
                    cell(figures.one_way_us, |it| it.text(2)),
                    ratio(|it| it.latency),
                    cell(figures.cpu_s_per_gb, |it| it.text(3)),
                    ratio(|it| it.cpu),
                ]);
            }
        }
        format!(
            "{table}\n{}, MTU {}, {} runs; streams {}, latency polling; Zerolane {}; payload verified.{}",
            self.setup.path,
            mtu(self.setup.mtu),
            self.setup.reps,
            if self.polls {
                "polling"
            } else {
                "asleep while waiting"
            },
            self.setup.security.name(),
            left_out(&self.skipped),
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::cpu::CpuTime;
    use crate::measured::Measured;
    use crate::measured::times::Quantiles;

    fn cpu(process_s: f64) -> Measured {
        Measured {
            cpu: CpuTime {
                process_s,
                ..CpuTime::default()
            },
            ..Measured::default()
        }
    }

    fn stream(side: Side, seconds: f64, cpu_s: f64) -> SideRun {
        let rx = Measured {
            cpu: cpu(cpu_s).cpu,
            ..Measured::stream(1_000_000_000, seconds)
        };
        let run = Run {
            contender: side.name(),
            tx: cpu(cpu_s),
            rx,
        };
        SideRun {
            side,
            metric: Metric::Stream,
            run,
        }
    }

    #[test]
    fn SizeReport__of_streams_and_latencies_beside_TCP() {
        let puts = Side::ZerolanePuts;
        let times = Measured::latency(Quantiles {
            median: Some(3.0),
            ..Quantiles::default()
        });
        let latency = SideRun {
            side: Side::Libfabric,
            metric: Metric::Latency,
            run: Run {
                contender: Name::Libfabric,
                tx: times,
                rx: Measured::default(),
            },
        };
        // The machine was twice as slow in the second round.
        let runs = [
            stream(Side::Tcp, 1.0, 0.5),
            stream(puts, 2.0, 1.0),
            stream(puts, 4.0, 2.0),
            stream(Side::Tcp, 2.0, 1.0),
            latency,
        ];
        let report = SizeReport::of(64, &runs);
        let tcp = report.sides[&Side::Tcp];
        assert_eq!(tcp.gbps.map(|it| (it.min, it.max)), Some((4.0, 8.0)));
        assert_eq!(tcp.cpu_s_per_gb.map(|it| it.max), Some(2.0));
        assert_eq!((tcp.one_way_us, tcp.lost_fraction), (None, Some(0.0)));
        let expected = Ratios {
            goodput: Some(0.5),
            cpu: Some(2.0),
            latency: None,
        };
        assert_eq!(report.ratio_vs_tcp[&puts], expected);
        let fabric = report.sides[&Side::Libfabric];
        assert_eq!(fabric.one_way_us.map(|it| it.median), Some(3.0));
        assert_eq!((fabric.gbps, fabric.cpu_s_per_gb), (None, None));
    }
}
