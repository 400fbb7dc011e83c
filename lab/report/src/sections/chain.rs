//! Builds the section on a chain of nodes, from the output of `bench chain`.

use crate::figure::{Axis, Chart, Kind, Section, Spread, Table, digits};
use crate::results::{Results, list, spread, text};

fn name(way: &str) -> &str {
    match way {
        "tcp" => "TCP",
        "copies" => "Zerolane, two copies",
        "zero_copy" => "Zerolane, no copy",
        other => other,
    }
}

/// Table 4: network, modelled and measured, MB/s.
const TABLE_4: [(&str, f64, f64); 3] = [
    ("Fast Ethernet", 11.1, 8.8),
    ("Gigabit Ethernet", 11.1, 9.0),
    ("zero-copy Gigabit Ethernet", 14.7, 12.2),
];

pub(super) fn chain(results: &Results) -> Section {
    let mut section = Section::new(
        "chain",
        "Data along a chain of hosts",
        "P2: Table 4, figure 7 (Dolly)",
        &[
            "A source sends along a chain of nodes, each of which sends on what it receives. The paper's nodes had a CPU each, which \
             was the limit; these share the cores of one machine, so the rate of a node is that of one CPU: bytes over CPU time.",
            "The model is the paper's: a node's CPU does one thing after the other, so two copies less save the time of two copies. From \
             11.1 MB/s with copies, and 92 MB/s that a copy passes, follow 14.6 without (14.7 as far as 11.1 is rounded). Of 12.2 \
             measured the model was 20 % off; of 9.0 with copies 23 %.",
        ],
    );
    let mut rates = Chart::new(
        "chain-rate",
        "What the CPU of a node carries, over that with two copies",
        Kind::Bars,
        "what",
        Axis::linear("ratio of rates", "1"),
    );
    let mut cpu = Chart::new(
        "chain-cpu",
        "CPU time of a node",
        Kind::Bars,
        "way",
        Axis::linear("CPU time", "s/GB"),
    );
    if let Some(found) = results.for_section("chain", &mut section) {
        for row in list(found, "rows") {
            if let Some(value) = spread(&row["node_cpu_s_per_gb"]) {
                cpu.put("a node", name(text(row, "way")), value);
            }
        }
        let of = |key: &str| found["modelled"][key].as_f64();
        let all = of("with_copies_gb_per_s")
            .filter(|it| *it > 0.0)
            .zip(of("without_gb_per_s"))
            .zip(of("measured_gb_per_s"));
        if let Some(((with, modelled), measured)) = all {
            for (what, ours, theirs) in [
                ("modelled", modelled / with, 14.7 / 11.1),
                ("measured", measured / with, 12.2 / 9.0),
            ] {
                rates.put("here", what, Spread::single(ours));
                rates.put_of_paper("P2 (2001)", what, theirs);
            }
            section.shape(
                "A chain without copies is faster, by about what the model of two copies less says",
                Some((
                    measured > with && (modelled / measured - 1.0).abs() < 0.25,
                    format!(
                        "{} times, by the model {}; the paper's 1.36 and 1.32",
                        digits(measured / with),
                        digits(modelled / with)
                    ),
                )),
            );
        }
    }
    section.chart(rates);
    section.chart(cpu);
    let mut theirs = Table::new(
        "P2, Table 4: MB/s along a chain of hosts",
        &["network", "modelled", "measured"],
    );
    for (network, modelled, measured) in TABLE_4 {
        theirs.row([network.to_owned(), digits(modelled), digits(measured)]);
    }
    section.table(theirs);
    section
}
