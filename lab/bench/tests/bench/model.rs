//! Tests `zerolane bench costs` and `zerolane bench model`.

use super::*;

fn report(words: &str, promised: &str) -> Value {
    let output = output(&format!("bench {words} --quick --json"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, promised);
    report
}

/// All costs are there, and each of them took time; but what is a difference of two, which may be hidden in their noise.
fn assert_costs(costs: &Value) {
    let sizes = |name: &str| costs[name].as_array().unwrap().len();
    let all = ["memory", "tcp", "trains"].map(sizes);
    assert_eq!(all, [5, 4, 5], "{costs}");
    let took = |cost: &Value| {
        cost["min"].as_f64() > Some(0.0) && cost["min"].as_f64() <= cost["median"].as_f64()
    };
    for name in ["digest", "seal", "open", "copy", "read_file", "write_file"] {
        for memory in costs["memory"].as_array().unwrap() {
            assert!(took(&memory[name]), "{name}: {memory}");
        }
    }
    for name in ["copied", "received", "given", "received_given"] {
        for train in costs["trains"].as_array().unwrap() {
            assert!(took(&train[name]), "{name}: {train}");
        }
    }
    for way in ["send", "splice", "sendfile"] {
        for tcp in costs["tcp"].as_array().unwrap() {
            for name in ["send", "receive", "queue", "receive_clocked"] {
                assert!(took(&tcp[way][name]), "{way}, {name}: {tcp}");
            }
        }
    }
    for name in ["latency", "waker", "woken"] {
        assert!(took(&costs["wake"][name]), "{costs}");
    }
    assert!(took(&costs["system_call"]), "{costs}");
    assert!(
        costs["contention"]["median"].as_f64() >= Some(1.0),
        "{costs}"
    );
}

#[test]
fn costs__gives_the_promised_json() {
    let report = report("costs", include_str!("../json/costs.keys"));
    assert_eq!(report["test"], "costs");
    assert_costs(&report["costs"]);
}

/// Whatever the figures are: each row has a prediction and a measurement, and the errors are those of the rows.
#[test]
fn model__every_row_is_predicted_and_measured() {
    let report = report(
        "model --bytes 1MiB --reps 2",
        include_str!("../json/model.keys"),
    );
    assert_eq!(report["test"], "model");
    assert_costs(&report["costs"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8 + 14, "{report}");
    let mut errors = Vec::new();
    for row in rows {
        let number = |at: &str| row.pointer(at).unwrap().as_f64().unwrap();
        let (predicted, measured) = (number("/predicted/gbps"), number("/measured/gbps/median"));
        assert!(predicted > 0.0 && measured > 0.0, "{row}");
        let error = predicted / measured - 1.0;
        assert!((number("/error") - error).abs() < 1e-9, "{row}");
        errors.push(error.abs());
        let command = row["command"].as_str().unwrap();
        assert!(command.starts_with("zerolane bench "), "{row}");
    }
    let worst = errors.iter().copied().fold(0.0, f64::max);
    // Divided again, it may differ in the last digit.
    let said = report["worst_error"].as_f64().unwrap();
    assert!((said - worst).abs() < 1e-9, "{report}");
    assert!(report["median_error"].as_f64() <= Some(said), "{report}");
    let drift = &report["drift"];
    let [median, most] = ["median", "worst"].map(|key| drift[key].as_f64().unwrap());
    assert!(0.0 < median && median <= most, "{drift}");
    assert!(!drift["worst_cost"].as_str().unwrap().is_empty(), "{drift}");
}

/// What the report names as the command of a row is one.
#[test]
fn model__commands_of_rows_are_understood() {
    for words in [
        "bench bulk --only zerolane_plain --buffer 1MiB --bytes 1MiB --reps 1",
        "bench stream --protocol extended --source read --sink file --size 1MiB --no-soak --bytes 1MiB --reps 3",
    ] {
        let output = output(words);
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    }
}
