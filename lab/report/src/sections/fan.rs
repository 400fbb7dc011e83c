//! Builds the section on several streams at once.

use super::contender;
use crate::figure::{Axis, Chart, Kind, Section, Table};
use crate::results::{Results, list, spread, text};

pub(super) fn streams(results: &Results) -> Section {
    let mut section = Section::new(
        "fan",
        "Many to one, one to many, both at once",
        "P4: figures 19 and 20",
        &[
            "One side has several processes with one stream each, the other one process with one thread per stream. \
             Each side has one core.",
            "The paper had 3.5 Gb/s at 120 % of two CPUs into one host, 4.5 at 100 % out of it, and 4.2 at 140 % both ways: the receiver \
             was the bottleneck.",
        ],
    );
    let mut goodput = Chart::new(
        "fan-goodput",
        "Goodput of all streams together",
        Kind::Bars,
        "pattern",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut cpu = Chart::new(
        "fan-cpu",
        "CPU time of the single end",
        Kind::Bars,
        "pattern",
        Axis::linear("CPU time", "s/GB"),
    );
    if let Some(found) = results.for_section("fan", &mut section) {
        for row in list(found, "rows") {
            let pattern = match text(row, "pattern") {
                "in" => "many to one",
                "out" => "one to many",
                "dual" => "both at once",
                other => other,
            };
            let name = contender(text(row, "contender"));
            if let Some(gbps) = spread(&row["gbps"]) {
                goodput.put(name, pattern, gbps);
            }
            if let Some(seconds) = spread(&row["one_cpu_s_per_gb"]) {
                cpu.put(name, pattern, seconds);
            }
        }
        for (pattern, gbps) in [
            ("many to one", 3.5),
            ("one to many", 4.5),
            ("both at once", 4.2),
        ] {
            goodput.put_of_paper("TCP (2004)", pattern, gbps);
        }
    }
    section.chart(goodput);
    section.chart(cpu);
    let mut theirs = Table::new("P4, figure 19", &["pattern", "Gb/s", "CPU of two"]);
    theirs.row(["fan-in", "3.5", "120 %"]);
    theirs.row(["fan-out", "4.5", "100 %"]);
    theirs.row(["dual", "4.2", "140 %"]);
    section.table(theirs);
    section
}
