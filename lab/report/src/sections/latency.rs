//! Builds the section on the latency of messages.

use serde_json::Value;

use super::contender;
use crate::figure::{Axis, Chart, Kind, Section, Spread, Table};
use crate::results::{Results, list, size, spread, text};

/// Contender and operation, if there is more than one of it.
fn name(row: &Value) -> String {
    let contender = contender(text(row, "contender"));
    match text(row, "operation") {
        "message" | "" => contender.to_owned(),
        operation => format!("{contender}, {operation}"),
    }
}

pub(super) fn one_way(results: &Results) -> Section {
    let mut section = Section::new(
        "latency",
        "One-way latency by size",
        "P0: figure 6. P4: figures 7a, 8a and 25a",
        &[
            "Half of a round trip of two messages between two processes, one core each, polling or asleep in the \
             kernel.",
            "The papers' TCP took 20.5 us on Linux (P4), their RDMA write 5.5 us by polling. A sleeping receiver \
             mostly spends its time on waking up here: the host wakes a virtual machine's processors.",
        ],
    );
    let found = results.for_section("latency", &mut section);
    let rows = found.map_or(&[][..], |it| list(it, "rows"));
    for (wait, id, title) in [
        ("poll", "latency-poll", "One-way latency, both ends polling"),
        (
            "event",
            "latency-event",
            "One-way latency, both ends asleep",
        ),
    ] {
        let axis = Axis::logarithmic("one-way latency", "us");
        let mut chart = Chart::new(id, title, Kind::Lines, "size", axis);
        for row in rows.iter().filter(|it| text(it, "wait") == wait) {
            if let Some(us) = spread(&row["one_way_us"]) {
                chart.put(&name(row), &size(&row["size"]), us);
            }
        }
        section.chart(chart);
    }
    let mut theirs = Table::new(
        "P4: one-way latency of TCP at 10 Gb/s, MTU 1500",
        &["figure", "what", "latency", "CPU of each end"],
    );
    for row in [
        ["7a", "256 B, Windows", "about 37 us", "about 50 %"],
        ["8a", "the same on Linux", "about 20.5 us", "about 45 %"],
        ["25a", "InfiniBand, polling", "a third of TCP's", "–"],
    ] {
        theirs.row(row);
    }
    section.table(theirs);
    section
}

/// What a paper measured of the same operation, us. A sleeping receiver of a put is told by its immediate.
const THEIRS: [(&str, &str, f64); 6] = [
    ("put", "polling", 5.5),
    ("send", "polling", 7.5),
    ("get", "polling", 12.5),
    ("put", "asleep", 20.5),
    ("send", "asleep", 20.5),
    ("get", "asleep", 24.5),
];

pub(super) fn operations(results: &Results) -> Section {
    let mut section = Section::new(
        "operations",
        "Send, write and read",
        "P4: figures 21 to 24 and 25",
        &[
            "The smallest message of each operation. A put and a send are timed one way, a get there and back. Marks reach from the \
             fastest single operation to the 99th percentile.",
            "The immediate of a put wakes its sleeping receiver, so the paper's write with immediate stands beside \
             it. A plain write did not notify the receiver, which always had to poll.",
        ],
    );
    let mut chart = Chart::new(
        "operations-latency",
        "Latency of the smallest message",
        Kind::Bars,
        "operation",
        Axis::linear("latency", "us"),
    );
    for (wait, suffix) in [("polling", ""), ("asleep", "-event")] {
        for operation in ["put", "send", "get"] {
            let run = format!("{operation}_lat{suffix}");
            let category = format!("{operation}, {wait}");
            let theirs = THEIRS.iter().find(|it| (it.0, it.1) == (operation, wait));
            let Some(found) = results.for_section(&run, &mut section) else {
                continue;
            };
            let Some(row) = list(found, "sizes").first() else {
                continue;
            };
            for side in ["zerolane", "tcp", "udp"] {
                let us = &row["sides"][side]["us"];
                let figures = ["min", "median", "p99"].map(|it| us[it].as_f64());
                if let [Some(min), Some(median), Some(max)] = figures {
                    let spread = Spread { min, median, max };
                    chart.put(contender(side), &category, spread);
                }
            }
            if let Some(theirs) = theirs {
                chart.put_of_paper("InfiniBand (2004)", &category, theirs.2);
            }
        }
    }
    section.chart(chart);
    let mut goodput = Chart::new(
        "operations-goodput",
        "Goodput of a stream of operations",
        Kind::Bars,
        "operation and size",
        Axis::linear("goodput", "Gb/s"),
    );
    for operation in ["put", "send", "get"] {
        let run = format!("{operation}_bw");
        let Some(found) = results.for_section(&run, &mut section) else {
            continue;
        };
        for row in list(found, "sizes") {
            let category = format!("{operation}, {}", size(&row["size"]));
            for side in ["zerolane", "tcp", "udp"] {
                if let Some(gbps) = spread(&row["sides"][side]["gbps"]) {
                    goodput.put(contender(side), &category, gbps);
                }
            }
            goodput.put_of_paper("InfiniBand (2004)", &category, 6.6);
        }
    }
    section.chart(goodput);
    let mut theirs = Table::new(
        "P4, figures 21 to 24: InfiniBand, one-way latency of small messages, us; goodput of large ones",
        &["figure", "operation", "polling", "asleep", "goodput"],
    );
    for row in [
        ["21", "send and receive", "7.5", "20.5", "about 6.6 Gb/s"],
        ["22", "write", "5.5", "5.5", "about 6.6 Gb/s"],
        [
            "23",
            "write with immediate",
            "7.5",
            "20.5",
            "about 6.6 Gb/s",
        ],
        ["24", "read", "12.5", "24.5", "about 6.6 Gb/s"],
    ] {
        theirs.row(row);
    }
    section.table(theirs);
    section
}

pub(super) fn modules(results: &Results) -> Section {
    let mut section = Section::new(
        "modules",
        "Time by module, small and large messages",
        "P4: figures 16 and 17",
        &[
            "One-way time of a message, in parts: both ends are sampled during a ping-pong, without the time spent \
             waiting.",
            "In the paper kernel and protocol stack were about 80 % of TCP's CPU time at either size: for 64 bytes the interrupts \
             of each message, for 16 KB copy and checksum.",
        ],
    );
    if let Some(found) = results.for_section("latency", &mut section) {
        add_parts(found, &mut section);
    }
    let mut table = Table::new(
        "P4, figures 16 and 17",
        &["TCP, size", "share of kernel and stack"],
    );
    table.row(["64 B", "about 80 %"]);
    table.row(["16 KB", "about 80 %"]);
    section.table(table);
    section
}

/// A chart for each size, by module.
fn add_parts(found: &Value, section: &mut Section) {
    let rows = list(found, "pareto");
    if rows.is_empty() {
        let why = found["pareto_missing"].as_str().unwrap_or("not sampled");
        section.gap("the parts of the latency", why);
        return;
    }
    let parts = largest(
        rows.iter()
            .map(|it| (text(it, "module"), it["us"].as_f64())),
    );
    for (bytes, id) in [(64, "modules-64"), (16384, "modules-16KiB")] {
        let shown = size(&bytes.into());
        let mut chart = Chart::new(
            id,
            &format!("One-way time of {shown} by module"),
            Kind::Stack,
            "contender",
            Axis::linear("time", "us"),
        );
        let of_size = || rows.iter().filter(|it| it["size"].as_u64() == Some(bytes));
        for row in of_size() {
            let wait = text(row, "wait");
            let category = format!("{}, {wait}", name(row));
            let Some(us) = row["us"].as_f64() else {
                continue;
            };
            let part = text(row, "module");
            let part = if parts.contains(&part) { part } else { "other" };
            let before = chart.at(part, &category).map_or(0.0, |it| it.median);
            chart.put(part, &category, Spread::single(before + us));
        }
        chart.sort(&parts);
        section.chart(chart);
    }
}

/// The names with the largest sums: a stack has no more colours than can be told apart.
pub(super) fn largest<'a>(parts: impl Iterator<Item = (&'a str, Option<f64>)>) -> Vec<&'a str> {
    const MOST: usize = 9;
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for (name, value) in parts {
        let value = value.unwrap_or_default();
        match sums.iter_mut().find(|it| it.0 == name) {
            Some(sum) => sum.1 += value,
            None => sums.push((name, value)),
        }
    }
    sums.sort_by(|one, other| other.1.total_cmp(&one.1));
    sums.truncate(MOST);
    sums.into_iter().map(|it| it.0).collect()
}
