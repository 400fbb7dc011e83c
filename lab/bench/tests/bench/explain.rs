//! Tests `zerolane explain` of `zerolane bench bulk`.

use super::*;

/// The kernel's threads work for other programs as well, and what they do may have no rule.
#[test]
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
        let seconds = |of: &str| report["cpu"][of].as_f64().unwrap();
        let unexplained = (1.0 - explained) * (seconds("program") + seconds("kernel"));
        assert!(
            unexplained <= 0.05 * seconds("program") + seconds("kernel"),
            "{security}: {unexplained} s, {}: {}",
            report["cpu"],
            report["unexplained"]
        );
        println!("{security}: {explained} of {samples} samples");
    }
}
