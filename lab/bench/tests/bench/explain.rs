//! Tests `zerolane explain` of `zerolane bench bulk`.

use super::*;

/// Runs of which one must be explained: in the others the kernel's threads may have worked for other programs, and what
/// they do then may have no rule.
const RUNS: usize = 3;

#[test]
fn explain__bulk_has_a_cause_for_95_percent_of_its_samples() {
    for security in ["plain", "encrypted"] {
        let mut unexplained = vec![];
        let explained = (0..RUNS).any(|_| {
            let bulk =
                format!("{PROGRAM} bench bulk --security {security} --bytes 256MiB --reps 1");
            let output = output(&format!("explain --json --frequency 499 -- {bulk}"));
            assert!(output.status.success(), "{}", text(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            if report["sampling"].is_null() {
                println!("skipped: {}", report["missing"][0]);
                return true;
            }
            let samples = report["sampling"]["samples"].as_u64().unwrap();
            assert!(samples > 200, "{samples}");
            let explained = report["explained_fraction"].as_f64().unwrap();
            println!("{security}: {explained} of {samples} samples");
            unexplained.push(report["unexplained"].clone());
            explained >= 0.95
        });
        assert!(explained, "{security}: {unexplained:?}");
    }
}
