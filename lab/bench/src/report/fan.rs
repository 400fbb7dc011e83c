//! Computes the figures of many streams at once.

use serde::Serialize;

use super::comparison::gbps;
use super::{Report, Spread, cell, table};
use crate::cpu::CpuTime;
use crate::harness::machine::Machine;
use crate::harness::runs::Run;
use crate::job::name::Name;
use crate::job::settings::Protection;

/// The method, as text; part of every report.
const METHOD: &str = "The many ends are processes with one stream each, all on one core; the single end is a process \
     with one thread per stream. Contenders and patterns take turns (A B .. B A). Goodput is counted at the receivers \
     over the time of each stream, and every word of every complete piece is checked. Fairness is Jain's index over \
     the streams of one direction, the lower of the two: 1 if all got the same, 1/n if one got everything. In both \
     directions at once, each direction has that many streams. CPU: getrusage of the processes of a side plus their \
     core's ksoftirqd, from the last connection's setup to the end of the streams, per GB of both directions; 1 GB is 1e9 bytes.";

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pattern {
    /// Many to one.
    In,
    /// One to many.
    Out,
    /// Both at once.
    Dual,
}

impl Pattern {
    pub(crate) const ALL: [Pattern; 3] = [Pattern::In, Pattern::Out, Pattern::Dual];

    fn name(self) -> &'static str {
        match self {
            Pattern::In => "many to one",
            Pattern::Out => "one to many",
            Pattern::Dual => "both at once",
        }
    }
}

/// A pattern by a contender: each run's figures, then what they come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pattern: Pattern,
    contender: Name,
    /// All streams together, and those to and from the one.
    gbps: Vec<f64>,
    to_gbps: Vec<f64>,
    from_gbps: Vec<f64>,
    fairness: Vec<f64>,
    /// CPU seconds for each GB that came, of all ends at the side of the many, and of the one.
    many_cpu_s_per_gb: Vec<f64>,
    one_cpu_s_per_gb: Vec<f64>,
}

impl Row {
    /// One that is not measured yet.
    pub(crate) fn new(pattern: Pattern, contender: Name) -> Row {
        Row {
            pattern,
            contender,
            gbps: Vec::new(),
            to_gbps: Vec::new(),
            from_gbps: Vec::new(),
            fairness: Vec::new(),
            many_cpu_s_per_gb: Vec::new(),
            one_cpu_s_per_gb: Vec::new(),
        }
    }

    /// Adds a run: its streams to the one, and from it.
    pub(crate) fn add(&mut self, runs: &[Vec<Run>; 2]) {
        let sums = runs
            .each_ref()
            .map(|runs| runs.iter().map(gbps).sum::<f64>());
        let ways = runs.iter().filter(|runs| !runs.is_empty());
        self.to_gbps.push(sums[0]);
        self.from_gbps.push(sums[1]);
        self.gbps.push(sums[0] + sums[1]);
        self.fairness
            .push(ways.map(|it| jain(it)).fold(1.0, f64::min));
        let [to, from] = runs;
        let bytes: u64 = runs.iter().flatten().map(|run| run.rx.bytes).sum();
        let per_gb = |seconds: f64| seconds / (bytes as f64 / 1e9).max(1e-9);
        // The one receives what goes to it, and sends what comes from it.
        let many = to.iter().map(|run| &run.tx.cpu);
        let many = many.chain(from.iter().map(|run| &run.rx.cpu));
        self.many_cpu_s_per_gb.push(per_gb(on_one_core(many)));
        let one = to.iter().map(|run| &run.rx.cpu);
        let one = one.chain(from.iter().map(|run| &run.tx.cpu));
        self.one_cpu_s_per_gb.push(per_gb(on_one_core(one)));
    }

    /// The last run in words.
    pub(crate) fn last(&self) -> String {
        let gbps = self.gbps.last().copied().unwrap_or_default();
        let (pattern, title) = (self.pattern.name(), self.contender.title());
        format!("{pattern}, {title}: {gbps:.1} Gb/s")
    }
}

/// CPU seconds of processes that share a core, and so its ksoftirqd, which each of them saw.
fn on_one_core<'a>(ends: impl Iterator<Item = &'a CpuTime> + Clone) -> f64 {
    let processes: f64 = ends.clone().map(|it| it.process_s).sum();
    processes + ends.map(|it| it.softirqd_s).fold(0.0, f64::max)
}

/// Jain's index of the streams' goodput.
fn jain(runs: &[Run]) -> f64 {
    let speeds = || runs.iter().map(gbps);
    let (sum, squares) = (
        speeds().sum::<f64>(),
        speeds().map(|it| it * it).sum::<f64>(),
    );
    match squares > 0.0 {
        true => sum * sum / (runs.len() as f64 * squares),
        false => 0.0,
    }
}

/// Everything `bench fan` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FanReport {
    method: &'static str,
    machine: Machine,
    /// The path between the ends, in words.
    path: String,
    /// Protection of Zerolane's connections.
    security: Protection,
    /// Ends at the side of the many.
    ends: u8,
    rows: Vec<Row>,
}

impl FanReport {
    pub(crate) fn new(
        machine: Machine,
        path: String,
        security: Protection,
        ends: u8,
        rows: Vec<Row>,
    ) -> FanReport {
        FanReport {
            method: METHOD,
            machine,
            path,
            security,
            ends,
            rows,
        }
    }
}

impl Report for FanReport {
    fn text(&self) -> String {
        let header = [
            "",
            "contender",
            "Gb/s, in total",
            "to the one",
            "from it",
            "fairness",
            "CPU s/GB\nthe many",
            "the one",
        ];
        let mut table = table(header, 2);
        for row in &self.rows {
            let spread = |values: &[f64], digits| {
                cell(Spread::of(values.iter().copied()), |it| it.text(digits))
            };
            table.add_row([
                row.pattern.name().to_owned(),
                row.contender.title().to_owned(),
                spread(&row.gbps, 1),
                spread(&row.to_gbps, 1),
                spread(&row.from_gbps, 1),
                spread(&row.fairness, 2),
                spread(&row.many_cpu_s_per_gb, 3),
                spread(&row.one_cpu_s_per_gb, 3),
            ]);
        }
        format!(
            "{table}\nthe many: {} ends; {}; Zerolane {}; counted at the receivers; payload verified.",
            self.ends,
            self.path,
            self.security.name()
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::measured::Measured;

    fn stream(gbps: f64) -> Run {
        let end = Measured::stream(1_000_000_000, 8.0 / gbps);
        Run {
            contender: Name::Tcp,
            tx: Measured::default(),
            rx: end,
        }
    }

    #[test]
    fn add__sums_by_direction_and_the_less_fair_of_both() {
        let mut row = Row::new(Pattern::Dual, Name::Tcp);
        row.add(&[
            vec![stream(2.0), stream(2.0)],
            vec![stream(4.0), stream(1.0)],
        ]);
        let near = |it: f64, expected: f64| (it - expected).abs() < 1e-9;
        assert!(near(row.to_gbps[0], 4.0) && near(row.from_gbps[0], 5.0) && near(row.gbps[0], 9.0));
        assert!(near(row.fairness[0], 25.0 / 34.0), "{row:?}");
        row.add(&[vec![stream(3.0)], vec![]]);
        assert!(near(row.gbps[1], 3.0) && near(row.fairness[1], 1.0));
        assert_eq!(row.from_gbps[1], 0.0);
    }

    /// 2 GB in all; the core's ksoftirqd is seen by each of its processes.
    #[test]
    fn add__cpu_is_of_each_side_and_counts_a_core_once() {
        let of = |sender: f64, receiver: f64| {
            let cpu = |process_s| CpuTime {
                process_s,
                softirqd_s: 0.5,
                ..CpuTime::default()
            };
            let mut run = stream(8.0);
            (run.tx.cpu, run.rx.cpu) = (cpu(sender), cpu(receiver));
            run
        };
        let mut row = Row::new(Pattern::Dual, Name::Tcp);
        row.add(&[vec![of(1.0, 10.0)], vec![of(20.0, 2.0)]]);
        assert_eq!(row.many_cpu_s_per_gb, [(1.0 + 2.0 + 0.5) / 2.0]);
        assert_eq!(row.one_cpu_s_per_gb, [(10.0 + 20.0 + 0.5) / 2.0]);
    }
}
