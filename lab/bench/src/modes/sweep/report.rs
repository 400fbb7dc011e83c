//! Prints the results of a sweep.

use comfy_table::Table;
use serde::Serialize;

use super::thesis::{Row, Thesis};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::modes::arguments::FLOWING;
use crate::report::flows::{FlowFigures, LeftOut};
use crate::report::{Report, cell, percent, table};

/// Everything a sweep says; `--json` prints it as it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SweepReport {
    pub(crate) bench: &'static str,
    pub(crate) method: &'static str,
    pub(crate) rate_bits_per_s: u64,
    pub(crate) mtu: u32,
    pub(crate) seconds_per_run: f64,
    pub(crate) reps: u32,
    pub(crate) seed: u64,
    /// Of Zerolane's connections.
    pub(crate) security: Protection,
    /// Every piece that arrived whole was right.
    pub(crate) verified: bool,
    /// What this machine cannot run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) thesis: Thesis,
}

/// One link, and how each contender fared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) link: String,
    #[serde(skip)]
    pub(crate) thesis_row: Option<&'static str>,
    pub(crate) rtt_ms: f64,
    pub(crate) results: Vec<FlowFigures>,
}

impl Cell {
    /// Goodput over this link, Mb/s.
    pub(super) fn goodput_of(&self, contender: Name) -> Option<f64> {
        let result = self.results.iter().find(|it| it.contender == contender)?;
        Some(result.mbps?.median)
    }
}

impl Report for SweepReport {
    fn text(&self) -> String {
        let mut parts = vec![figures(self).to_string()];
        parts.extend(thesis(self).map(|table| table.to_string()));
        parts.extend(self.left_out.iter().map(LeftOut::to_string));
        parts.extend(failures(self));
        parts.extend(not_emulated(self));
        parts.push(format!(
            "{:.0} Mb/s, MTU {}, {} runs of {} s each in turn, seed {}; Zerolane {}; payload verified. % of first: \
             relative to its own goodput over the first link. Received twice: share of its payload. Jitter: added by \
             this machine, microseconds.",
            self.rate_bits_per_s as f64 / 1e6,
            self.mtu,
            self.reps,
            self.seconds_per_run,
            self.seed,
            self.security.name(),
        ));
        parts.join("\n")
    }
}

fn figures(report: &SweepReport) -> Table {
    let header = [
        "link",
        "contender",
        "Mb/s: median (min to max)",
        "% of link",
        "% of first",
        "retransmitted",
        "received twice",
        "lost",
        "queue full",
        "jitter: median, 99 %",
    ];
    let mut table = table(header, 2);
    for cell in &report.cells {
        for (index, result) in cell.results.iter().enumerate() {
            let link = if index == 0 { cell.link.as_str() } else { "" };
            table.add_row(row(link, result));
        }
    }
    table
}

fn row(link: &str, result: &FlowFigures) -> Vec<String> {
    let network = &result.network;
    vec![
        link.to_owned(),
        result.contender.title().to_owned(),
        cell(result.mbps, |mbps| mbps.text(1)),
        percent(result.link_fraction, 1),
        percent(result.first_fraction, 1),
        percent(result.resent_fraction, 3),
        percent(result.repeated_fraction, 3),
        network.lost.to_string(),
        network.queue_dropped.to_string(),
        network.added_jitter_us.text(),
    ]
}

/// Ours beside the thesis's, in its unit; `None` if no link is in both.
fn thesis(report: &SweepReport) -> Option<Table> {
    let rows: Vec<(&Cell, Row)> = report
        .cells
        .iter()
        .filter_map(|cell| Some((cell, report.thesis.row(cell.thesis_row?)?)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let [a, b, c, d] = FLOWING.map(Name::title);
    let header = [
        report.thesis.what,
        "STP 2001\n512 KiB",
        "TCP 2001",
        "STP 2001\n128 KiB",
        "TCP 2001",
        a,
        b,
        c,
        d,
    ];
    let mut table = table(header, 1);
    for (link, theirs) in rows {
        let ours = FLOWING.map(|contender| {
            let result = link.results.iter().find(|it| it.contender == contender);
            let mbps = result.and_then(|it| it.mbps);
            cell(mbps, |mbps| megabytes(mbps.median))
        });
        let theirs = [
            link.link.clone(),
            decimals(theirs.stp),
            decimals(theirs.tcp),
            decimals(theirs.stp_128k),
            cell(theirs.tcp_128k, decimals),
        ];
        table.add_row(theirs.into_iter().chain(ours).collect::<Vec<String>>());
    }
    Some(table)
}

/// MB/s of 2^20 bytes.
fn megabytes(mbps: f64) -> String {
    decimals(mbps * 1e6 / 8.0 / f64::from(1 << 20))
}

/// Three significant digits or so.
fn decimals(value: f64) -> String {
    let digits = if value < 10.0 { 2 } else { 1 };
    format!("{value:.digits$}")
}

fn failures(report: &SweepReport) -> Vec<String> {
    let mut lines = Vec::new();
    for cell in &report.cells {
        for result in &cell.results {
            let name = result.contender.title();
            let words = result.failures.iter();
            lines.extend(words.map(|why| format!("failed: {}, {name}: {why}", cell.link)));
        }
    }
    lines
}

fn not_emulated(report: &SweepReport) -> Option<String> {
    let results = report.cells.iter().flat_map(|cell| &cell.results);
    let frames: u64 = results.map(|it| it.network.not_emulated).sum();
    (frames > 0)
        .then(|| format!("NOT EMULATED FAITHFULLY: {frames} frames were dropped by this machine"))
}
