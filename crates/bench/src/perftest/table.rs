//! A report for people: a line for each size and side, as perftest prints them.

use comfy_table::{CellAlignment, Table, presets};

use super::command::Side;
use super::job::Wait;
use super::measure::Skipped;
use super::report::{Figures, Report, Setup, SizeReport};
use super::test::Metric;
use crate::report::Spread;

/// The report in words.
pub(crate) fn of(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header(report));
    for size in &report.sizes {
        for (&side, figures) in &size.sides {
            table.add_row(row(size, side, figures));
        }
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n{}{}", facts(report), left_out(&report.skipped))
}

/// A line for each side and reason.
fn left_out(skipped: &[Skipped]) -> String {
    let alike = |one: &Skipped, other: &Skipped| (one.side, &one.why) == (other.side, &other.why);
    let lines = skipped.chunk_by(alike).map(|group| {
        let sizes: Vec<String> = group
            .iter()
            .filter_map(|it| Some(it.size?.to_string()))
            .collect();
        let sizes = match sizes.is_empty() {
            true => String::new(),
            false => format!(" at {} bytes", sizes.join(", ")),
        };
        format!(
            "\n{}{sizes} left out: {}.",
            group[0].side.name(),
            group[0].why
        )
    });
    lines.collect()
}

fn header(report: &Report) -> Vec<&'static str> {
    match report.test.metric() {
        Metric::Latency => vec![
            "bytes",
            "side",
            "min us",
            "median",
            "p99",
            "max",
            "mean",
            "Zerolane /",
        ],
        Metric::Stream => vec![
            "bytes",
            "side",
            "Gb/s: median (min to max)",
            "million/s",
            "lost",
            "Zerolane /",
        ],
    }
}

fn row(size: &SizeReport, side: Side, figures: &Figures) -> Vec<String> {
    let mut row = vec![size.size.to_string(), side.name().to_owned()];
    match figures {
        Figures::Latency { us } => {
            let cell = |us: Option<f64>| us.map_or("-".into(), |us| format!("{us:.2}"));
            row.extend([us.min, us.median, us.p99, us.max, us.mean].map(cell));
        }
        Figures::Stream {
            gbps,
            mops,
            lost_fraction,
        } => row.extend([
            spread(*gbps),
            format!("{:.3}", mops.median),
            format!("{:.1} %", lost_fraction * 1e2),
        ]),
    }
    row.push(
        size.ratio_vs
            .get(&side)
            .map_or("-".into(), |ratio| format!("{ratio:.2}")),
    );
    row
}

fn spread(spread: Spread) -> String {
    format!(
        "{:.2} ({:.2} to {:.2})",
        spread.median, spread.min, spread.max
    )
}

fn facts(report: &Report) -> String {
    let way = match (report.test.metric(), report.test.round_trip_parts()) {
        (Metric::Stream, _) => "",
        (Metric::Latency, 1) => "there and back, ",
        (Metric::Latency, _) => "one way, ",
    };
    let wait = match report.wait {
        Wait::Poll => "polling",
        Wait::Event => "asleep while waiting",
    };
    format!(
        "{}: {way}{wait}; {}, MTU {}, {} runs; {}Zerolane {}; payload verified.",
        report.test.name(),
        report.setup.path,
        report
            .setup
            .mtu
            .map_or("as it is".into(), |mtu| mtu.to_string()),
        report.setup.reps,
        tcp(report),
        report.setup.security.name(),
    )
}

/// What TCP ran with, if it was run.
fn tcp(report: &Report) -> String {
    let mut sizes = report.sizes.iter();
    if !sizes.any(|size| size.sides.contains_key(&Side::Tcp)) {
        return String::new();
    }
    let Setup {
        initiator,
        responder,
        ..
    } = &report.setup;
    match (&*initiator.tcp_baseline, &*responder.tcp_baseline) {
        (both, other) if both == other => format!("TCP with {both}; "),
        (one, other) => format!("TCP with {one} here, {other} there; "),
    }
}
