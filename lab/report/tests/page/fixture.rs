//! Loads the stored output of commands from which tests build the page.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use zerolane_report::plan::{self, Extent};

use crate::{printed, report_of};

/// The keys that `bench` promises, by the beginnings of the runs' names.
const KEYS: [(&str, &str); 17] = [
    ("bulk-", include_str!("../../../bench/tests/json/bulk.keys")),
    (
        "curve",
        include_str!("../../../bench/tests/json/curve.keys"),
    ),
    (
        "offloads-",
        include_str!("../../../bench/tests/json/bulk.keys"),
    ),
    (
        "buffers-",
        include_str!("../../../bench/tests/json/bulk.keys"),
    ),
    (
        "stream-",
        include_str!("../../../bench/tests/json/source_sink.keys"),
    ),
    (
        "speculation",
        include_str!("../../../bench/tests/json/speculation.keys"),
    ),
    (
        "chain",
        include_str!("../../../bench/tests/json/chain.keys"),
    ),
    (
        "ladder",
        include_str!("../../../bench/tests/json/ladder.keys"),
    ),
    (
        "latency",
        include_str!("../../../bench/tests/json/one_way.keys"),
    ),
    (
        "put_",
        include_str!("../../../bench/tests/json/latency.keys"),
    ),
    (
        "get_",
        include_str!("../../../bench/tests/json/latency.keys"),
    ),
    (
        "send_",
        include_str!("../../../bench/tests/json/latency.keys"),
    ),
    (
        "model",
        include_str!("../../../bench/tests/json/model.keys"),
    ),
    ("fan", include_str!("../../../bench/tests/json/fan.keys")),
    ("loss", include_str!("../../../bench/tests/json/sweep.keys")),
    ("rtt", include_str!("../../../bench/tests/json/sweep.keys")),
    (
        "incast",
        include_str!("../../../bench/tests/json/incast.keys"),
    ),
];

/// The charts of a report of which no run failed.
pub(crate) const CHARTS: [&str; 51] = [
    "bulk-goodput",
    "bulk-cpu",
    "curve-gbps",
    "curve-one-way-us",
    "curve-cpu-s-per-gb",
    "mtu-goodput",
    "mtu-receiver",
    "mtu-sender",
    "mtu-copy-checksum",
    "receiver-causes",
    "receiver-ends",
    "latency-poll",
    "latency-event",
    "protocols-goodput",
    "protocols-receiver",
    "protocols-thesis",
    "transfer-size-shape",
    "transfer-size-goodput",
    "transfer-size-receiver",
    "transfer-size-sender",
    "stu-size-goodput",
    "stu-size-receiver",
    "stu-size-sender",
    "interrupts-per-mib",
    "interrupts-thesis",
    "rtt-shape",
    "rtt-goodput",
    "loss-shape",
    "loss-goodput",
    "forecast-goodput",
    "forecast-gains",
    "forecast-between",
    "offloads-goodput",
    "speculation-hits",
    "ladder-sizes",
    "ladder-goodput",
    "operations-latency",
    "operations-goodput",
    "modules-64",
    "modules-16KiB",
    "socket-buffers-goodput",
    "memory-bus",
    "memory-sizes",
    "memory-streams",
    "memory-copies",
    "fan-goodput",
    "fan-cpu",
    "incast-goodput",
    "chain-rate",
    "chain-cpu",
    "model-goodput",
];

/// Bandwidth has other keys than latency.
const STREAM_KEYS: &str = include_str!("../../../bench/tests/json/stream.keys");
/// What a contender cannot do.
const SKIPPED_KEYS: &str = include_str!("../../../bench/tests/json/skipped.keys");

fn promised(run: &str) -> &'static str {
    if run.ends_with("_bw") {
        return STREAM_KEYS;
    }
    let found = KEYS.iter().find(|it| run.starts_with(it.0));
    found.map_or("", |it| it.1)
}

/// The paths of all keys, entries of lists as `#`.
fn keys(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    let below: Vec<(&str, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, it)| (key.as_str(), it)).collect(),
        Value::Array(entries) => entries.iter().map(|it| ("#", it)).collect(),
        _ => return,
    };
    for (key, value) in below {
        let path = format!("{at}.{key}").trim_start_matches('.').to_owned();
        keys(value, &path, all);
        all.insert(path);
    }
}

#[test]
fn printed__is_of_the_whole_plan() {
    let planned = plan::plan(Extent::Quick, Path::new("captures"));
    let planned: BTreeSet<_> = planned.into_iter().map(|it| it.name).collect();
    let printed: BTreeSet<_> = printed().keys().cloned().collect();
    assert_eq!(printed, planned);
}

#[test]
fn printed__has_the_keys_that_commands_promise() {
    let mut checked = 0;
    for (run, value) in printed() {
        let promised: BTreeSet<_> = promised(&run).lines().collect();
        if promised.is_empty() {
            continue;
        }
        let mut found = BTreeSet::new();
        keys(&value, "", &mut found);
        let skipped =
            |key: &str| key.starts_with("skipped.") && SKIPPED_KEYS.lines().any(|it| it == key);
        let more = found
            .iter()
            .filter(|it| !promised.contains(it.as_str()) && !skipped(it));
        let more: Vec<_> = more.collect();
        assert!(more.is_empty(), "{run}: {more:?}");
        checked += 1;
    }
    assert!(checked > 25, "{checked}");
}

/// No chart that a report has is left out of the tests.
#[test]
fn printed__draws_every_chart() {
    let drawn = report_of(printed());
    let charts = drawn.sections.iter().flat_map(|it| &it.charts);
    let drawn: BTreeSet<_> = charts.map(|it| it.id.as_str()).collect();
    assert_eq!(drawn, BTreeSet::from(CHARTS));
}
