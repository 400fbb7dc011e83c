//! Builds the section on predictions from unit costs, and on memory traffic.

use serde_json::Value;

use super::time::copies;
use crate::figure::{Axis, Chart, Kind, Section, Spread, Table, digits, with_spread};
use crate::results::{Results, list, size, spread, text};

fn percent(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(|| "–".into(), |it| format!("{:+.1} %", it * 100.0))
}

pub(super) fn prediction(results: &Results) -> Section {
    let mut section = Section::new(
        "model",
        "Predicted and measured",
        "P2: Table 4 (the model of Dolly). P4: section 3",
        &[
            "The model predicts goodput from unit costs on this machine (a copy, a system call, sealing, a datagram, \
             a train). The paper's model of a chain of hosts predicted 14.7 MB/s where 12.2 were measured: an error \
             of 20 %.",
        ],
    );
    let Some(found) = results.for_section("model", &mut section) else {
        return section;
    };
    let mut chart = Chart::new(
        "model-goodput",
        "Goodput, predicted and measured",
        Kind::Bars,
        "what",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut table = Table::new(
        "Each row with its error, and the bottleneck according to the model",
        &[
            "row",
            "predicted, Gb/s",
            "measured, Gb/s",
            "error",
            "bottleneck",
        ],
    );
    for row in list(found, "rows") {
        let name = text(row, "row");
        let predicted = spread(&row["predicted"]["gbps"]);
        let measured = spread(&row["measured"]["gbps"]);
        if let Some(value) = measured {
            chart.put("measured", name, value);
        }
        if let Some(value) = predicted {
            chart.put("predicted", name, value);
        }
        table.row([
            name.to_owned(),
            predicted.map_or_else(|| "–".into(), |it| digits(it.median)),
            measured.map_or_else(|| "–".into(), |it| digits(it.median)),
            percent(&row["error"]),
            text(&row["predicted"], "bottleneck").to_owned(),
        ]);
    }
    section.chart(chart);
    section.table(table);
    let mut errors = Table::new("Errors of goodput", &["", "error"]);
    errors.row(["median".to_owned(), percent(&found["median_error"])]);
    errors.row(["worst".to_owned(), percent(&found["worst_error"])]);
    let drift = &found["drift"];
    if drift.is_object() {
        errors.row([
            "costs measured again: median".to_owned(),
            percent(&drift["median"]),
        ]);
        errors.row([
            format!("most: {}", text(drift, "worst_cost")),
            percent(&drift["worst"]),
        ]);
    }
    section.table(errors);
    let mut theirs = Table::new(
        "P2, Table 4: MB/s along a chain of hosts",
        &["network", "predicted", "measured"],
    );
    theirs.row(["Fast Ethernet", "11.1", "8.8"]);
    theirs.row(["Gigabit Ethernet", "11.1", "9.0"]);
    theirs.row(["with zero copy", "14.7", "12.2"]);
    section.table(theirs);
    let mut costs = Table::new(
        "Unit costs in the model: ns, or ns/KiB; median (min to max)",
        &["what", "cost"],
    );
    add_costs("", &found["costs"], &mut costs);
    section.table(costs);
    section
}

/// A row for each figure, named by the keys on the way to it; entries of a list by the size that they are of.
fn add_costs(name: &str, value: &Value, table: &mut Table) {
    if !value.is_array()
        && let Some(cost) = spread(value)
    {
        table.row([name.replace('_', " "), with_spread(cost)]);
        return;
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        add_costs(format!("{name} {key}").trim_start(), value, table);
    }
    for entry in value.as_array().into_iter().flatten() {
        let Some(fields) = entry.as_object() else {
            continue;
        };
        let bytes = fields.values().find(|it| it.is_u64());
        let of = bytes.map_or_else(String::new, |it| format!(", {}", size(it)));
        for (key, value) in fields.iter().filter(|it| !it.1.is_u64()) {
            add_costs(&format!("{name} {key}{of}"), value, table);
        }
    }
}

/// What the paper expects, by what is done: a range of bytes on the bus for each byte on the network.
const TABLE_1: [(&str, &str, &str); 3] = [
    ("TCP, transmit", "1", "2 to 4"),
    ("TCP, receive", "2", "4"),
    ("RDMA, either", "1", "1"),
];

pub(super) fn memory_traffic(results: &Results) -> Section {
    let mut section = Section::new(
        "memory",
        "Memory traffic",
        "P4: Table 1, figures 18, 20 and 26b",
        &[
            "Bytes on the memory bus per byte of payload, both ends together, according to the model: a virtual \
             machine cannot observe its bus. Copies per byte come from the samples of explain and the measured copy \
             rate.",
            "The paper: data that fit the cache cost 1 byte at the transmitter and 2 at the receiver, larger data 2 \
             to 4 and 4; RDMA 1.",
        ],
    );
    if let Some(found) = results.for_section("model", &mut section) {
        let mut chart = Chart::new(
            "memory-bus",
            "Bytes on the memory bus for each byte of payload, by the model",
            Kind::Bars,
            "what",
            Axis::linear("bytes on the bus", "1/B"),
        );
        for row in list(found, "rows") {
            if let Some(value) = row["predicted"]["bus_bytes_per_byte"].as_f64() {
                chart.put("model", text(row, "row"), Spread::single(value));
            }
        }
        if chart.is_empty() {
            section.gap("bytes on the memory bus", "the model predicts none");
        }
        section.chart(chart);
    }
    let mut copied = Chart::new(
        "memory-copies",
        "Copies of each byte of payload, both ends, estimated",
        Kind::Bars,
        "contender",
        Axis::linear("copies", "1/B"),
    );
    for (run, name) in [
        ("explain-tcp", "TCP"),
        ("explain-plain", "Zerolane, plain"),
        ("explain-encrypted", "Zerolane"),
    ] {
        if let Some(found) = results.for_section(run, &mut section)
            && let Some(value) = copies(found)
        {
            copied.put("both ends", name, value);
        }
    }
    section.chart(copied);
    let mut theirs = Table::new(
        "P4, Table 1: bytes on the memory bus for each byte on the network",
        &["what", "fits the cache", "does not"],
    );
    for (what, fits, not) in TABLE_1 {
        theirs.row([what, fits, not]);
    }
    section.table(theirs);
    section
}
