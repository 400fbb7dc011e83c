//! Builds the section on emulated links: round trips, losses, incast.

use serde_json::Value;

use super::contender;
use crate::figure::{Axis, Chart, Kind, Section, Table, digits};
use crate::results::{Results, list, spread, text};

pub(super) fn round_trip(results: &Results) -> Section {
    let mut section = Section::new(
        "rtt",
        "Long round trips",
        "P1: figure 21, Table 4",
        &[
            "One flow for a fixed time over an emulated link of 1 Gb/s. Every line is a share of its own best, \
             because the thesis's network had less than half of that rate.",
            "The thesis's protocol waits a round trip for each Block of a Transfer, so it falls at once; TCP falls when its window is \
             less than the path holds. The extended profile grants ahead.",
            "The queue holds one bandwidth-delay product, and at least 16 packets. Without an added round trip that \
             is less than a Block, and the classic profile then loses nearly every Block.",
        ],
    );
    let (shape, absolute) = sweep(results, "rtt", &mut section, "round trip added");
    let at = |series| shape.at(series, "10 ms").map(|it| it.median);
    section.shape(
        "A grant for each Block makes Scheduled Transfer fall before TCP does, at 10 ms",
        at("Zerolane, classic profile")
            .zip(at("TCP, CUBIC"))
            .map(|(classic, tcp)| {
                let figures = [classic, tcp].map(digits).join(" and ");
                (
                    classic < tcp,
                    format!("{figures} of their best; the thesis's 0.42 and 0.73"),
                )
            }),
    );
    section.chart(shape);
    section.chart(absolute);
    section
}

pub(super) fn loss(results: &Results) -> Section {
    let mut section = Section::new(
        "loss",
        "Lost packets",
        "P1: figure 22, Table 5",
        &[
            "The same link with a round trip of 1 ms; packets are lost at random in the direction of the data. Every \
             line is a share of its \
             own best.",
            "In the thesis a lost STU discards its Block: 0.001 % halves the goodput, and 0.1 % ends it. The classic profile keeps that \
             rule; the extended one resends only lost data.",
        ],
    );
    let (shape, absolute) = sweep(results, "loss", &mut section, "packets lost");
    let at = |series| shape.at(series, "0.1 %").map(|it| it.median);
    section.shape(
        "A Block discarded for each lost STU all but stops Scheduled Transfer at 0.1 %, where one that resends keeps most",
        at("Zerolane, classic profile")
            .zip(at("Zerolane"))
            .map(|(classic, extended)| {
                let figures = [classic, extended].map(digits).join(" and ");
                let holds = classic < 0.1 && extended > 0.5;
                (holds, format!("{figures} of their best; the thesis's 0.018, and 0.88 of TCP"))
            }),
    );
    section.chart(shape);
    section.chart(absolute);
    section
}

/// Contenders that the machine of the report could not run.
fn left_out(found: &Value, section: &mut Section) {
    for it in list(found, "left_out") {
        section.gap(contender(text(it, "contender")), text(it, "why"));
    }
}

/// Shares of each contender's best goodput, with the thesis's own; and goodput as it was.
fn sweep(results: &Results, run: &str, section: &mut Section, over: &str) -> (Chart, Chart) {
    let mut shape = Chart::new(
        &format!("{run}-shape"),
        &format!("Goodput as a share of the line's own best, over {over}"),
        Kind::Lines,
        over,
        Axis::linear("share of its own best", "1"),
    );
    let mut absolute = Chart::new(
        &format!("{run}-goodput"),
        &format!("Goodput over {over}"),
        Kind::Lines,
        over,
        Axis::linear("goodput", "Mb/s"),
    );
    let Some(found) = results.for_section(run, section) else {
        return (shape, absolute);
    };
    left_out(found, section);
    for cell in list(found, "cells") {
        let link = category(text(cell, "link"));
        for result in list(cell, "results") {
            let name = contender(text(result, "contender"));
            // Where it gave up nothing came, and is drawn so; what failed otherwise is no point.
            for why in list(result, "failures").iter().filter_map(Value::as_str) {
                section.gap(format!("a run of {name} at {link}"), why);
            }
            let Some(mbps) = spread(&result["mbps"]) else {
                continue;
            };
            absolute.put(name, &link, mbps);
        }
    }
    for series in &absolute.series {
        let points = || absolute.categories.iter().zip(&series.points);
        let best = points().filter_map(|it| Some((*it.1)?.median));
        let best = best.fold(0.0, f64::max);
        for (link, point) in points() {
            if let Some(point) = point
                && best > 0.0
            {
                shape.put(&series.name, link, point.times(1.0 / best));
            }
        }
    }
    add_short(results, run, section, (&mut shape, &mut absolute));
    let theirs = list(&found["thesis"], "rows");
    for (key, name) in [
        ("stp", "STP (2001)"),
        ("tcp", "TCP (2001)"),
        ("stp_128k", "STP, 128 KiB (2001)"),
        ("tcp_128k", "TCP, 128 KiB (2001)"),
    ] {
        let best = theirs.iter().filter_map(|it| it[key].as_f64());
        let best = best.fold(0.0, f64::max);
        for row in theirs {
            let link = category(text(row, "link"));
            if let Some(mb) = row[key].as_f64()
                && best > 0.0
                && shape.categories.contains(&link)
            {
                shape.put_of_paper(name, &link, mb / best);
            }
        }
    }
    let mut table = Table::new(
        "The thesis's own figures, MB/s (of 2^20 bytes), with Transfers and windows of 512 and of 128 KiB",
        &[over, "STP, 512", "TCP, 512", "STP, 128", "TCP, 128"],
    );
    for row in theirs {
        let cell = |key: &str| row[key].as_f64().map_or_else(|| "–".into(), digits);
        let cells = ["stp", "tcp", "stp_128k", "tcp_128k"].map(cell);
        table.row([category(text(row, "link"))].into_iter().chain(cells));
    }
    section.table(table);
    (shape, absolute)
}

/// The link of a cell without the words before its figure.
fn category(link: &str) -> String {
    let words = link.trim_start_matches("loss ").trim_start_matches("RTT ");
    words.to_owned()
}

/// The same run with Transfers of 128 KiB, as shares of the best of each line, and as they were.
fn add_short(
    results: &Results,
    run: &str,
    section: &mut Section,
    (shape, absolute): (&mut Chart, &mut Chart),
) {
    let Some(found) = results.for_section(&format!("{run}-128KiB"), section) else {
        return;
    };
    let goodput = |result: &Value| spread(&result["mbps"]);
    let cells = || list(found, "cells").iter();
    let results = cells().flat_map(|cell| {
        let link = category(text(cell, "link"));
        let results = list(cell, "results").iter();
        results.map(move |it| (link.clone(), text(it, "contender"), it))
    });
    for (link, key, result) in results.collect::<Vec<_>>() {
        let name = format!("{}, 128 KiB", contender(key));
        for why in list(result, "failures").iter().filter_map(Value::as_str) {
            section.gap(format!("a run of {name} at {link}"), why);
        }
        let of_all = cells().flat_map(|cell| list(cell, "results"));
        let best = of_all
            .filter(|it| text(it, "contender") == key)
            .filter_map(|it| Some(goodput(it)?.median));
        let best = best.fold(0.0, f64::max);
        let Some(mbps) = goodput(result) else {
            continue;
        };
        absolute.put(&name, &link, mbps);
        if best > 0.0 {
            shape.put(&name, &link, mbps.times(1.0 / best));
        }
    }
}

pub(super) fn incast(results: &Results) -> Section {
    let mut section = Section::new(
        "incast",
        "Many senders behind a shallow queue",
        "P2: section 4 (the network control architecture). P4: figure 19a",
        &[
            "Several senders to one receiver over an emulated switch with a queue of 64 packets. The paper proposes \
             to admit one stream and to throttle the others; Zerolane's receiver shares its grants among all.",
        ],
    );
    let mut chart = Chart::new(
        "incast-goodput",
        "Share of the link, all senders together",
        Kind::Bars,
        "contender",
        Axis::linear("goodput over the link's rate", "1"),
    );
    let mut table = Table::new(
        "Fairness: lowest and highest goodput of a sender, relative to an equal share",
        &["contender", "least", "most", "lost in the queue"],
    );
    if let Some(found) = results.for_section("incast", &mut section) {
        left_out(found, &mut section);
        for result in list(found, "results") {
            let name = contender(text(result, "contender"));
            if let Some(why) = result["failure"].as_str() {
                section.gap(format!("a run of {name}"), why);
            }
            if let Some(value) = spread(&result["link_fraction"]) {
                chart.put("all senders", name, value);
            }
            let cell = |key: &str| result[key].as_f64().map_or_else(|| "–".into(), digits);
            table.row([
                name.to_owned(),
                cell("least_of_share"),
                cell("most_of_share"),
                cell("queue_loss_fraction"),
            ]);
        }
    }
    section.chart(chart);
    section.table(table);
    section
}
