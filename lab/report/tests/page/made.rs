//! Tests a report that `zerolane report --quick` or `--least` made, in the directory that `ZEROLANE_REPORT` names. CI makes
//! one.
//!
//! `zerolane report --least --out DIR` as root, DIR absolute, then
//! `ZEROLANE_REPORT=DIR cargo test -p zerolane-report --test page -- --ignored made__`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zerolane_report::plan::{self, Extent};

use crate::fixture::CHARTS;

/// Where the report is.
pub(crate) fn directory() -> PathBuf {
    let directory = std::env::var_os("ZEROLANE_REPORT").expect("ZEROLANE_REPORT names a report");
    fs::canonicalize(directory).unwrap()
}

pub(crate) fn json() -> Value {
    let text = fs::read(directory().join("report.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The report has every run of the plan, by its command; each succeeded and has its charts.
#[test]
#[ignore = "needs a report: ZEROLANE_REPORT=DIR"]
fn made__is_of_the_whole_plan() {
    let made = json();
    let extent: Extent = serde_json::from_value(made["extent"].clone()).unwrap();
    assert_ne!(extent, Extent::Full);
    // Commands name captures relative to the report.
    let planned = plan::plan(extent, Path::new("captures"));
    let command = |words: &[String]| format!("zerolane {}", words.join(" "));
    let planned = planned
        .iter()
        .map(|it| (it.name.clone(), command(&it.words)));
    let planned: BTreeSet<_> = planned.collect();
    let runs = made["runs"].as_array().unwrap();
    let text = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    let done = runs
        .iter()
        .map(|it| (text(it, "name"), text(it, "command")));
    assert_eq!(done.collect::<BTreeSet<_>>(), planned);
    for run in runs {
        assert!(run["failed"].is_null(), "{run}");
    }
    for sentence in made["found"].as_array().unwrap() {
        let sentence = sentence.as_str().unwrap();
        assert!(!sentence.contains("was not measured"), "{sentence}");
    }
    let sections = made["sections"].as_array().unwrap().iter();
    let charts = sections.flat_map(|it| it["charts"].as_array().unwrap());
    let charts: BTreeSet<_> = charts.map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(charts, BTreeSet::from(CHARTS));
}
