//! Tests the page without a measurement: from stored output of the commands, and from output that they never print.

#![allow(non_snake_case)]

mod browser;
mod fixture;
mod garbled;
mod loss;
mod made;
mod page;

use serde_json::{Map, Value};
use zerolane_report::machine::Machine;
use zerolane_report::plan::Extent;
use zerolane_report::results::{Outcome, Results, Run};
use zerolane_report::runner::store::Stamp;
use zerolane_report::{Report, page as pages};

/// What the runs of a quick report printed, shortened: numbers to four digits, long lists to their first entries, parts
/// of a time below 0.2 us left out.
fn printed() -> Map<String, Value> {
    serde_json::from_str(include_str!("results.json")).unwrap()
}

fn stamp() -> Stamp {
    Stamp {
        machine: Machine::here(),
        version: "0.0.0".into(),
        program: "a build".into(),
        extent: Extent::Quick,
    }
}

fn run(name: &str, outcome: Outcome) -> Run {
    Run {
        name: name.into(),
        command: format!("zerolane {name} --json"),
        seconds: 1.5,
        outcome,
    }
}

fn report_of(printed: Map<String, Value>) -> Report {
    let runs = printed
        .into_iter()
        .map(|(name, value)| run(&name, Outcome::Result(value)));
    report(runs.collect())
}

fn report(runs: Vec<Run>) -> Report {
    let results = Results::new(runs);
    Report::new(&stamp(), "2026-01-01 00:00 UTC".into(), &results)
}

fn html(report: &Report) -> String {
    pages::render(report).unwrap()
}
