//! Tests `zerolane bench curve`.

use serde_json::{Value, json};

use super::{assert_keys, output, text};

#[test]
fn curve__gives_the_promised_json_and_draws_it() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("curve.svg");
    let words = format!(
        "bench curve --quick --size 8,16KiB,128KiB --only tcp,udp,messages,puts --svg {} --json",
        svg.display()
    );
    let output = output(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/curve.keys"));
    assert_eq!(report["verified"], json!(true));
    assert_eq!(report["security"], json!("encrypted"));
    let sizes = report["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 3);
    for size in sizes {
        for side in ["tcp", "messages", "puts"] {
            for figure in ["gbps", "one_way_us", "cpu_s_per_gb"] {
                let median = &size["sides"][side][figure]["median"];
                assert!(median.as_f64().unwrap() > 0.0, "{side} {figure}: {size}");
            }
        }
        let ratio = &size["ratio_vs_tcp"]["puts"]["goodput"];
        assert!(ratio.as_f64().unwrap() > 0.0, "{size}");
    }
    let skipped = &report["skipped"][0];
    assert_eq!(
        (&skipped["side"], &skipped["size"]),
        (&json!("udp"), &json!(128 << 10))
    );
    let why = skipped["why"].as_str().unwrap();
    assert!(
        why.starts_with("latency: raw UDP has no flow control"),
        "{why}"
    );
    let drawn = std::fs::read_to_string(svg).unwrap();
    for words in ["Goodput", "One-way latency", "CPU time", "16 KiB", "puts"] {
        assert!(drawn.contains(words), "{words}");
    }
}

#[test]
fn curve__bad_arguments_are_told_before_anything_runs() {
    for (words, says, code) in [
        ("bench curve --size 65MiB", "1 to 67108864", 2),
        ("bench curve --size 0", "1 to 67108864", 2),
        ("bench curve --only quinn", "quinn", 2),
        ("bench curve --svg /nowhere/curve.svg", "cannot write", 1),
    ] {
        let output = output(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
}
