//! Tests `zerolane bench latency`: one-way times and their parts.

use super::*;

fn report(words: &str) -> Value {
    let output = output(&format!("bench latency {words} --json"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/one_way.keys"));
    assert_eq!(
        (&report["test"], &report["verified"]),
        (&json!("latency"), &json!(true))
    );
    report
}

#[test]
fn latency__every_size_wait_and_contender_has_a_row() {
    let report = report("--size 1,64,64KiB --iters 20 --reps 2 --no-pareto");
    let sides = [
        ("udp", "message"),
        ("tcp", "message"),
        ("zerolane", "message"),
        ("zerolane", "put"),
        ("zerolane_plain", "message"),
        ("zerolane_plain", "put"),
    ];
    let mut rows = report["rows"].as_array().unwrap().iter();
    for size in [1, 64, 64 << 10] {
        for wait in ["poll", "event"] {
            for (contender, operation) in sides {
                let row = rows.next().unwrap();
                let is = ["size", "wait", "contender", "operation"].map(|key| row[key].clone());
                let be = [json!(size), json!(wait), json!(contender), json!(operation)];
                assert_eq!(is, be);
                assert_eq!((&row["iters"], &row["runs"]), (&json!(20), &json!(2)));
                let us = ["min", "median", "max"].map(|key| row["one_way_us"][key].as_f64());
                assert!(us[0] > Some(0.0) && us.is_sorted(), "{row}");
                assert!(row["p99_us"].as_f64() >= us[0], "{row}");
                let ratio = row["ratio_vs_udp"].as_f64();
                assert!(ratio > Some(0.0), "{row}");
                assert!(contender != "udp" || ratio == Some(1.0), "{row}");
            }
        }
    }
    assert_eq!(rows.next(), None);
    assert_eq!(report["pareto"], json!([]));
    let why = report["pareto_missing"].as_str().unwrap();
    assert!(why.contains("--no-pareto"), "{why}");
}

/// Where there is the right to sample, and a core for each end.
#[test]
fn latency__the_parts_of_a_time_are_all_of_it() {
    let report = report("--quick --only udp,zerolane --size 64");
    if let Some(why) = report["pareto_missing"].as_str() {
        let known = ["sample", "share a core"];
        assert!(known.iter().any(|it| why.contains(it)), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    let rows = report["rows"].as_array().unwrap();
    let pareto = report["pareto"].as_array().unwrap();
    let mut shown = 0;
    for row in rows {
        let is_of = |part: &&Value| {
            ["size", "contender", "operation", "wait"]
                .iter()
                .all(|key| part[key] == row[key])
        };
        let parts: Vec<_> = pareto.iter().filter(is_of).collect();
        let all = |key: &str| -> Vec<f64> {
            let values = parts.iter().map(|it| it[key].as_f64().unwrap());
            values.collect()
        };
        let Some(last) = parts.last() else { continue };
        shown += 1;
        let (us, median) = (
            all("us").iter().sum::<f64>(),
            row["one_way_us"]["median"].as_f64(),
        );
        assert!((us / median.unwrap() - 1.0).abs() < 1e-6, "{us} of {row}");
        assert!(
            (all("share").iter().sum::<f64>() - 1.0).abs() < 1e-6,
            "{row}"
        );
        assert!((last["cumulative"].as_f64().unwrap() - 1.0).abs() < 1e-6);
        assert!(all("us").is_sorted_by(|a, b| a >= b), "{parts:?}");
    }
    // Messages alone, of two contenders, waiting in two ways.
    assert_eq!((shown, rows.len()), (2 * 2, 3 * 2), "{report}");
}

#[test]
fn latency__says_in_a_table_what_is_left_out() {
    let output = output("bench latency --only udp,tcp --size 128KiB --iters 3 --reps 1");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("UDP at 131072 bytes left out: raw UDP has no flow control"),
        "{said}"
    );
    assert!(said.contains("among the sizes"), "{said}");
    assert!(said.contains("TCP"), "{said}");
}

#[test]
fn latency__bad_sizes_are_usage_errors_with_the_range() {
    for (words, says) in [
        ("--size 0", "at least 1 byte"),
        ("--size 1,65MiB", "1 to 67108864"),
        ("--iters 0", "--iters"),
        ("--quick --reps 3", "--reps"),
        ("--only quinn", "quinn"),
    ] {
        let output = output(&format!("bench latency {words}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
}
