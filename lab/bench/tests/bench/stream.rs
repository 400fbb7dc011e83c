//! Tests `zerolane bench stream`: sources, sinks, sizes and MTUs.

use super::*;

fn report(words: &str) -> Value {
    let output = output(&format!("bench stream {words} --json"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/source_sink.keys"));
    report
}

#[test]
fn stream__every_combination_has_a_row_or_a_reason() {
    let report = report(
        "--protocol tcp,udp,extended --source buffer,sendfile --sink none,file --size 16KiB,64KiB \
         --bytes 4MiB --reps 3",
    );
    let rows = report["rows"].as_array().unwrap();
    let left_out = report["left_out"].as_array().unwrap();
    // Of each size: TCP all four, UDP and Zerolane not from sendfile, UDP not to a file.
    assert_eq!((rows.len(), left_out.len()), (2 * 7, 2 * 5), "{report}");
    for row in rows {
        let figures = &row["figures"];
        assert_eq!(figures["runs"], json!(3), "{row}");
        assert!(figures["mean_gbps"].as_f64() > Some(0.0), "{row}");
        assert!(
            figures["sender"]["cpu_s_per_gb"].as_f64() > Some(0.0),
            "{row}"
        );
        assert!(
            figures["receiver"]["unsoaked_s_per_gb"].is_number(),
            "{row}"
        );
    }
}

/// As many runs as it takes, and no more.
#[test]
fn stream__repeats_until_the_mean_is_known() {
    let runs = |words: &str| {
        let words = format!("--protocol tcp --sink none --bytes 4MiB {words}");
        let report = report(&words);
        report["rows"][0]["figures"]["runs"].as_u64().unwrap()
    };
    assert_eq!(runs("--within 100000 --reps 9"), 3);
    assert_eq!(runs("--within 0.0001 --reps 5"), 5);
    assert_eq!(runs("--within 5 --reps 1 --no-soak"), 1);
}

#[test]
fn stream__each_mtu_has_a_link_of_its_own() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let report = report("--sink checksum --mtu 1500,9000 --bytes 4MiB --reps 1");
    let rows = report["rows"].as_array().unwrap();
    let mtus: Vec<_> = rows.iter().map(|row| row["mtu"].as_u64()).collect();
    assert_eq!(mtus, [1500, 1500, 9000, 9000].map(Some));
    assert_eq!(report["offloads"], "on");
}

/// Down to the smallest of the thesis, in both profiles.
#[test]
fn stream__of_each_size_of_an_stu() {
    let report =
        report("--protocol classic,extended --sink none --stu 512,4096 --bytes 4MiB --reps 1");
    let rows = report["rows"].as_array().unwrap();
    let stus: Vec<_> = rows.iter().map(|row| row["stu"].as_u64()).collect();
    assert_eq!(stus, [512, 512, 4096, 4096].map(Some));
    for row in rows {
        assert!(
            row["figures"]["gbps"]["median"].as_f64() > Some(0.0),
            "{row}"
        );
    }
    let refused = output("bench stream --stu 500");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("a power of two"));
}

/// Both ends compute their checksums, and nothing is wrong or lost by that.
#[test]
fn stream__without_any_offload() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let report = report("--sink copy --offloads none --bytes 4MiB --reps 1");
    assert_eq!(report["offloads"], "none");
    for row in report["rows"].as_array().unwrap() {
        assert!(
            row["figures"]["gbps"]["median"].as_f64() > Some(0.0),
            "{row}"
        );
        assert_eq!(row["figures"]["lost_fraction"], json!(0.0), "{row}");
    }
}

/// Each rung at each size, and what two of them bring together.
#[test]
fn ladder__every_rung_at_every_size() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let output = output("bench ladder --size 4KiB,64KiB --bytes 2MiB --reps 1 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/ladder.keys"));
    let points = report["points"].as_array().unwrap();
    assert_eq!(points.len(), 2 * 10);
    for point in points {
        assert!(
            point["figures"]["gbps"]["median"].as_f64() > Some(0.0),
            "{point}"
        );
    }
    assert_eq!(report["interactions"].as_array().unwrap().len(), 2);
}

/// Each prediction with and without a second copy, and each count of packets in between; what is copied is what the setting
/// says.
#[test]
fn speculation__every_setting_has_a_row() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let output = output("bench speculation --bytes 8MiB --between 0,10000 --reps 1 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/speculation.keys"));
    let rows = report["rows"].as_array().unwrap();
    // TCP, three forecasts of headers, two of trains, with and without the copy; two counts.
    assert_eq!(rows.len(), 2 * (1 + 3 + 2) + 2, "{report}");
    for row in rows {
        assert!(
            row["figures"]["gbps"]["median"].as_f64() > Some(0.0),
            "{row}"
        );
        let copies = row["copies_per_byte"].as_f64().unwrap();
        let second = f64::from(u8::from(row["second_copy"] == true));
        match (&row["forecast"], &row["payload"]) {
            (forecast, payload) if forecast == "none" && payload != "tcp" => {
                assert_eq!(copies, 1.0 + second, "{row}");
            }
            (forecast, _) if forecast == "wrong" => assert!(copies > 0.5 + second, "{row}"),
            _ => assert!(copies < 0.5 + second, "{row}"),
        }
    }
    for gain in ["forecast_alone", "no_second_copy_alone", "both", "wrong"] {
        assert!(
            report["gains"][gain].as_f64() > Some(0.0),
            "{gain}: {report}"
        );
    }
    // A part of the settings has no gains to compare.
    let output = self::output(
        "bench speculation --forecast right --second-copy without --between 100 --bytes 4MiB --reps 1 --json",
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 4, "{report}");
    assert_eq!(report["gains"], Value::Null);
}

#[test]
fn chain__every_way_has_a_row_and_the_model_an_error() {
    let output = output("bench chain --nodes 2 --size 256KiB --bytes 16MiB --reps 1 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/chain.keys"));
    let rows = report["rows"].as_array().unwrap();
    let ways: Vec<_> = rows.iter().map(|it| it["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["tcp", "copies", "zero_copy"]);
    for (words, said) in [
        ("--size 100", "multiple of 8"),
        ("--nodes 17", "17"),
        ("--bytes 0", "--bytes"),
    ] {
        let output = self::output(&format!("bench chain {words}"));
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(text(&output.stderr).contains(said), "{words}");
    }
}

#[test]
fn fan__every_pattern_by_every_contender() {
    let output = output("bench fan -n 3 --time 0.3 --buffer 1MiB --reps 2 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_keys(&report, include_str!("../json/fan.keys"));
    let rows = report["rows"].as_array().unwrap();
    let of = |row: &Value| [row["pattern"].clone(), row["contender"].clone()];
    let all = ["in", "out", "dual"]
        .into_iter()
        .flat_map(|pattern| ["zerolane", "tcp"].map(|it| [json!(pattern), json!(it)]));
    assert!(rows.iter().map(of).eq(all), "{report}");
    for row in rows {
        // On a busy machine nothing may come in a short time, but for a pattern's other direction: there is none.
        let nothing = |way: &str| {
            row[way]
                .as_array()
                .unwrap()
                .iter()
                .all(|it| *it == json!(0.0))
        };
        assert_eq!(row["gbps"].as_array().unwrap().len(), 2, "{row}");
        assert!(row["pattern"] != "in" || nothing("from_gbps"), "{row}");
        assert!(row["pattern"] != "out" || nothing("to_gbps"), "{row}");
        for side in ["many_cpu_s_per_gb", "one_cpu_s_per_gb"] {
            let cpu = row[side].as_array().unwrap();
            assert!(cpu.len() == 2 && !nothing(side), "{side}: {row}");
        }
    }
}

#[test]
fn stream__what_cannot_be_is_told_before_anything_is_measured() {
    for (words, said) in [
        ("--size 1000", "multiples of 64"),
        ("--size 2GiB", "must be"),
        ("--within 0", "above 0"),
        ("--to 127.0.0.1:1 --mtu 1500,9000", "one --mtu"),
    ] {
        let output = output(&format!("bench stream {words}"));
        assert_eq!(output.status.code(), Some(2), "{words}");
        let told = text(&output.stderr);
        assert!(told.contains(said), "{words}: {told}");
    }
}
