//! Builds the section on where the receiver's time goes, from the output of `explain`.

use serde_json::Value;

use super::latency::largest;
use crate::figure::{Axis, Chart, Kind, Section, Spread, Table, with_spread};
use crate::results::{Results, list, text};

/// Runs of `explain`, whose ends are pinned to CPUs of their own.
pub(super) const RUNS: [(&str, &str); 3] = [
    ("explain-tcp", "TCP"),
    ("explain-plain", "Zerolane, plain"),
    ("explain-encrypted", "Zerolane"),
];

/// What each end's CPU did, by the end's name: the sender is on the first, the receiver on the second. Nothing where both
/// are on one.
pub(super) fn ends(explained: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    let of = |cpu: u64| {
        let mut cpus = list(explained, "by_cpu").iter();
        cpus.find(|it| it["cpu"].as_u64() == Some(cpu))
    };
    let both = of(0).zip(of(1));
    let both = both.map(|(sender, receiver)| [("sender", sender), ("receiver", receiver)]);
    both.into_iter().flatten()
}

/// The words of the page for a cause of `explain`.
fn cause(key: &str) -> &str {
    match key {
        "payload_copy" => "payload copy",
        "memory" => "memory management",
        "protocol" => "UDP, TCP, IP",
        "socket" => "socket layer",
        "softirq" => "softirq, GRO",
        "driver" => "driver, veth",
        "system_call" => "system-call entry",
        "scheduling" => "scheduling, wake-ups",
        "program" => "the program",
        other => other,
    }
}

pub(super) fn receiver(results: &Results) -> Section {
    let mut section = Section::new(
        "receiver",
        "Where the time goes",
        "P0: figure 5. P4: figures 16 and 17",
        &[
            "CPU time of a whole transfer of 1 MiB pieces by cause, per KiB: both ends together, and each end apart by the samples of \
             its CPU. Softirqs of both ends run on the sender's CPU, which a veth hands its packets on.",
            "The paper split its receiver's time in five: moving data, interrupts, virtual memory, driver, protocol. With an MTU of \
             1500 bytes 55 % of the CPU went to packets, at 8 KB 24 %; without copies and checksums 57 KB needed 10 %.",
        ],
    );
    let mut chart = Chart::new(
        "receiver-causes",
        "CPU time by cause",
        Kind::Stack,
        "contender",
        Axis::linear("CPU time of both ends", "ns/KiB"),
    );
    let mut table = Table::new(
        "Other results from the samples",
        &[
            "contender",
            "explained",
            "copies per byte",
            "packets dropped",
        ],
    );
    let found: Vec<_> = RUNS
        .iter()
        .filter_map(|(run, name)| Some((*name, results.for_section(run, &mut section)?)))
        .collect();
    let causes = || found.iter().flat_map(|(_, it)| list(it, "causes"));
    let parts = largest(causes().map(|it| (text(it, "cause"), it["ns_per_kib"].as_f64())));
    let mut by_end = Chart::new(
        "receiver-ends",
        "CPU time by cause, each end apart",
        Kind::Stack,
        "contender and end",
        Axis::linear("CPU time", "ns/KiB"),
    );
    let add = |chart: &mut Chart, category: &str, causes: &[Value]| {
        for row in causes {
            let Some(ns) = row["ns_per_kib"].as_f64() else {
                continue;
            };
            let key = text(row, "cause");
            let part = if parts.contains(&key) {
                cause(key)
            } else {
                "other"
            };
            let before = chart.at(part, category).map_or(0.0, |it| it.median);
            chart.put(part, category, Spread::single(before + ns));
        }
    };
    for (name, explained) in &found {
        add(&mut chart, name, list(explained, "causes"));
        for (end, of_cpu) in ends(explained) {
            add(
                &mut by_end,
                &format!("{name}, {end}"),
                list(of_cpu, "causes"),
            );
        }
        let share = explained["explained_fraction"].as_f64();
        table.row([
            (*name).to_owned(),
            share.map_or_else(|| "–".into(), |it| format!("{:.1} %", it * 100.0)),
            copies(explained).map_or_else(|| "–".into(), with_spread),
            dropped(explained),
        ]);
        for missing in explained["missing"].as_array().into_iter().flatten() {
            let why = missing.as_str().unwrap_or_default();
            let why = why.split_once(": ").unwrap_or((why, ""));
            let gap = crate::figure::Gap {
                what: why.0.into(),
                why: why.1.into(),
            };
            if !section.gaps.contains(&gap) {
                section.gaps.push(gap);
            }
        }
    }
    let parts: Vec<_> = parts.iter().map(|it| cause(it)).collect();
    chart.sort(&parts);
    by_end.sort(&parts);
    section.chart(chart);
    section.chart(by_end);
    section.table(table);
    let mut theirs = Table::new(
        "P0, figure 5: the receiver's CPU on a DEC Miata",
        &["MTU", "rate", "what", "CPU"],
    );
    for row in [
        ["1500", "300 Mb/s", "all", "about 80 %"],
        ["1500", "300 Mb/s", "packets alone", "55 %"],
        ["8 KB", "360 Mb/s", "packets alone", "24 %"],
        ["57 KB", "390 Mb/s", "no copy, no checksum", "10 %"],
    ] {
        theirs.row(row);
    }
    section.table(theirs);
    section
}

/// Copies of each byte, with the range that the estimate has. A copy of another CPU's bytes is slower than from the
/// cache and faster than from memory. The estimate is the geometric mean of both.
pub(super) fn copies(explained: &Value) -> Option<Spread> {
    let single = explained["copies_per_byte"].as_f64()?;
    let range = &explained["copies_per_byte_range"];
    let (min, max) = (
        range[0].as_f64().unwrap_or(single),
        range[1].as_f64().unwrap_or(single),
    );
    let middle = (min * max).sqrt();
    let median = match middle.is_finite() && middle > 0.0 {
        true => middle,
        false => single,
    };
    Some(Spread { min, median, max })
}

fn dropped(explained: &Value) -> String {
    let drops = list(explained, "drops").iter();
    let count: u64 = drops
        .filter_map(|it| it["packets"].as_u64().or_else(|| it["count"].as_u64()))
        .sum();
    count.to_string()
}

/// Interrupts a second and MB/s of P1, Table 2: protocol, MTU, MB/s, interrupts of receiver and sender.
const TABLE_2: [(&str, f64, f64, f64); 6] = [
    ("STP, 9000", 98.0, 1609.0, 3154.0),
    ("TCP, 9000", 86.0, 2149.0, 2893.0),
    ("TCP, 9000, no coalescing", 68.0, 6014.0, 6236.0),
    ("STP, 1500", 52.0, 2700.0, 3088.0),
    ("TCP, 1500", 57.0, 2793.0, 3488.0),
    ("TCP, 1500, no coalescing", 49.0, 21611.0, 23605.0),
];

pub(super) fn interrupts(results: &Results) -> Section {
    let mut section = Section::new(
        "interrupts",
        "Interrupts, wake-ups and context switches",
        "P1: figure 20, Table 2",
        &[
            "The thesis counts interrupts. A veth has none, so these are softirqs: how often the kernel began to \
             receive packets. \
             Both are divided by the data, so that rates can be compared.",
        ],
    );
    let mut chart = Chart::new(
        "interrupts-per-mib",
        "Events per MiB, both ends",
        Kind::Bars,
        "contender",
        Axis::linear("events", "1/MiB"),
    );
    for (run, name) in RUNS {
        let Some(found) = results.for_section(run, &mut section) else {
            continue;
        };
        let per_mib = &found["per_mib"];
        for (key, event) in [
            ("softirq_net_rx", "network softirqs"),
            ("wake_ups", "wake-ups"),
            ("context_switches", "context switches"),
        ] {
            if let Some(value) = per_mib[key].as_f64() {
                chart.put(event, name, Spread::single(value));
            }
        }
    }
    section.chart(chart);
    let mut theirs = Chart::new(
        "interrupts-thesis",
        "The thesis's interrupts per MB",
        Kind::Bars,
        "protocol and MTU",
        Axis::linear("interrupts", "1/MB"),
    );
    for (name, mb, receiver, sender) in TABLE_2 {
        theirs.put_of_paper("receiver (2001)", name, receiver / mb);
        theirs.put_of_paper("sender (2001)", name, sender / mb);
    }
    section.chart(theirs);
    section
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use serde_json::json;

    use super::*;

    /// 0.21 s of kernel copies of 2.15 GB, from 11 to 57 GB/s: two copies, where the rate of the cache alone gives five.
    #[test]
    fn copies__are_in_the_middle_of_the_range() {
        let explained = json!({"copies_per_byte": 4.7, "copies_per_byte_range": [0.9, 6.8]});
        let found = copies(&explained).unwrap();
        assert_eq!((found.min, found.max), (0.9, 6.8));
        assert!((2.0..3.0).contains(&found.median), "{found:?}");
        let unknown = copies(&json!({"copies_per_byte": 1.0, "copies_per_byte_range": [-1, 2]}));
        assert_eq!(unknown.unwrap().median, 1.0);
        assert_eq!(copies(&json!({})), None);
    }
}
