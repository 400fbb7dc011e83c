//! Tests `zerolane cast plan`.
use std::process::{Command, Output};

use serde_json::Value;

fn plan(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zerolane"));
    command.args(["cast", "plan"]).args(arguments);
    command.output().expect("the command runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = plan(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn plan__a_chain_for_few_and_trees_for_many() {
    let few = json(&["--nodes", "8", "--size", "100GB"]);
    assert_eq!(few["chosen"], "chain");
    let seconds = |index: usize| {
        few["estimates"][index]["seconds"]
            .as_f64()
            .expect("a number")
    };
    assert!(
        (seconds(0) - 640.0).abs() < 1.0 && (seconds(1) - 80.0).abs() < 1.0,
        "{few}"
    );
    let many = json(&[
        "--nodes", "10000", "--size", "100GB", "--fail", "1%", "--slow", "5%",
    ]);
    assert!(
        many["chosen"]
            .as_str()
            .is_some_and(|it| it.starts_with("tree")),
        "{many}"
    );
    // Faults that a cast cannot know do not change its choice.
    let dying = json(&["--nodes", "100", "--size", "100GB", "--fail", "10%"]);
    assert_eq!(dying["chosen"], "chain");
    assert!(
        dying["faster"]
            .as_str()
            .is_some_and(|it| it.starts_with("tree")),
        "{dying}"
    );
    assert_eq!(few["faster"], Value::Null);
    // A chunk is a 1500th of the content: 40 chunks pass until the last of 41 nodes has one.
    let chunks = json(&["--nodes", "41", "--size", "1GB", "--link", "8gbit"]);
    let fill = chunks["estimates"][1]["fill_seconds"]
        .as_f64()
        .expect("a number");
    assert!((fill - 40.0 / 1500.0).abs() < 0.004, "{chunks}");
    let disk = json(&["--nodes", "8", "--size", "1GB", "--disk", "100MB/s"]);
    assert_eq!(disk["estimates"][1]["limited_by"], "disk");
}

#[test]
fn plan__simulates_with_the_seed_that_it_prints() {
    let few = [
        "--nodes",
        "4",
        "--size",
        "200MB",
        "--simulate",
        "--seed",
        "7",
    ];
    let output = plan(&few);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("simulated with seed 7: 0.") && text.contains("of the ideal"),
        "{text}"
    );
    assert_eq!(json(&few)["simulation"], json(&few)["simulation"]);
}

#[test]
fn plan__what_cannot_be_is_a_usage_error() {
    for wrong in [
        &["--nodes", "0", "--size", "1GB"][..],
        &["--nodes", "8", "--size", "0"],
        &["--nodes", "8", "--size", "1GB", "--racks", "0:1gbit"],
        &[
            "--nodes", "8", "--size", "1GB", "--fail", "60%", "--slow", "50%",
        ],
        &["--nodes", "20000", "--size", "1GB", "--simulate"],
    ] {
        assert_eq!(plan(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
