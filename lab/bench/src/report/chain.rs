//! Computes what a node of a chain carries with and without copies, and what a model predicts of that.

use serde::Serialize;
use zerolane_cast::plan::{Cast, Shape, estimate};

use super::stream::in_words;
use super::{Report, Spread, cell, table};
use crate::harness::machine::Machine;

/// The method, as text; part of every report.
const METHOD: &str = "A source sends pieces along a chain; each node receives them and sends them on. All are threads of one \
     process on loopback; the ways take turns (A B .. B A). TCP: recv and send, the kernel copies at each. Copies: Zerolane, \
     plain, without the forecast, so that the lane copies all payload into its place, and once more by the node, before it \
     sends on. Zero copy: the forecast, and the memory that was received into is sent on. A node's rate: bytes over the CPU \
     time of all threads, by link. The model takes the CPU time with copies and the rate of a copy, measured alone, and \
     leaves two copies of each byte out. Each piece is numbered in each page, and comes to the last node once.";

/// How a node gets a piece and passes it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    Tcp,
    Copies,
    ZeroCopy,
}

impl Way {
    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Tcp => "TCP",
            Way::Copies => "Zerolane with two copies",
            Way::ZeroCopy => "Zerolane without",
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) way: Way,
    /// Of the stream.
    pub(crate) bytes: u64,
    /// Links of the chain, as many as nodes.
    pub(crate) links: usize,
    pub(crate) seconds: f64,
    /// CPU time of all threads.
    pub(crate) cpu_s: f64,
}

impl Run {
    fn gb(&self) -> f64 {
        (self.bytes as f64 / 1e9).max(1e-9)
    }

    /// Of a link: a sender and a receiver, which are a node's work.
    fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / self.gb() / self.links.max(1) as f64
    }
}

/// Copies of each byte by the CPU that the last way leaves out.
const COPIES: f64 = 2.0;

/// A way, and what was measured of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    way: Way,
    /// Of the stream, GB/s.
    gb_per_s: Spread,
    /// CPU time of a node, s/GB.
    node_cpu_s_per_gb: Spread,
}

/// What the model says of a node without copies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Modelled {
    /// A node's rate with copies, from its measured CPU time, GB/s.
    with_copies_gb_per_s: f64,
    /// Without, by the model.
    without_gb_per_s: f64,
    /// Without, from the measured CPU time.
    measured_gb_per_s: f64,
    /// Modelled over measured, less 1.
    error: f64,
}

impl Modelled {
    /// `None`: copies took more than all, so their rate is not that of the stream.
    fn of(rows: &[Row], copy_gb_per_s: f64) -> Option<Modelled> {
        let cpu = |way| {
            let row = rows.iter().find(|it| it.way == way)?;
            Some(row.node_cpu_s_per_gb.median).filter(|it| *it > 0.0)
        };
        let (with, without) = (cpu(Way::Copies)?, cpu(Way::ZeroCopy)?);
        let rest = with - COPIES / copy_gb_per_s;
        let node = |copies| {
            let cast = Cast {
                cpu: 1e9 / rest,
                copies,
                copy: copy_gb_per_s * 1e9,
                ..Cast::over_ports(1, 1_000_000_000, 1, f64::MAX)
            };
            1.0 / estimate(&cast, Shape::Chain).seconds
        };
        (rest > 0.0).then(|| Modelled {
            with_copies_gb_per_s: node(COPIES),
            without_gb_per_s: node(0.0),
            measured_gb_per_s: 1.0 / without,
            error: node(0.0) * without - 1.0,
        })
    }
}

/// Where and how it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setup {
    pub(crate) machine: Machine,
    pub(crate) reps: u32,
    /// Behind the source.
    pub(crate) nodes: usize,
    /// Bytes of a piece.
    pub(crate) size: usize,
    /// Bytes of a run.
    pub(crate) bytes: u64,
    /// What one core copies.
    pub(crate) copy_gb_per_s: f64,
}

/// Everything `bench chain` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ChainReport {
    method: &'static str,
    #[serde(flatten)]
    setup: Setup,
    rows: Vec<Row>,
    modelled: Option<Modelled>,
}

impl ChainReport {
    pub(crate) fn new(setup: Setup, runs: &[Run]) -> ChainReport {
        let rows = [Way::Tcp, Way::Copies, Way::ZeroCopy].into_iter();
        let rows = rows.filter_map(|way| {
            let of = || runs.iter().filter(|it| it.way == way);
            Some(Row {
                way,
                gb_per_s: Spread::of(of().map(|it| it.gb() / it.seconds.max(1e-9)))?,
                node_cpu_s_per_gb: Spread::of(of().map(Run::cpu_s_per_gb))?,
            })
        });
        let rows: Vec<_> = rows.collect();
        ChainReport {
            method: METHOD,
            modelled: Modelled::of(&rows, setup.copy_gb_per_s),
            setup,
            rows,
        }
    }
}

impl Report for ChainReport {
    fn text(&self) -> String {
        let header = [
            "",
            "the stream, GB/s\nmedian (min to max)",
            "CPU of a node, s/GB",
            "a node's rate, GB/s",
        ];
        let mut table = table(header, 1);
        for row in &self.rows {
            table.add_row([
                row.way.name().to_owned(),
                row.gb_per_s.text(2),
                row.node_cpu_s_per_gb.text(3),
                format!("{:.2}", 1.0 / row.node_cpu_s_per_gb.median),
            ]);
        }
        let modelled = cell(self.modelled, |it| {
            format!(
                "without copies a node carries {:.2} GB/s by the model, {:.2} measured (error {:+.0} %)",
                it.without_gb_per_s,
                it.measured_gb_per_s,
                it.error * 1e2
            )
        });
        format!(
            "{table}\n{modelled}; one core copies {:.1} GB/s; {} nodes, pieces of {}, {}, {} runs of each.",
            self.setup.copy_gb_per_s,
            self.setup.nodes,
            in_words(self.setup.size),
            self.setup.machine.cpu,
            self.setup.reps
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn row(way: Way, cpu: f64) -> Row {
        let spread = |it| Spread {
            min: it,
            median: it,
            max: it,
        };
        Row {
            way,
            gb_per_s: spread(1.0),
            node_cpu_s_per_gb: spread(cpu),
        }
    }

    /// The paper's figures, GB/s for MB/s: 11.1 with copies and a copy of 92 make 14.6; 12.2 were measured.
    #[test]
    fn Modelled__is_the_papers_of_its_figures() {
        let rows = [row(Way::Copies, 1.0 / 11.1), row(Way::ZeroCopy, 1.0 / 12.2)];
        let it = Modelled::of(&rows, 92.0).unwrap();
        assert!((it.with_copies_gb_per_s - 11.1).abs() < 1e-6, "{it:?}");
        assert_eq!((it.without_gb_per_s * 10.0).round(), 146.0);
        assert!((it.measured_gb_per_s - 12.2).abs() < 1e-9);
        assert_eq!((it.error * 100.0).round(), 20.0);
        assert_eq!(Modelled::of(&rows, 20.0), None);
        assert_eq!(Modelled::of(&rows[..1], 92.0), None);
    }

    #[test]
    fn Run__of_a_link() {
        let run = Run {
            way: Way::Tcp,
            bytes: 2_000_000_000,
            links: 4,
            seconds: 1.0,
            cpu_s: 1.6,
        };
        assert!((run.cpu_s_per_gb() - 0.2).abs() < 1e-9);
    }
}
