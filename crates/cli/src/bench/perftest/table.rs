//! A report for people: a line for each size and side, as perftest prints them.

use comfy_table::{CellAlignment, Table, presets};

use super::command::Side;
use super::job::Wait;
use super::report::{Figures, Report, SizeReport};
use super::test::Metric;
use crate::bench::report::Spread;

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
    let skipped = report.skipped.iter().map(|it| {
        let size = it
            .size
            .map_or(String::new(), |size| format!(" at {size} bytes"));
        format!("\n{}{size} left out: {}.", it.side.name(), it.why)
    });
    format!("{table}\n{}{}", facts(report), skipped.collect::<String>())
}

fn header(report: &Report) -> Vec<&'static str> {
    match report.test.metric() {
        Metric::Latency => vec!["bytes", "side", "min us", "median", "p99", "max", "mean"],
        Metric::Stream => vec![
            "bytes",
            "side",
            "Gb/s: median (min to max)",
            "million/s",
            "lost",
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
        "{}: {way}{wait}; {}, MTU {}, {} runs; payload verified.",
        report.test.name(),
        report.setup.path,
        report
            .setup
            .mtu
            .map_or("as it is".into(), |mtu| mtu.to_string()),
        report.setup.reps,
    )
}
