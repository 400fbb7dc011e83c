//! What was predicted beside what was measured.

use serde::Serialize;
use zerolane_model::{Prediction, UnitCosts};

use super::comparison::gbps;
use super::{Report, Spread, costs, median, percent, table};
use crate::harness::machine::Machine;
use crate::harness::runs::Run;
use crate::measured::Measured;

/// How the figures came about, in words; part of every report.
const METHOD: &str = "Unit costs first: each by itself, the median of repetitions, of two threads that take turns where there are \
    two ends; nothing of what is predicted is run for them. A prediction is what the slower end takes for a byte. The rows take \
    turns (A B .. B A), measured as bench bulk and bench stream measure them. Error: predicted goodput over the median of the \
    measured, less 1. 1 GB is 1e9 bytes. Bytes on the memory bus are predicted from the sizes of buffers and caches, and not \
    measured: this needs hardware counters.";

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
    /// Of the rows, regardless of the sign.
    median_error: Option<f64>,
    worst_error: Option<f64>,
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
    ) -> ModelReport {
        let errors = || rows.iter().map(|row| row.error.abs());
        ModelReport {
            test: "model",
            method: METHOD,
            machine,
            path,
            reps,
            costs,
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
            "bytes on the bus\nfor each byte",
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
                format!("{:.0}", predicted.bus_bytes_per_byte),
            ]);
        }
        format!(
            "{}\n{rows}\nmedian error {}, worst {}; {}, {}, {} runs of each row.",
            costs::tables(&self.costs),
            percent(self.median_error, 1),
            percent(self.worst_error, 1),
            self.machine.cpu,
            self.path,
            self.reps,
        )
    }
}
