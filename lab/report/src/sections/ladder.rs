//! Builds the section on overheads removed one after the other.

use serde_json::Value;

use crate::figure::{Axis, Chart, Kind, Section, Table, digits};
use crate::results::{Results, list, size, spread, text};

fn rung(key: &str) -> &str {
    match key {
        "bottom" => "MTU 1500, no offload",
        "large_mtu" => "MTU 9000",
        "gso" => "and GSO",
        "gro" => "and GRO",
        "no_checksum" => "and no checksum",
        "no_copy" => "and no second copy",
        "trains" => "and trains",
        "small_mtu_again" => "MTU 1500 again",
        "encrypted" => "and encrypted",
        "no_copy_with_checksum" => "GRO, no second copy",
        other => other,
    }
}

pub(super) fn ladder(results: &Results) -> Section {
    let mut section = Section::new(
        "ladder",
        "Overheads removed one by one",
        "P3: figure 1",
        &[
            "Each step keeps the removals of the earlier ones. GRO with checksum but without the second copy stands \
             beside the ladder: it shows the cost of the copy alone.",
            "The paper's ladder is the table below. It found that leaving out the copy after the checksum gains more \
             than the checksum did, because whichever of the two remains touches the memory first.",
        ],
    );
    if let Some(found) = results.for_section("ladder", &mut section) {
        add_steps(found, &mut section);
    }
    let mut theirs = Table::new(
        "P3, figure 1: UDP/IP over Myrinet, Pentium III of 450 MHz",
        &["step", "throughput"],
    );
    for row in [
        ["fragments", "rises up to messages of 4 KB"],
        ["MTU of 32 KB", "rises on"],
        ["and no checksum", "44 % more"],
        ["and no copy", "much more"],
        ["and linear buffers", "up to 10 % more"],
        ["and a faster card", "926 Mb/s"],
    ] {
        theirs.row(row);
    }
    section.table(theirs);
    section
}

fn add_steps(found: &Value, section: &mut Section) {
    let mut chart = Chart::new(
        "ladder-goodput",
        "Goodput as overheads are removed",
        Kind::Bars,
        "step",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut lines = Chart::new(
        "ladder-sizes",
        "Goodput by size of the message, as the paper draws it",
        Kind::Lines,
        "size",
        Axis::linear("goodput", "Gb/s"),
    );
    for point in list(found, "points") {
        let (name, bytes) = (rung(text(point, "rung")), size(&point["size"]));
        if let Some(gbps) = spread(&point["figures"]["gbps"]) {
            chart.put(&bytes, name, gbps);
            lines.put(name, &bytes, gbps);
        }
    }
    section.chart(lines);
    section.chart(chart);
    let mut table = Table::new(
        "Gain without checksum and copy, Gb/s; ratio: both together over the sum of each. The paper's is above 1",
        &["size", "checksum", "copy", "both", "ratio"],
    );
    for row in list(found, "interactions") {
        let cell = |key: &str| row[key].as_f64().map_or_else(|| "–".into(), digits);
        table.row([
            size(&row["size"]),
            cell("checksum_gbps"),
            cell("copy_gbps"),
            cell("both_gbps"),
            cell("ratio"),
        ]);
    }
    section.table(table);
}
