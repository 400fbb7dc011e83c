//! Tests `zerolane explain` of `zerolane bench bulk`.

use super::*;

/// Kernel threads of other programs count as well, and what they do may have no rule.
#[test]
#[ignore = "depends on what else runs: .ci/run runs it alone"]
fn explain__bulk_has_a_cause_for_95_percent_of_its_samples() {
    for security in ["plain", "encrypted"] {
        let bulk = format!("{PROGRAM} bench bulk --security {security} --bytes 256MiB --reps 1");
        let output = output(&format!("explain --json --frequency 499 -- {bulk}"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        if report["sampling"].is_null() {
            println!("skipped: {}", report["missing"][0]);
            return;
        }
        let samples = report["sampling"]["samples"].as_u64().unwrap();
        assert!(samples > 200, "{samples}");
        let explained = report["explained_fraction"].as_f64().unwrap();
        assert!(explained >= 0.95, "{security}: {}", report["unexplained"]);
        println!("{security}: {explained} of {samples} samples");
    }
}
