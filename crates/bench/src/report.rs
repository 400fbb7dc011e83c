//! From measurements to the figures that are printed. Pure: no clock, no IO.

use serde::Serialize;

use super::orchestrate::RunResult;
use super::protocol::{Machine, Measured, Mover, Protection};

/// How the figures came about, in words; part of every report.
pub(crate) const METHOD: &str = "One buffer sent over and over, from memory to memory; sender and \
    receiver are processes pinned to one core each; the movers take turns (A B .. B A) on the same \
    buffers. Goodput: payload bytes in place over the receiver's time from its go, said when the \
    connection stands, to the last byte in place. CPU: getrusage of the process plus its core's \
    ksoftirqd, over the same time; 1 GB is 1e9 bytes. Content: sampled words are checked during \
    the run in the same way for both, every word of the last lap after it.";

const GIGA: f64 = 1e9;
const MIB: f64 = (1 << 20) as f64;

/// Everything `bench bulk` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// Every byte of the last lap and the sampled words of all laps were right.
    pub(crate) verified: bool,
    /// Zerolane's goodput over one core's memcpy.
    pub(crate) memcpy_fraction: Option<f64>,
    #[serde(flatten)]
    pub(crate) comparison: Comparison,
}

/// The movers side by side; what needs one that was not run is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) tcp: Option<Figures>,
    pub(crate) tls: Option<Figures>,
    pub(crate) quinn: Option<Figures>,
    pub(crate) zerolane: Option<Figures>,
    /// Zerolane's goodput over TCP's: the median over the pairs.
    pub(crate) ratio_vs_tcp: Option<f64>,
    /// Over TLS's: likewise.
    pub(crate) ratio_vs_tls: Option<f64>,
    /// Over quinn's: likewise.
    pub(crate) ratio_vs_quinn: Option<f64>,
    /// Zerolane's CPU seconds a GB over TCP's, both ends together: likewise.
    pub(crate) cpu_ratio_vs_tcp: Option<f64>,
    /// Share of the bytes that the kernel wrote to their final place.
    pub(crate) placed_fraction: Option<f64>,
    /// Bytes copied again in user space, for each byte of payload.
    pub(crate) moved_bytes_per_byte: Option<f64>,
    pub(crate) tx_syscalls_per_mib: Option<f64>,
    pub(crate) rx_syscalls_per_mib: Option<f64>,
    /// Packets that did not land in their final place at once, over all runs.
    pub(crate) misplaced: Option<u64>,
    /// Packets dropped, over all runs.
    pub(crate) drops: Option<u64>,
}

/// What was measured, where and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setup {
    pub(crate) method: &'static str,
    /// Protection of Zerolane's connection. TCP has none, TLS and quinn encrypt by AES-128-GCM.
    pub(crate) security: Protection,
    /// The path between the ends, in words.
    pub(crate) path: String,
    pub(crate) sender: Machine,
    pub(crate) receiver: Machine,
    /// Congestion control of the TCP that TCP's and TLS's runs sent by.
    pub(crate) tcp_congestion: String,
    pub(crate) buffer_bytes: u64,
    pub(crate) bytes_per_run: u64,
    pub(crate) reps: u32,
    /// MTU of the path; `None` where it was not set.
    pub(crate) mtu: Option<u32>,
    pub(crate) offloads: &'static str,
    /// One core copying such a buffer to another, at the receiver.
    pub(crate) memcpy_gbps: f64,
}

/// The figures of one mover.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) gbps: Spread,
    pub(crate) tx_cpu_s_per_gb: f64,
    pub(crate) rx_cpu_s_per_gb: f64,
    /// As /proc/stat saw the cores: includes every other program.
    pub(crate) tx_core_busy_s_per_gb: Option<f64>,
    pub(crate) rx_core_busy_s_per_gb: Option<f64>,
    pub(crate) tx_syscalls_per_mib: f64,
    pub(crate) rx_syscalls_per_mib: f64,
}

/// Smallest, middle and largest of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Spread { min, median, max })
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// Receiver's goodput, Gb/s.
pub(crate) fn gbps(run: &RunResult) -> f64 {
    run.rx.bytes as f64 * 8.0 / GIGA / run.rx.seconds
}

fn cpu_s_per_gb(end: &Measured) -> f64 {
    end.cpu.total_s() / (end.bytes as f64 / GIGA)
}

fn both_cpu(run: &RunResult) -> f64 {
    cpu_s_per_gb(&run.tx) + cpu_s_per_gb(&run.rx)
}

fn syscalls_per_mib(end: &Measured) -> f64 {
    end.syscalls as f64 / (end.bytes as f64 / MIB)
}

impl Figures {
    fn of(runs: &[RunResult]) -> Option<Figures> {
        let of = |figure: fn(&RunResult) -> f64| median(runs.iter().map(figure));
        let busy = |end: fn(&RunResult) -> Measured| {
            median(runs.iter().filter_map(|run| {
                let measured = end(run);
                Some(measured.cpu.core_busy_s? / (measured.bytes as f64 / GIGA))
            }))
        };
        Some(Figures {
            gbps: Spread::of(runs.iter().map(gbps))?,
            tx_cpu_s_per_gb: of(|run| cpu_s_per_gb(&run.tx))?,
            rx_cpu_s_per_gb: of(|run| cpu_s_per_gb(&run.rx))?,
            tx_core_busy_s_per_gb: busy(|run| run.tx),
            rx_core_busy_s_per_gb: busy(|run| run.rx),
            tx_syscalls_per_mib: of(|run| syscalls_per_mib(&run.tx))?,
            rx_syscalls_per_mib: of(|run| syscalls_per_mib(&run.rx))?,
        })
    }
}

impl Report {
    /// The report of verified runs, in the order they were run.
    pub(crate) fn of(setup: Setup, runs: &[RunResult]) -> Report {
        let comparison = Comparison::of(runs);
        let zerolane = comparison.zerolane.as_ref();
        let memcpy_fraction = zerolane.map(|figures| figures.gbps.median / setup.memcpy_gbps);
        Report {
            setup,
            verified: true,
            memcpy_fraction,
            comparison,
        }
    }
}

impl Comparison {
    /// The figures of `runs`, in the order they were run.
    pub(crate) fn of(runs: &[RunResult]) -> Comparison {
        let by = |mover| -> Vec<RunResult> {
            runs.iter()
                .copied()
                .filter(|run| run.mover == mover)
                .collect()
        };
        let (tcp, zerolane) = (by(Mover::Tcp), by(Mover::Zerolane));
        let (tls, quinn) = (by(Mover::Tls), by(Mover::Quinn));
        let pairs = |other: &[RunResult], figure: fn(&RunResult) -> f64| {
            let pairs = other.iter().zip(&zerolane);
            median(pairs.map(|(other, zerolane)| figure(zerolane) / figure(other)))
        };
        let of = |figure: fn(&RunResult) -> f64| median(zerolane.iter().map(figure));
        let moved = |run: &RunResult| (run.tx.moved_bytes + run.rx.moved_bytes) as f64;
        let sum = |count: fn(&RunResult) -> u64| {
            (!zerolane.is_empty()).then(|| zerolane.iter().map(count).sum())
        };
        Comparison {
            tcp: Figures::of(&tcp),
            tls: Figures::of(&tls),
            quinn: Figures::of(&quinn),
            zerolane: Figures::of(&zerolane),
            ratio_vs_tcp: pairs(&tcp, gbps),
            ratio_vs_tls: pairs(&tls, gbps),
            ratio_vs_quinn: pairs(&quinn, gbps),
            cpu_ratio_vs_tcp: pairs(&tcp, both_cpu),
            placed_fraction: of(|run| run.rx.placed_bytes as f64 / run.rx.bytes as f64),
            moved_bytes_per_byte: median(
                zerolane.iter().map(|run| moved(run) / run.rx.bytes as f64),
            ),
            tx_syscalls_per_mib: of(|run| syscalls_per_mib(&run.tx)),
            rx_syscalls_per_mib: of(|run| syscalls_per_mib(&run.rx)),
            misplaced: sum(|run| run.tx.misplaced + run.rx.misplaced),
            drops: sum(|run| run.tx.drops + run.rx.drops),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::cpu::CpuTime;
    use serde_json::{Value, json};

    fn machine() -> Machine {
        Machine {
            cpu: "a cpu".into(),
            cores: 2,
            kernel: "6.18".into(),
            tcp_baseline: "cubic".into(),
        }
    }

    pub(crate) fn setup() -> Setup {
        Setup {
            method: "m",
            security: Protection::Plain,
            path: "p".into(),
            sender: machine(),
            receiver: machine(),
            tcp_congestion: "cubic".into(),
            buffer_bytes: 1 << 20,
            bytes_per_run: 1 << 30,
            reps: 3,
            mtu: Some(1500),
            offloads: "on",
            memcpy_gbps: 32.0,
        }
    }

    /// 1 GB moved in `seconds`, `cpu` seconds at each end.
    fn run(mover: Mover, seconds: f64, cpu: f64, moved_bytes: u64) -> RunResult {
        let cpu = CpuTime {
            process_s: cpu,
            softirqd_s: 0.0,
            core_busy_s: Some(2.0 * cpu),
        };
        let end = Measured {
            bytes: 1_000_000_000,
            seconds,
            cpu,
            syscalls: 10_000,
            placed_bytes: 0,
            moved_bytes: 0,
            misplaced: 0,
            drops: 1,
        };
        RunResult {
            mover,
            tx: end,
            rx: Measured {
                placed_bytes: end.bytes - moved_bytes,
                moved_bytes,
                ..end
            },
        }
    }

    fn pairs() -> Vec<RunResult> {
        let (tcp, zerolane) = (Mover::Tcp, Mover::Zerolane);
        vec![
            run(tcp, 1.0, 1.0, 0),
            run(zerolane, 0.5, 0.25, 0),
            run(zerolane, 1.0, 0.5, 500_000_000),
            run(tcp, 4.0, 0.5, 0),
            run(tcp, 1.0, 1.0, 0),
            run(zerolane, 2.0, 0.75, 0),
        ]
    }

    #[test]
    fn Spread__median_of_odd_even_and_none() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|s| s.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn Comparison__ratio_is_the_median_of_the_pairs() {
        // Pair ratios 2, 4, 0.5: their median is 2. The ratio of the medians
        // would be 1.
        let report = Comparison::of(&pairs());
        assert_eq!(report.ratio_vs_tcp, Some(2.0));
        assert_eq!(report.cpu_ratio_vs_tcp, Some(0.75));
    }

    #[test]
    fn Comparison__each_baseline_has_a_ratio_of_its_own() {
        let mut runs = pairs();
        runs.push(run(Mover::Tls, 2.0, 1.0, 0));
        runs.push(run(Mover::Quinn, 4.0, 1.0, 0));
        let report = Comparison::of(&runs);
        assert_eq!(report.ratio_vs_tcp, Some(2.0));
        assert_eq!(report.ratio_vs_tls, Some(4.0));
        assert_eq!(report.ratio_vs_quinn, Some(8.0));
        assert_eq!(report.quinn.unwrap().gbps.median, 2.0);
    }

    #[test]
    fn Comparison__counts_the_receivers_bytes() {
        let report = Comparison::of(&pairs());
        let zerolane = report.zerolane.unwrap();
        assert_eq!(
            zerolane.gbps,
            Spread {
                min: 4.0,
                median: 8.0,
                max: 16.0
            }
        );
        assert_eq!(Report::of(setup(), &pairs()).memcpy_fraction, Some(0.25));
        assert_eq!(zerolane.tx_cpu_s_per_gb, 0.5);
        assert_eq!(zerolane.rx_core_busy_s_per_gb, Some(1.0));
        assert_eq!(report.drops, Some(6));
        assert_eq!(report.placed_fraction, Some(1.0));
        let one = Comparison::of(&pairs()[2..3]);
        assert_eq!(one.placed_fraction, Some(0.5));
        assert_eq!(one.moved_bytes_per_byte, Some(0.5));
    }

    #[test]
    fn Report__json_holds_what_scripts_rely_on() {
        let shape =
            |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        let encrypted = [run(Mover::Tls, 1.0, 1.0, 0), run(Mover::Quinn, 1.0, 1.0, 0)];
        let runs: Vec<RunResult> = pairs().into_iter().chain(encrypted).collect();
        let json = serde_json::to_value(Report::of(setup(), &runs)).unwrap();
        for mover in ["tcp", "tls", "quinn", "zerolane"] {
            assert_eq!(shape(&json[mover]["gbps"]), ["max", "median", "min"]);
            for figure in ["tx_cpu_s_per_gb", "rx_cpu_s_per_gb"] {
                assert!(json[mover][figure].is_f64(), "{mover}.{figure}");
            }
        }
        for figure in [
            "ratio_vs_tcp",
            "ratio_vs_tls",
            "ratio_vs_quinn",
            "cpu_ratio_vs_tcp",
            "placed_fraction",
            "moved_bytes_per_byte",
            "tx_syscalls_per_mib",
            "rx_syscalls_per_mib",
            "memcpy_gbps",
        ] {
            assert!(json[figure].is_f64(), "{figure}");
        }
        assert_eq!(json["drops"], json!(6));
        assert_eq!(json["verified"], json!(true));
        assert_eq!(json["security"], json!("plain"));
        assert_eq!(json["sender"]["kernel"], json!("6.18"));
    }

    #[test]
    fn Comparison__one_mover_alone_has_no_ratio() {
        let report = Comparison::of(&pairs()[..1]);
        assert_eq!(report.ratio_vs_tcp, None);
        assert_eq!(report.zerolane, None);
        assert_eq!(report.drops, None);
    }
}
