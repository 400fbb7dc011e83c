//! Reports of flows: tables and how to print them.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::figures::{FlowFigures, NetworkFigures};
use super::flow::contender::Contender;
use super::report::Spread;
use super::sweep::{Cell, Report};
use zerolane_cli::console;

/// Prints a report, as JSON or by `text` for people.
pub(super) fn print<R: Serialize>(report: &R, json: bool, text: fn(&R) -> String) -> Result<()> {
    if json {
        console::say(serde_json::to_string_pretty(report)?)
    } else {
        console::say(text(report))
    }
}

/// The report of a sweep, for people.
pub(super) fn text(report: &Report) -> String {
    let mut parts = vec![figures(report).to_string()];
    parts.extend(thesis(report).map(|table| table.to_string()));
    parts.extend(failures(report));
    parts.extend(not_emulated(report));
    parts.push(format!(
        "{:.0} Mb/s, MTU {}, {} runs of {} s each by turns, seed {}; Zerolane {}; payload verified. % of first: \
         of its own goodput over the first link. Came twice: of its payload. Jitter: added by this \
         machine, microseconds.",
        report.rate_bits_per_s as f64 / 1e6,
        report.mtu,
        report.reps,
        report.seconds_per_run,
        report.seed,
        report.security.name(),
    ));
    parts.join("\n")
}

/// A table whose first columns are words and whose others are figures.
pub(super) fn table<const N: usize>(header: [&str; N], words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn figures(report: &Report) -> Table {
    let header = [
        "link",
        "who",
        "Mb/s: median (min to max)",
        "% of link",
        "% of first",
        "sent again",
        "came twice",
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
        result.contender.name().to_owned(),
        result.mbps.map_or("-".into(), spread),
        percent(result.link_fraction, 1),
        percent(result.first_fraction, 1),
        percent(result.resent_fraction, 3),
        percent(result.repeated_fraction, 3),
        network.lost.to_string(),
        network.queue_dropped.to_string(),
        jitter(network),
    ]
}

/// Ours beside the thesis's, in its unit; `None` if no link is in both.
fn thesis(report: &Report) -> Option<Table> {
    let rows: Vec<(&Cell, super::thesis::Row)> = report
        .cells
        .iter()
        .filter_map(|cell| Some((cell, report.thesis.row(cell.thesis_row?)?)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let [a, b, c, d] = Contender::ALL.map(Contender::name);
    let header = [report.thesis.what, "STP 2001", "TCP 2001", a, b, c, d];
    let mut table = table(header, 1);
    for (cell, theirs) in rows {
        let ours = Contender::ALL.map(|contender| {
            let result = cell.results.iter().find(|it| it.contender == contender);
            let mbps = result.and_then(|it| it.mbps);
            mbps.map_or("-".into(), |mbps| megabytes(mbps.median))
        });
        let theirs = [
            cell.link.clone(),
            decimals(theirs.stp),
            decimals(theirs.tcp),
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

fn failures(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for cell in &report.cells {
        for result in &cell.results {
            let name = result.contender.name();
            let words = result.failures.iter();
            lines.extend(words.map(|why| format!("failed: {}, {name}: {why}", cell.link)));
        }
    }
    lines
}

fn not_emulated(report: &Report) -> Option<String> {
    let results = report.cells.iter().flat_map(|cell| &cell.results);
    let frames: u64 = results.map(|it| it.network.not_emulated).sum();
    (frames > 0)
        .then(|| format!("NOT EMULATED FAITHFULLY: {frames} frames were dropped by this machine"))
}

pub(super) fn spread(spread: Spread) -> String {
    let Spread { min, median, max } = spread;
    format!("{median:.1} ({min:.1} to {max:.1})")
}

pub(super) fn percent(fraction: Option<f64>, digits: usize) -> String {
    fraction.map_or("-".into(), |it| format!("{:.digits$} %", it * 100.0))
}

pub(super) fn jitter(network: &NetworkFigures) -> String {
    let jitter = network.added_jitter_us;
    format!("{:.0}, {:.0}", jitter.median, jitter.p99)
}
