//! Tests that the chart in the README, `docs/measurements/loss.svg`, is the table of results drawn by the report's own code.
//!
//! `ZEROLANE_DRAW=1 cargo test -p zerolane-report --test page loss__` draws it anew.

use std::fs;

use zerolane_report::chart;
use zerolane_report::figure::{Axis, Chart, Kind, Spread};

const SVG: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/measurements/loss.svg"
);

/// The rows of the table whose first cell is a share of lost packets alone.
fn chart() -> Chart {
    let results = include_str!("../../../../docs/measurements/results.md");
    let mut chart = Chart::new(
        "loss",
        "Goodput over lost packets, 1 Gb/s, round trip 1 ms",
        Kind::Lines,
        "packets lost",
        Axis::linear("goodput", "Mb/s"),
    );
    let (_, table) = results.split_once("| packets lost |").unwrap();
    let mut lines = table.lines();
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim);
    let names: Vec<_> = cells(lines.next().unwrap()).collect();
    for row in lines.skip(1).take_while(|it| it.starts_with('|')) {
        let mut cells = cells(row);
        let lost = cells.next().unwrap();
        if !lost.ends_with(" %") {
            continue;
        }
        for (name, cell) in names.iter().zip(cells) {
            chart.put(name, lost, Spread::single(cell.parse().unwrap()));
        }
    }
    chart
}

#[test]
fn loss__chart_is_that_of_the_table_of_results() {
    let chart = chart();
    assert_eq!(chart.series.len(), 3);
    assert_eq!(chart.categories.len(), 6);
    let drawn = chart::file(&[chart]).unwrap();
    if std::env::var_os("ZEROLANE_DRAW").is_some() {
        fs::write(SVG, &drawn).unwrap();
    }
    assert!(
        fs::read_to_string(SVG).unwrap() == drawn,
        "docs/measurements/loss.svg is out of date: ZEROLANE_DRAW=1 draws it anew"
    );
}
