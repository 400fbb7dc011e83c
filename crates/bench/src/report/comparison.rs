//! Contenders that move the same bytes, side by side.

use comfy_table::Table;
use serde::Serialize;

use super::{Spread, cell, median, table};
use crate::harness::runs::Run;
use crate::job::name::Name;
use crate::measured::Measured;

const GIGA: f64 = 1e9;
const MIB: f64 = (1 << 20) as f64;

/// The contenders side by side; what needs one that was not run is `None`.
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
        let (tcp, zerolane) = (by(Name::Tcp), by(Name::Zerolane));
        let (tls, quinn) = (by(Name::Tls), by(Name::Quinn));
        let pairs = |other: &[&Run], figure: fn(&Run) -> f64| {
            let pairs = other.iter().zip(&zerolane);
            median(pairs.map(|(other, zerolane)| figure(zerolane) / figure(other)))
        };
        let of = |figure: fn(&Run) -> f64| median(zerolane.iter().map(|run| figure(run)));
        let moved = |run: &Run| (run.tx.moved_bytes + run.rx.moved_bytes) as f64;
        let sum = |count: fn(&Run) -> u64| {
            (!zerolane.is_empty()).then(|| zerolane.iter().map(|run| count(run)).sum())
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

/// A table with a column for each contender: TCP and Zerolane, between them those that were run.
pub(crate) struct SideBySide<'a> {
    columns: Vec<Option<&'a Figures>>,
    table: Table,
}

impl SideBySide<'_> {
    /// A table without rows yet.
    pub(crate) fn new(compared: &Comparison) -> SideBySide<'_> {
        let between = [(Name::Tls, &compared.tls), (Name::Quinn, &compared.quinn)];
        let between = between.into_iter().filter(|(_, figures)| figures.is_some());
        let (names, columns): (Vec<&str>, Vec<Option<&Figures>>) = [(Name::Tcp, &compared.tcp)]
            .into_iter()
            .chain(between)
            .chain([(Name::Zerolane, &compared.zerolane)])
            .map(|(name, figures)| (name.title(), figures.as_ref()))
            .unzip();
        let table = table([""].into_iter().chain(names), 1);
        SideBySide { columns, table }
    }

    /// A row of a figure that every contender has.
    pub(crate) fn row(&mut self, name: &str, figure: &dyn Fn(&Figures) -> String) {
        let cells = self.columns.iter().map(|figures| cell(*figures, figure));
        let row = [name.to_owned()].into_iter().chain(cells);
        self.table.add_row(row.collect::<Vec<_>>());
    }

    /// The rows of CPU time and system calls.
    pub(crate) fn costs(&mut self) {
        type Figure = fn(&Figures) -> f64;
        let rows: [(&str, usize, Figure); 4] = [
            ("CPU s/GB, sender", 3, |it| it.tx_cpu_s_per_gb),
            ("CPU s/GB, receiver", 3, |it| it.rx_cpu_s_per_gb),
            ("system calls per MiB, sender", 1, |it| {
                it.tx_syscalls_per_mib
            }),
            ("system calls per MiB, receiver", 1, |it| {
                it.rx_syscalls_per_mib
            }),
        ];
        for (name, digits, figure) in rows {
            self.row(name, &|it| format!("{:.digits$}", figure(it)));
        }
    }

    /// A row of cells as they are, of a table of TCP and Zerolane alone.
    pub(crate) fn cells(&mut self, name: &str, tcp: &str, zerolane: &str) {
        self.table.add_row([name, tcp, zerolane]);
    }

    /// The table.
    pub(crate) fn finish(self) -> Table {
        self.table
    }
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
