//! Overheads taken away one after the other.

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
        "Overheads taken away one after the other",
        "P3: figure 1",
        &[
            "Each bar or line keeps what the one before it took away. GRO with checksum but without the second copy is beside the \
             ladder: it tells what the copy costs alone.",
            "The paper went from fragments in a small MTU to 926 Mb/s: a large MTU; no checksum, 44 % more; no copy; linear buffers, up \
             to 10 % more; a faster card. It found that checksum and copy together gain more than the sum of both, for whichever is left \
             touches the memory first.",
        ],
    );
    let Some(found) = results.for_section("ladder", &mut section) else {
        return section;
    };
    let mut chart = Chart::new(
        "ladder-goodput",
        "Goodput as overheads are taken away",
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
        "What leaving out checksum and copy brings, Gb/s; ratio: both together over the sum of each. The paper's is above 1",
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
    section
}
