//! Reports one-way times by size, contender and way of waiting, and their parts.

use serde::Serialize;

use super::operations::{Setup, Skipped, headline, left_out, measured};
use super::pareto::Part;
use super::{Report, Spread, cell, median, mtu, percent, table};
use crate::harness::runs::Run;
use crate::job::name::Name;
use crate::job::operations::Wait;
use crate::job::test::Test;

/// The method, as text; part of every report.
pub(crate) const METHOD: &str = "Ping-pong between two processes, each pinned to its own core. The one-way time is \
     half of a round trip, timed at the initiator in a histogram for each run after a warm-up. For each size and way \
     of waiting the contenders take turns (A B C, C B A), each run on its own connection. min, median and max are \
     those of the runs' medians; p99_us is the median of the runs' 99th percentiles, ratio_vs_udp the median of the \
     runs' ratios. poll: non-blocking sockets and connections are polled; event: both ends sleep in the kernel, \
     sockets in a blocking call, connections in poll(2). Every message carries its number and is checked, the last \
     one byte by byte. Pareto: both ends are sampled during a ping-pong, without the time spent waiting: for polling \
     ends, the samples of ends that poll without messages; for sleeping ends, the idle time of the core. The parts \
     are scaled to the measured one-way time.";

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Send and receive.
    Message,
    /// Into the peer's memory, without a receive.
    Put,
}

impl Operation {
    /// The test that times it.
    pub(crate) fn test(self) -> Test {
        match self {
            Operation::Message => Test::SendLat,
            Operation::Put => Test::PutLat,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Operation::Message => "message",
            Operation::Put => "put",
        }
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct What {
    /// Bytes of a message.
    pub(crate) size: usize,
    pub(crate) contender: Name,
    pub(crate) operation: Operation,
    pub(crate) wait: Wait,
}

/// Its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) what: What,
    pub(crate) one_way_us: Spread,
    pub(crate) p99_us: Option<f64>,
    /// Over that of raw UDP of the same size, waiting alike; `None` without it.
    pub(crate) ratio_vs_udp: Option<f64>,
    /// Messages of a run, each way.
    pub(crate) iters: u64,
    /// How many there were.
    pub(crate) runs: usize,
}

/// A module's part of a row's one-way time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Pareto {
    #[serde(flatten)]
    pub(crate) what: What,
    #[serde(flatten)]
    pub(crate) part: Part,
}

/// Everything `bench latency` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LatencyReport {
    pub(crate) test: &'static str,
    pub(crate) method: &'static str,
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// Every message that was received was the right one. A wrong one ends the command.
    pub(crate) verified: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) pareto: Vec<Pareto>,
    /// Why there is no Pareto, or not all of it.
    pub(crate) pareto_missing: Option<String>,
}

impl Row {
    /// `None` of no runs. `udp`: raw UDP's, in the same order.
    pub(crate) fn of(what: What, iters: u64, runs: &[Run], udp: &[Run]) -> Option<Row> {
        let p99s = runs.iter().filter_map(|it| measured(it).latency?.p99);
        let pairs = runs.iter().zip(udp);
        let ratios = pairs.filter_map(|(it, udp)| Some(headline(it)? / headline(udp)?));
        Some(Row {
            what,
            one_way_us: Spread::of(runs.iter().filter_map(headline))?,
            p99_us: median(p99s),
            ratio_vs_udp: median(ratios),
            iters,
            runs: runs.len(),
        })
    }

    /// In words.
    pub(crate) fn name(&self) -> String {
        let What {
            size,
            contender,
            operation,
            wait,
        } = self.what;
        let (title, operation, wait) = (contender.title(), operation.name(), words(wait));
        format!("{size} B, {title}, {operation}, {wait}")
    }
}

fn words(wait: Wait) -> &'static str {
    match wait {
        Wait::Poll => "poll",
        Wait::Event => "event",
    }
}

impl Report for LatencyReport {
    fn text(&self) -> String {
        let header = [
            "contender",
            "",
            "wait",
            "bytes",
            "one way, us\nmedian (min to max)",
            "p99",
            "/ UDP",
        ];
        let mut table = table(header, 3);
        for row in &self.rows {
            table.add_row([
                row.what.contender.title().to_owned(),
                row.what.operation.name().to_owned(),
                words(row.what.wait).to_owned(),
                row.what.size.to_string(),
                row.one_way_us.text(2),
                cell(row.p99_us, |it| format!("{it:.2}")),
                cell(row.ratio_vs_udp, |it| format!("{it:.2}")),
            ]);
        }
        let paretos = self.pareto.chunk_by(|a, b| a.what == b.what);
        let paretos: String = paretos.map(pareto).collect();
        let missing = self.pareto_missing.as_ref();
        let missing = missing.map_or_else(String::new, |why| {
            format!("\nThe attribution of the time is missing or incomplete: {why}.")
        });
        format!(
            "{table}\n{}, MTU {}, {} runs; Zerolane {}; payload verified.{}{missing}{paretos}",
            self.setup.path,
            mtu(self.setup.mtu),
            self.setup.reps,
            self.setup.security.name(),
            left_out(&self.skipped)
        )
    }
}

/// Where the time of one row goes.
fn pareto(parts: &[Pareto]) -> String {
    let Some(first) = parts.first() else {
        return String::new();
    };
    let What {
        size,
        contender,
        operation,
        wait,
    } = first.what;
    let us: f64 = parts.iter().map(|it| it.part.us).sum();
    let title = format!(
        "{size} B, {}, {}, {}: {us:.2} us",
        contender.title(),
        operation.name(),
        words(wait)
    );
    let mut table = table([&*title, "us", "share", "so far"], 1);
    for Part {
        module,
        us,
        share,
        cumulative,
        ..
    } in parts.iter().map(|it| &it.part)
    {
        table.add_row([
            module.clone(),
            format!("{us:.2}"),
            percent(Some(*share), 1),
            percent(Some(*cumulative), 1),
        ]);
    }
    format!("\n\n{table}")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::measured::Measured;
    use crate::measured::times::Quantiles;

    fn run(contender: Name, median: f64) -> Run {
        let latency = Quantiles {
            median: Some(median),
            p99: Some(10.0 * median),
            ..Quantiles::default()
        };
        Run {
            contender,
            tx: Measured::latency(latency),
            rx: Measured::default(),
        }
    }

    #[test]
    fn Row__ratios_are_run_by_run() {
        let what = What {
            size: 8,
            contender: Name::Tcp,
            operation: Operation::Message,
            wait: Wait::Poll,
        };
        // The machine was four times slower in the second round.
        let runs = [3.0, 12.0].map(|us| run(Name::Tcp, us));
        let udp = [2.0, 8.0].map(|us| run(Name::Udp, us));
        let row = Row::of(what, 7, &runs, &udp).unwrap();
        let Spread { min, median, max } = row.one_way_us;
        assert_eq!((min, median, max), (3.0, 7.5, 12.0));
        assert_eq!((row.p99_us, row.ratio_vs_udp), (Some(75.0), Some(1.5)));
        assert_eq!((row.iters, row.runs), (7, 2));
        assert_eq!(Row::of(what, 7, &runs, &[]).unwrap().ratio_vs_udp, None);
        assert_eq!(Row::of(what, 7, &[], &udp), None);
    }
}
