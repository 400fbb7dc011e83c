//! Builds the section on speculation and the second copy, from the output of `bench speculation`.

use serde_json::Value;

use crate::figure::{Axis, Chart, Kind, Section, Spread, Table, digits, with_spread};
use crate::results::{Results, list, spread, text};

/// Ratios to 42 MB/s: figure 5 of the paper, and figure 6 for the last.
const GAINS: [(&str, &str, f64); 4] = [
    ("forecast_alone", "forecast alone", 45.0 / 42.0),
    ("no_second_copy_alone", "no second copy alone", 45.0 / 42.0),
    ("both", "both", 75.0 / 42.0),
    ("wrong", "wrong, with a second copy", 35.0 / 42.0),
];

/// Table 1: packets in between, MB/s.
const TABLE_1: [(u64, f64); 3] = [(0, 75.0), (100, 73.0), (10_000, 63.0)];

/// A setting in words; packets in between are a category of their own.
fn setting(row: &Value) -> (String, &'static str) {
    let copy = match row["second_copy"].as_bool() {
        Some(true) => "second copy",
        _ => "no second copy",
    };
    let name = match (text(row, "payload"), text(row, "forecast")) {
        ("tcp", _) => "TCP".into(),
        ("trains", forecast) => format!("trains, forecast {forecast}"),
        (_, forecast) => format!("forecast {forecast}"),
    };
    (name, copy)
}

fn gbps(row: &Value) -> Option<Spread> {
    spread(&row["figures"]["gbps"])
}

fn between(row: &Value) -> Option<u64> {
    row["between"]["per_100_000"].as_u64()
}

pub(super) fn forecast(results: &Results) -> Section {
    let mut section = Section::new(
        "forecast",
        "Speculation and the second copy, alone and together",
        "P2: figures 1, 5 and 6, Table 1",
        &[
            "The receiver predicts the place of each datagram, or nothing, or a neighbour's place, because the sender swaps neighbours. \
             Without a prediction the lane copies all payload into its place, as the paper's driver did to put fragments together. \
             The second copy, to other memory, is that from the system's buffer to the program's. Plain connections; each datagram \
             has a header, unless the name says trains. The kernel's own copy, in place of the paper's DMA, is in all of them.",
            "The paper had 42 MB/s with neither, 45 with each alone, 65 (page remapping) and 75 (fast buffers) with both, and 35 where \
             the prediction was always wrong. Of 100 000 pages 100 packets in between cost 2 MB/s of 75, and 10 000 cost 12. Here only \
             packets of the same connection can come in between: others go to other sockets.",
        ],
    );
    let mut goodput = Chart::new(
        "forecast-goodput",
        "Goodput by what is predicted, with and without a second copy",
        Kind::Bars,
        "prediction",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut gains = Chart::new(
        "forecast-gains",
        "Goodput over that with no forecast and a second copy",
        Kind::Bars,
        "what",
        Axis::linear("ratio of goodput", "1"),
    );
    let mut interference = Chart::new(
        "forecast-between",
        "Share of the goodput without packets in between",
        Kind::Bars,
        "packets in between of 100 000 pages",
        Axis::linear("share of goodput", "1"),
    );
    let mut table = Table::new(
        "Copies in user space, the second included; datagrams not in their place at once, of 100 000 pages of 4096 bytes",
        &[
            "setting",
            "goodput, Gb/s",
            "receiver, s/GB",
            "copies per byte",
            "failed",
        ],
    );
    if let Some(found) = results.for_section("speculation", &mut section) {
        let rows = list(found, "rows");
        let alone = rows.iter().find(|it| between(it) == Some(0));
        let alone = alone.and_then(gbps).filter(|it| it.median > 0.0);
        for row in rows {
            let (name, copy) = setting(row);
            let row_name = match between(row) {
                Some(count) => format!("{count} in between"),
                None => format!("{name}, {copy}"),
            };
            if let Some(value) = gbps(row) {
                match (between(row), alone) {
                    (Some(count), Some(alone)) => {
                        let share = value.times(1.0 / alone.median);
                        interference.put("forecast right", &count.to_string(), share);
                    }
                    (Some(_), None) => {}
                    (None, _) => goodput.put(copy, &name, value),
                }
            }
            let cell = |it: &Value| it.as_f64().map_or_else(|| "–".into(), digits);
            table.row([
                row_name,
                gbps(row).map_or_else(|| "–".into(), with_spread),
                cell(&row["figures"]["receiver"]["cpu_s_per_gb"]),
                cell(&row["copies_per_byte"]),
                cell(&row["failed_per_100_000"]),
            ]);
        }
        for (key, what, theirs) in GAINS {
            if let Some(ratio) = found["gains"][key].as_f64() {
                gains.put("here", what, Spread::single(ratio));
                gains.put_of_paper("P2 (2001)", what, theirs);
            }
        }
        let gain = |key: &str| found["gains"][key].as_f64();
        section.shape(
            "Both together bring more than the gains of each alone added up",
            gain("forecast_alone")
                .zip(gain("no_second_copy_alone"))
                .zip(gain("both"))
                .map(|((forecast, copy), both)| {
                    let figures = [forecast, copy, both].map(digits).join(", ");
                    let more = both - 1.0 > (forecast - 1.0).max(0.0) + (copy - 1.0).max(0.0);
                    (
                        more,
                        format!("{figures} times; the paper's 1.07, 1.07, 1.79"),
                    )
                }),
        );
        section.shape(
            "A prediction that is always wrong costs less than half of what none gives",
            gain("wrong").map(|it| (it > 0.5, format!("{} times; the paper's 0.83", digits(it)))),
        );
        if !interference.is_empty() {
            let share = |count: &str| interference.at("forecast right", count).map(|it| it.median);
            section.shape(
                "10 000 packets in between of 100 000 pages leave most of the goodput",
                share("10000")
                    .map(|it| (it > 0.5, format!("{} of it; the paper's 0.84", digits(it)))),
            );
            for (count, mb) in TABLE_1 {
                interference.put_of_paper("P2 (2001)", &count.to_string(), mb / 75.0);
            }
        }
    }
    section.chart(goodput);
    section.chart(gains);
    section.chart(interference);
    section.table(table);
    let mut theirs = Table::new(
        "P2, figures 5 and 6: MB/s over Gigabit Ethernet, 400 MHz Pentium II",
        &["what", "goodput"],
    );
    for row in [
        ["ordinary TCP", "42"],
        ["speculation alone", "45"],
        ["zero copy alone", "45"],
        ["both, page remapping", "65"],
        ["both, fast buffers", "75"],
        [
            "a sender that fragments, an unprepared receiver",
            "slightly above 42",
        ],
        ["an ordinary sender, a receiver that is always wrong", "35"],
    ] {
        theirs.row(row);
    }
    section.table(theirs);
    section
}
