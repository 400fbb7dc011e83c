//! Builds the section on goodput, latency and CPU time by message size; `bench curve --svg` draws its charts.

use serde_json::Value;

use crate::figure::{Axis, Chart, Kind, Section};
use crate::results::{Results, list, size, spread};

/// Contenders by their key in the JSON, in the order of the charts' keys.
const SIDES: [(&str, &str); 6] = [
    ("tcp", "TCP"),
    ("udp", "UDP"),
    ("messages", "messages"),
    ("puts", "puts"),
    ("ucx", "UCX"),
    ("libfabric", "libfabric"),
];

/// The charts of a report of `bench curve`. "messages" and "puts" are Zerolane's.
pub fn charts(report: &Value) -> Vec<Chart> {
    let figures = [
        ("gbps", "Goodput", "Gb/s"),
        ("one_way_us", "One-way latency", "us"),
        ("cpu_s_per_gb", "CPU time of both ends", "s/GB"),
    ];
    let charts = figures.map(|(figure, label, unit)| {
        let id = format!("curve-{}", figure.replace('_', "-"));
        let title = format!("{label} by size: Zerolane's messages and puts, and others");
        let axis = Axis::logarithmic(label, unit);
        let mut chart = Chart::new(&id, &title, Kind::Lines, "size of a message", axis);
        for row in list(report, "sizes") {
            let category = size(&row["size"]);
            chart.category(&category);
            for (key, name) in SIDES {
                if let Some(spread) = spread(&row["sides"][key][figure]) {
                    chart.put(name, &category, spread);
                }
            }
        }
        chart.sort(&SIDES.map(|it| it.1));
        chart
    });
    charts.into_iter().filter(|it| !it.is_empty()).collect()
}

pub(super) fn curve(results: &Results) -> Section {
    let mut section = Section::new(
        "curve",
        "Goodput, latency and CPU time by message size",
        "P0: figure 6",
        &[
            "Messages of every size, encrypted by Zerolane and plain otherwise, from and to memory that they share by \
             turns. Streams sleep while they wait; latencies are half of a round trip between polling ends.",
        ],
    );
    if let Some(found) = results.for_section("curve", &mut section) {
        charts(found).into_iter().for_each(|it| section.chart(it));
    }
    section
}
