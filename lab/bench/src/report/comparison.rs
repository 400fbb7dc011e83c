//! Compares contenders that move the same bytes.

use comfy_table::Table;
use serde::Serialize;

use super::{Spread, median, table};
use crate::harness::runs::Run;
use crate::job::name::Name;
use crate::measured::Measured;

const GIGA: f64 = 1e9;
const MIB: f64 = (1 << 20) as f64;

/// The contenders side by side; what needs one that was not run is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// In the mode that was asked for.
    pub(crate) zerolane: Option<Figures>,
    pub(crate) zerolane_plain: Option<Figures>,
    pub(crate) tcp: Option<Figures>,
    pub(crate) unix: Option<Figures>,
    pub(crate) tcp_splice: Option<Figures>,
    pub(crate) tcp_sendfile: Option<Figures>,
    pub(crate) tls: Option<Figures>,
    pub(crate) quinn: Option<Figures>,
    /// What sealed the payload of `zerolane`.
    pub(crate) cipher: Option<String>,
    /// Zerolane's goodput over TCP's: the median over the pairs.
    pub(crate) ratio_vs_tcp: Option<f64>,
    /// Over a UNIX socket's: likewise.
    pub(crate) ratio_vs_unix: Option<f64>,
    /// Over that of TCP by splice, and by sendfile: likewise.
    pub(crate) ratio_vs_tcp_splice: Option<f64>,
    pub(crate) ratio_vs_tcp_sendfile: Option<f64>,
    /// That of Zerolane without protection over TCP's: likewise.
    pub(crate) plain_ratio_vs_tcp: Option<f64>,
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

/// The figures of one contender.
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

/// Receiver's goodput, Gb/s.
pub(crate) fn gbps(run: &Run) -> f64 {
    run.rx.bytes as f64 * 8.0 / GIGA / run.rx.seconds
}

fn cpu_s_per_gb(end: &Measured) -> f64 {
    end.cpu.total_s() / (end.bytes as f64 / GIGA)
}

fn both_cpu(run: &Run) -> f64 {
    cpu_s_per_gb(&run.tx) + cpu_s_per_gb(&run.rx)
}

fn syscalls_per_mib(end: &Measured) -> f64 {
    end.syscalls as f64 / (end.bytes as f64 / MIB)
}

impl Figures {
    fn of(runs: &[&Run]) -> Option<Figures> {
        let of = |figure: fn(&Run) -> f64| median(runs.iter().map(|run| figure(run)));
        let busy = |end: fn(&Run) -> &Measured| {
            median(runs.iter().filter_map(|run| {
                let measured = end(run);
                Some(measured.cpu.core_busy_s? / (measured.bytes as f64 / GIGA))
            }))
        };
        Some(Figures {
            gbps: Spread::of(runs.iter().map(|run| gbps(run)))?,
            tx_cpu_s_per_gb: of(|run| cpu_s_per_gb(&run.tx))?,
            rx_cpu_s_per_gb: of(|run| cpu_s_per_gb(&run.rx))?,
            tx_core_busy_s_per_gb: busy(|run| &run.tx),
            rx_core_busy_s_per_gb: busy(|run| &run.rx),
            tx_syscalls_per_mib: of(|run| syscalls_per_mib(&run.tx))?,
            rx_syscalls_per_mib: of(|run| syscalls_per_mib(&run.rx))?,
        })
    }
}

impl Comparison {
    /// The figures of `runs`, in the order they were run.
    pub(crate) fn of(runs: &[Run]) -> Comparison {
        let by = |contender| -> Vec<&Run> {
            let all = runs.iter();
            all.filter(|run| run.contender == contender).collect()
        };
        let zerolane = by(Name::Zerolane);
        let over = |it: &[&Run], other: Name, figure: fn(&Run) -> f64| {
            let pairs = it.iter().zip(by(other));
            median(pairs.map(|(it, other)| figure(it) / figure(other)))
        };
        let ratio = |other| over(&zerolane, other, gbps);
        let figures = |contender| Figures::of(&by(contender));
        let ciphers = || zerolane.iter().filter_map(|run| run.rx.cipher.clone());
        let of = |figure: fn(&Run) -> f64| median(zerolane.iter().map(|run| figure(run)));
        let moved = |run: &Run| (run.tx.moved_bytes + run.rx.moved_bytes) as f64;
        let sum = |count: fn(&Run) -> u64| {
            (!zerolane.is_empty()).then(|| zerolane.iter().map(|run| count(run)).sum())
        };
        Comparison {
            zerolane: figures(Name::Zerolane),
            zerolane_plain: figures(Name::ZerolanePlain),
            tcp: figures(Name::Tcp),
            unix: figures(Name::Unix),
            tcp_splice: figures(Name::TcpSplice),
            tcp_sendfile: figures(Name::TcpSendfile),
            tls: figures(Name::Tls),
            quinn: figures(Name::Quinn),
            cipher: ciphers().next(),
            ratio_vs_tcp: ratio(Name::Tcp),
            ratio_vs_unix: ratio(Name::Unix),
            ratio_vs_tcp_splice: ratio(Name::TcpSplice),
            ratio_vs_tcp_sendfile: ratio(Name::TcpSendfile),
            plain_ratio_vs_tcp: over(&by(Name::ZerolanePlain), Name::Tcp, gbps),
            ratio_vs_tls: ratio(Name::Tls),
            ratio_vs_quinn: ratio(Name::Quinn),
            cpu_ratio_vs_tcp: over(&zerolane, Name::Tcp, both_cpu),
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

    /// Those that were run, in the order of tables.
    fn rows(&self) -> impl Iterator<Item = (Name, &Figures)> {
        let all = [
            (Name::Zerolane, &self.zerolane),
            (Name::ZerolanePlain, &self.zerolane_plain),
            (Name::Tcp, &self.tcp),
            (Name::Unix, &self.unix),
            (Name::TcpSplice, &self.tcp_splice),
            (Name::TcpSendfile, &self.tcp_sendfile),
            (Name::Tls, &self.tls),
            (Name::Quinn, &self.quinn),
        ];
        let all = all.into_iter();
        all.filter_map(|(name, figures)| Some((name, figures.as_ref()?)))
    }

    /// The TCP that lends its memory, if it was faster than plain TCP, and Zerolane's goodput over its.
    pub(crate) fn stronger_tcp(&self) -> Option<(Name, Option<f64>)> {
        let plain = self.tcp.as_ref().map_or(0.0, |it| it.gbps.median);
        let lent = [
            (Name::TcpSplice, &self.tcp_splice, self.ratio_vs_tcp_splice),
            (
                Name::TcpSendfile,
                &self.tcp_sendfile,
                self.ratio_vs_tcp_sendfile,
            ),
        ];
        let lent = lent.into_iter();
        let speeds =
            lent.filter_map(|(name, it, ratio)| Some((it.as_ref()?.gbps.median, name, ratio)));
        let best = speeds.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (best.0 > plain).then_some((best.1, best.2))
    }
}

/// Rows of what moving a GB cost, with the digits that are worth showing.
pub(crate) type Cost = (&'static str, usize, fn(&Figures) -> f64);
pub(crate) const COSTS: [Cost; 4] = [
    ("CPU s/GB, sender", 3, |it| it.tx_cpu_s_per_gb),
    ("CPU s/GB, receiver", 3, |it| it.rx_cpu_s_per_gb),
    ("system calls per MiB, sender", 1, |it| {
        it.tx_syscalls_per_mib
    }),
    ("system calls per MiB, receiver", 1, |it| {
        it.rx_syscalls_per_mib
    }),
];

/// A table with a row for each contender that was run, Zerolane as it was asked for first.
pub(crate) fn contenders(compared: &Comparison) -> Table {
    let costs = COSTS.map(|(name, ..)| name.replace(", ", "\n"));
    let goodput = "goodput, Gb/s\nmedian (min to max)".to_owned();
    let mut table = table([String::new(), goodput].into_iter().chain(costs), 1);
    for (name, figures) in compared.rows() {
        let costs = COSTS.iter();
        let costs = costs.map(|(_, digits, cost)| format!("{:.digits$}", cost(figures)));
        let row = [name.title().to_owned(), figures.gbps.text(1)];
        table.add_row(row.into_iter().chain(costs).collect::<Vec<_>>());
    }
    table
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::cpu::CpuTime;

    /// 1 GB moved in `seconds`, `cpu` seconds at each end.
    fn run(contender: Name, seconds: f64, cpu: f64, moved_bytes: u64) -> Run {
        let cpu = CpuTime {
            process_s: cpu,
            softirqd_s: 0.0,
            core_busy_s: Some(2.0 * cpu),
            unsoaked_s: None,
        };
        let end = Measured {
            bytes: 1_000_000_000,
            seconds,
            cpu,
            syscalls: 10_000,
            drops: 1,
            ..Measured::default()
        };
        Run {
            contender,
            rx: Measured {
                placed_bytes: end.bytes - moved_bytes,
                moved_bytes,
                ..end.clone()
            },
            tx: end,
        }
    }

    fn pairs() -> Vec<Run> {
        let (tcp, zerolane) = (Name::Tcp, Name::Zerolane);
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
        runs.push(run(Name::Tls, 2.0, 1.0, 0));
        runs.push(run(Name::Quinn, 4.0, 1.0, 0));
        let report = Comparison::of(&runs);
        assert_eq!(report.ratio_vs_tcp, Some(2.0));
        assert_eq!(report.ratio_vs_tls, Some(4.0));
        assert_eq!(report.ratio_vs_quinn, Some(8.0));
        assert_eq!(report.quinn.unwrap().gbps.median, 2.0);
    }

    #[test]
    fn Comparison__a_stronger_tcp_is_named_and_the_ratio_stays_that_to_plain_tcp() {
        let mut runs = pairs();
        // Plain TCP has 2, 8 and 8 Gb/s.
        runs.push(run(Name::TcpSplice, 1.25, 1.0, 0));
        assert_eq!(Comparison::of(&runs).stronger_tcp(), None);
        runs.push(run(Name::TcpSendfile, 0.8, 1.0, 0));
        let report = Comparison::of(&runs);
        assert_eq!(report.ratio_vs_tcp, Some(2.0));
        assert_eq!(report.ratio_vs_tcp_splice, Some(2.5));
        assert_eq!(report.stronger_tcp(), Some((Name::TcpSendfile, Some(1.6))));
    }

    #[test]
    fn Comparison__each_mode_of_zerolane_has_figures_of_its_own() {
        let mut runs = pairs();
        runs.push(run(Name::ZerolanePlain, 0.25, 1.0, 0));
        runs[1].rx.cipher = Some("a-cipher".into());
        let report = Comparison::of(&runs);
        assert_eq!(report.zerolane_plain.unwrap().gbps.median, 32.0);
        assert_eq!(report.zerolane.unwrap().gbps.median, 8.0);
        assert_eq!(
            (report.ratio_vs_tcp, report.plain_ratio_vs_tcp),
            (Some(2.0), Some(4.0))
        );
        assert_eq!(report.cipher.as_deref(), Some("a-cipher"));
    }

    #[test]
    fn contenders__those_that_were_run_and_the_product_first() {
        let table = contenders(&Comparison::of(&pairs())).to_string();
        let places = ["Zerolane", "TCP", "TLS", "sendfile"].map(|it| table.find(it));
        assert!(places[0] < places[1] && places[0].is_some(), "{table}");
        assert_eq!(places[2..], [None, None], "{table}");
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
        assert_eq!(zerolane.tx_cpu_s_per_gb, 0.5);
        assert_eq!(zerolane.rx_core_busy_s_per_gb, Some(1.0));
        assert_eq!(report.drops, Some(6));
        assert_eq!(report.placed_fraction, Some(1.0));
        let one = Comparison::of(&pairs()[2..3]);
        assert_eq!(one.placed_fraction, Some(0.5));
        assert_eq!(one.moved_bytes_per_byte, Some(0.5));
    }

    #[test]
    fn Comparison__one_alone_has_no_ratio() {
        let report = Comparison::of(&pairs()[..1]);
        assert_eq!(report.ratio_vs_tcp, None);
        assert_eq!(report.zerolane, None);
        assert_eq!(report.drops, None);
    }
}
