//! Builds the section on predictions from unit costs.

use serde_json::Value;

use crate::figure::{Axis, Chart, Kind, Section, Table, digits, with_spread};
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
        "P2: Table 4 (a model beside measurements). P4: section 3",
        &[
            "The model predicts goodput from unit costs on this machine (a copy, a system call, sealing, a datagram, \
             a train). The paper's model of a chain of hosts is in the section on that.",
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
