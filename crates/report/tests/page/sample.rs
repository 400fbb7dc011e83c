//! The report that is committed as a sample.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use zerolane_report::plan;

/// Where it is.
pub(crate) const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sample-report");

pub(crate) fn sample() -> Value {
    let text = fs::read(Path::new(SAMPLE).join("report.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// What it names is what the plan of today runs, in the same words.
#[test]
fn sample__is_of_the_whole_plan() {
    let sample = sample();
    assert_eq!(sample["quick"], true);
    let planned = plan::plan(true, Path::new("captures"));
    let command = |words: &[String]| format!("zerolane {}", words.join(" "));
    let planned = planned
        .iter()
        .map(|it| (it.name.clone(), command(&it.words)));
    let planned: BTreeSet<_> = planned.collect();
    let runs = sample["runs"].as_array().unwrap();
    let text = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    let done = runs
        .iter()
        .map(|it| (text(it, "name"), text(it, "command")));
    assert_eq!(done.collect::<BTreeSet<_>>(), planned);
    for run in runs {
        assert!(run["failed"].is_null(), "{run}");
    }
    for sentence in sample["found"].as_array().unwrap() {
        let sentence = sentence.as_str().unwrap();
        assert!(!sentence.contains("was not measured"), "{sentence}");
    }
}
