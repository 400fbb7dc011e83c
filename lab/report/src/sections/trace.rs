//! Builds the section on how often speculation would have hit.

use serde_json::Value;

use crate::captures;
use crate::figure::{Axis, Chart, Kind, Section, Spread, Table};
use crate::results::Results;

const RULES: [(&str, &str); 4] = [
    ("pages", "pages, one list (the paper)"),
    ("pages_per_stream", "pages, per stream"),
    ("pairs", "pairs (Zerolane)"),
    ("trains", "trains (Zerolane)"),
];

pub(super) fn interference(results: &Results) -> Section {
    let mut section = Section::new(
        "speculation",
        "How often speculation hits",
        "P2: Tables 1 and 2",
        &[
            "Captures made for this: 10 000 pages of 4096 bytes, each in three fragments, alone, with small packets of another host in \
             between, and from two hosts at once and in turn. Rules: the paper's, in one list of descriptors for the host; the same in a \
             list for each stream; Zerolane's.",
            "The paper's receiver lost 2, 15 and 28 packets of 100 000 to 0, 100 and 10 000 packets in between; it does not \
             say where in a page they fell. Here they are spread evenly over all fragments. Of the traces of applications the paper has 48 % where \
             two hosts send at once, and 99 to 100 % otherwise.",
        ],
    );
    let mut chart = Chart::new(
        "speculation-hits",
        "Pages and packets received where predicted",
        Kind::Bars,
        "capture",
        Axis::linear("share of hits", "%"),
    );
    let mut table = Table::new(
        "Misses, of all that could have hit, by rule",
        &["capture", "one list", "per stream", "pairs", "trains"],
    );
    for capture in captures::ALL {
        let run = format!("trace-{}", capture.name);
        let Some(found) = results.for_section(&run, &mut section) else {
            continue;
        };
        let sum = &found["sum"];
        for (key, name) in RULES {
            if let Some(rate) = sum[key]["rate"].as_f64() {
                chart.put(name, capture.what, Spread::single(rate * 100.0));
            }
        }
        let cells = RULES.map(|(key, _)| missed(&sum[key]));
        table.row([capture.what.to_owned()].into_iter().chain(cells));
    }
    section.chart(chart);
    section.table(table);
    let mut theirs = Table::new(
        "P2, Table 1: 100 000 packets of 4096 bytes",
        &["packets in between", "failed", "MB/s"],
    );
    theirs.row(["0", "2", "75"]);
    theirs.row(["100", "15", "73"]);
    theirs.row(["10 000", "28", "63"]);
    section.table(theirs);
    let mut traces = Table::new(
        "P2, Table 2: zero-copy packets of two applications",
        &["trace", "potential", "successful", "rate"],
    );
    for row in [
        ["Oracle, TPC-D: master", "26 505", "12 745", "48 %"],
        ["Oracle, TPC-D: host 1", "12 611", "12 611", "100 %"],
        ["Oracle, TPC-D: host 2", "13 894", "13 894", "100 %"],
        ["TreadMarks, SOR: master", "14 670", "14 458", "99 %"],
        ["TreadMarks, SOR: host 1", "10 231", "10 225", "> 99 %"],
        ["TreadMarks, SOR: host 2", "10 135", "10 133", "> 99 %"],
    ] {
        traces.row(row);
    }
    section.table(traces);
    section
}

fn missed(tally: &Value) -> String {
    match (tally["potential"].as_u64(), tally["hits"].as_u64()) {
        (Some(potential), Some(hits)) => {
            format!("{} of {potential}", potential.saturating_sub(hits))
        }
        _ => "–".into(),
    }
}
