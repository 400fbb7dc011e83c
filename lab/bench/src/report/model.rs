//! Compares predictions with measurements.

use serde::Serialize;
use serde_json::Value;
use zerolane_model::{Bytes, Prediction, RowTraffic, UnitCosts};

use super::comparison::gbps;
use super::{Report, Spread, costs, median, percent, table};
use crate::harness::machine::Machine;
use crate::harness::runs::Run;
use crate::measured::Measured;

/// The method, as text; part of every report.
const METHOD: &str = "Unit costs: each measured alone, as the median of repetitions; two ends are two threads that \
     alternate. None of the predicted transfers runs for them. A prediction is the time per byte of the slower end. \
     The rows take turns (A B .. B A), each after a round of costs, and are measured as bench bulk and bench stream \
     measure them. Error: predicted goodput divided by the measured median, minus 1. Drift: the costs of the last \
     round divided by those of the first, minus 1. 1 GB is 1e9 bytes. Bytes on the memory bus are predicted from the \
     sizes of buffers and caches; measuring them needs hardware counters.";

/// Everything `bench model` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ModelReport {
    test: &'static str,
    method: &'static str,
    machine: Machine,
    /// The path between the ends, in words.
    path: String,
    /// Runs of each row.
    reps: u32,
    costs: UnitCosts,
    rows: Vec<ModelRow>,
    /// What became of the costs meanwhile.
    drift: Option<Drift>,
    /// Of the rows, regardless of the sign.
    median_error: Option<f64>,
    worst_error: Option<f64>,
}

/// By how much the medians of the costs of the last round differ from those of the first: the one over the other less 1,
/// regardless of the sign.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Drift {
    median: f64,
    worst: f64,
    /// The cost that differs most.
    worst_cost: String,
}

impl Drift {
    /// `None` of no costs.
    pub(crate) fn of(before: &UnitCosts, after: &UnitCosts) -> Option<Drift> {
        let [before, after] = [before, after].map(|costs| {
            let mut medians = Vec::new();
            // What is a number is printable.
            if let Ok(costs) = serde_json::to_value(costs) {
                add_medians("", &costs, &mut medians);
            }
            medians
        });
        let drifts = before.into_iter().zip(after);
        let drifts: Vec<_> = drifts
            .filter(|((name, before), (same, _))| name == same && *before > 0.0)
            .map(|((name, before), (_, after))| (name, (after / before - 1.0).abs()))
            .collect();
        let worst = drifts.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Drift {
            median: median(drifts.iter().map(|it| it.1))?,
            worst: worst.1,
            worst_cost: worst.0.clone(),
        })
    }
}

/// The medians of all costs, named by the keys on the way to them; entries of lists by their bytes.
fn add_medians(name: &str, value: &Value, medians: &mut Vec<(String, f64)>) {
    if let Some(median) = value["median"].as_f64() {
        medians.push((name.to_owned(), median));
        return;
    }
    for (key, below) in value.as_object().into_iter().flatten() {
        add_medians(format!("{name} {key}").trim_start(), below, medians);
    }
    for entry in value.as_array().into_iter().flatten() {
        add_medians(&format!("{name} {}", entry["bytes"]), entry, medians);
    }
}

/// A row of `bench bulk` or `bench stream`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ModelRow {
    row: String,
    predicted: Prediction,
    measured: Figures,
    /// Predicted goodput over the measured median, less 1.
    error: f64,
    /// What measures this row alone.
    command: String,
}

/// What was measured of it; CPU times are medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Figures {
    gbps: Spread,
    tx_cpu_s_per_gb: f64,
    rx_cpu_s_per_gb: f64,
}

impl ModelRow {
    /// `None` of no runs.
    pub(crate) fn new(
        row: String,
        command: String,
        predicted: Prediction,
        runs: &[Run],
    ) -> Option<ModelRow> {
        let cpu = |end: fn(&Run) -> &Measured| {
            median(runs.iter().map(|run| {
                let measured = end(run);
                measured.cpu.total_s() / (measured.bytes as f64 / 1e9).max(1e-9)
            }))
        };
        let measured = Figures {
            gbps: Spread::of(runs.iter().map(gbps))?,
            tx_cpu_s_per_gb: cpu(|run| &run.tx)?,
            rx_cpu_s_per_gb: cpu(|run| &run.rx)?,
        };
        Some(ModelRow {
            row,
            error: predicted.gbps / measured.gbps.median - 1.0,
            predicted,
            measured,
            command,
        })
    }
}

impl ModelReport {
    pub(crate) fn new(
        machine: Machine,
        path: String,
        reps: u32,
        rows: Vec<ModelRow>,
        costs: UnitCosts,
        drift: Option<Drift>,
    ) -> ModelReport {
        let errors = || rows.iter().map(|row| row.error.abs());
        ModelReport {
            test: "model",
            method: METHOD,
            machine,
            path,
            reps,
            costs,
            drift,
            median_error: median(errors()),
            worst_error: Spread::of(errors()).map(|it| it.max),
            rows,
        }
    }
}

impl Report for ModelReport {
    fn text(&self) -> String {
        let header = [
            "",
            "predicted\nGb/s",
            "measured, Gb/s\nmedian (min to max)",
            "error",
            "bottleneck",
            "CPU s/GB, sender\npredicted, measured",
            "CPU s/GB, receiver\npredicted, measured",
            "bytes on the bus for each byte\nsender, receiver; with adapters",
        ];
        let mut rows = table(header, 1);
        for row in &self.rows {
            let (predicted, measured) = (&row.predicted, &row.measured);
            let cpu = |predicted: f64, measured: f64| format!("{predicted:.3}, {measured:.3}");
            rows.add_row([
                row.row.clone(),
                format!("{:.1}", predicted.gbps),
                measured.gbps.text(1),
                format!("{:+.0} %", row.error * 1e2),
                predicted.bottleneck.to_owned(),
                cpu(predicted.tx_cpu_s_per_gb, measured.tx_cpu_s_per_gb),
                cpu(predicted.rx_cpu_s_per_gb, measured.rx_cpu_s_per_gb),
                on_the_bus(&predicted.traffic),
            ]);
        }
        let drift = self.drift.as_ref().map_or_else(String::new, |drift| {
            format!(
                "\nThe costs of the last round differ from those of the first by {} (median), at most {} ({}).",
                percent(Some(drift.median), 1),
                percent(Some(drift.worst), 1),
                drift.worst_cost
            )
        });
        format!(
            "{}\n{rows}\nmedian error {}, worst {}; {}, {}, {} runs of each row.{drift}",
            costs::tables(&self.costs),
            percent(self.median_error, 1),
            percent(self.worst_error, 1),
            self.machine.cpu,
            self.path,
            self.reps,
        )
    }
}

/// Of both ends, without adapters and with them; the latter from the least to the most.
fn on_the_bus(traffic: &RowTraffic) -> String {
    let range = |it: Bytes| match it.least == it.most {
        true => format!("{:.0}", it.least),
        false => format!("{:.0}-{:.0}", it.least, it.most),
    };
    let RowTraffic {
        here,
        with_adapters,
    } = traffic;
    format!(
        "{:.1}, {:.1}; {}, {}",
        here.sender.likely,
        here.receiver.likely,
        range(with_adapters.sender),
        range(with_adapters.receiver)
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn add_medians__names_each_cost() {
        let cost = |median| json!({"min": 1.0, "median": median, "max": 9.0});
        let costs = json!({
            "caches": {"own": 4},
            "call": cost(2.0),
            "wake": {"latency": cost(3.0)},
            "memory": [{"bytes": 64, "copy": cost(4.0)}],
        });
        let mut medians = Vec::new();
        add_medians("", &costs, &mut medians);
        let expected = [
            ("call", 2.0),
            ("memory 64 copy", 4.0),
            ("wake latency", 3.0),
        ];
        assert_eq!(medians, expected.map(|it| (it.0.to_owned(), it.1)));
    }
}
