//! Builds the section on memory traffic: bytes on the bus by the model, and copies by the samples of `explain`.

use serde_json::Value;
use zerolane_model::{Adapter, Bytes, Movement, Sizes, Traffic};

use super::time::{RUNS, copies, ends};
use crate::figure::{Axis, Chart, Kind, Section, Spread, Table, digits};
use crate::results::{Results, list, size, text};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Sizes of the paper's machines: a cache of 512 KiB, socket buffers of 64 KiB.
fn papers(message: usize) -> Sizes {
    Sizes {
        message,
        socket: 64 * KIB,
        cache: 512 * KIB,
    }
}

/// A message that fits the paper's cache, and one that does not, bytes: those of its figures 17 and 20.
const FITS: usize = 16 * KIB;
const DOES_NOT: usize = 10 * MIB;

/// Messages of the chart, bytes.
const MESSAGES: [usize; 9] = [
    KIB,
    4 * KIB,
    FITS,
    64 * KIB,
    256 * KIB,
    448 * KIB,
    512 * KIB,
    MIB,
    DOES_NOT,
];

const WAYS: [(&str, Movement); 4] = [
    ("TCP", Movement::Tcp),
    ("Zerolane, plain", Movement::Plain),
    ("Zerolane", Movement::Encrypted),
    ("RDMA", Movement::Rdma),
];

/// Gb/s on the paper's network into a host, and out of it: figure 19.
const STREAMS: [(&str, f64, f64); 3] = [
    ("many to one", 3.5, 0.0),
    ("one to many", 0.0, 4.5),
    ("both at once", 2.1, 2.1),
];

/// Gb/s that the paper's bus of 400 MHz and 64 bits sustains: 65 % of its peak.
const SUSTAINED_GBPS: f64 = 0.65 * 400e6 * 64.0 / 1e9;

fn of(bytes: Bytes) -> Spread {
    Spread {
        min: bytes.least,
        median: bytes.likely,
        max: bytes.most,
    }
}

fn range(bytes: Bytes) -> String {
    match bytes.least == bytes.most {
        true => digits(bytes.least),
        false => format!("{} to {}", digits(bytes.least), digits(bytes.most)),
    }
}

/// The model's own figures, as a command printed them.
fn printed(value: &Value) -> Option<Spread> {
    Some(Spread {
        min: value["least"].as_f64()?,
        median: value["likely"].as_f64()?,
        max: value["most"].as_f64()?,
    })
}

pub(super) fn memory_traffic(results: &Results) -> Section {
    let mut section = Section::new(
        "memory",
        "Memory traffic",
        "P4: Table 1, figures 18, 20 and 26b",
        &[
            "Bytes on the memory bus per byte of payload, at each end, by the model: a virtual machine cannot observe its bus. Marks \
             reach from a cache that keeps the socket buffer to one that keeps nothing of it. Between two namespaces there is no \
             adapter, so the first chart has this machine as it is, and as it would be with an adapter at each end.",
            "The second and third chart are of the paper's machines. It measured the CPU's part and estimated the adapter's: 1 byte at \
             the transmitter and 2 at the receiver for data that fit the cache, 2 to 4 and 4 for larger data, and for RDMA those of the \
             network alone.",
            "Copies come from the samples of each end's CPU and the rate at which this machine copies memory; the marks reach from its \
             slowest to its fastest rate, and the estimate is their middle by ratio.",
        ],
    );
    add_rows(results, &mut section);
    add_sizes(&mut section);
    add_streams(&mut section);
    add_copies(results, &mut section);
    add_table(&mut section);
    section
}

fn add_rows(results: &Results, section: &mut Section) {
    let Some(found) = results.for_section("model", section) else {
        return;
    };
    let mut chart = Chart::new(
        "memory-bus",
        "Bytes on the memory bus for each byte of payload, by the model",
        Kind::Bars,
        "what",
        Axis::linear("bytes on the bus", "1/B"),
    );
    for row in list(found, "rows") {
        let traffic = &row["predicted"]["traffic"];
        for (series, key, end) in [
            ("sender, here", "here", "sender"),
            ("receiver, here", "here", "receiver"),
            ("sender, with an adapter", "with_adapters", "sender"),
            ("receiver, with an adapter", "with_adapters", "receiver"),
        ] {
            if let Some(value) = printed(&traffic[key][end]) {
                chart.put(series, text(row, "row"), value);
            }
        }
    }
    if chart.is_empty() {
        section.gap("bytes on the memory bus", "the model predicts none");
    }
    section.chart(chart);
}

fn add_sizes(section: &mut Section) {
    let mut chart = Chart::new(
        "memory-sizes",
        "Bytes on the bus by size of the message, by the model, with the paper's cache",
        Kind::Lines,
        "message",
        Axis::linear("bytes on the bus", "1/B"),
    );
    for message in MESSAGES {
        let category = size(&Value::from(message));
        for (name, way) in WAYS {
            let it = Traffic::of(way, &papers(message), Adapter::Own);
            chart.put(&format!("{name}, sender"), &category, of(it.sender));
            chart.put(&format!("{name}, receiver"), &category, of(it.receiver));
        }
    }
    let [small, large, rdma] = [
        (Movement::Tcp, FITS),
        (Movement::Tcp, DOES_NOT),
        (Movement::Rdma, DOES_NOT),
    ]
    .map(|(way, message)| Traffic::of(way, &papers(message), Adapter::Own));
    let cliff =
        large.receiver.likely > small.receiver.likely && large.sender.likely > small.sender.likely;
    let times = large.receiver.likely / rdma.receiver.likely;
    section.shape(
        "TCP's traffic rises where data leave the cache, to four times that of RDMA",
        Some((
            cliff && times >= 4.0,
            format!(
                "sender {} to {}, receiver {} to {}, RDMA {}, by the model",
                digits(small.sender.likely),
                digits(large.sender.likely),
                digits(small.receiver.likely),
                digits(large.receiver.likely),
                digits(rdma.receiver.likely)
            ),
        )),
    );
    section.chart(chart);
}

fn add_streams(section: &mut Section) {
    let mut chart = Chart::new(
        "memory-streams",
        "The paper's streams of 10 MiB: on the network, and on the bus by the model",
        Kind::Bars,
        "pattern",
        Axis::linear("rate", "Gb/s"),
    );
    let it = Traffic::of(Movement::Tcp, &papers(DOES_NOT), Adapter::Own);
    let mut dual = 0.0;
    for (pattern, into, out) in STREAMS {
        let bus = |of: fn(Bytes) -> f64| into * of(it.receiver) + out * of(it.sender);
        let spread = Spread {
            min: bus(|it| it.least),
            median: bus(|it| it.likely),
            max: bus(|it| it.most),
        };
        chart.put("bus, by the model", pattern, spread);
        chart.put_of_paper("network (2004)", pattern, into + out);
        chart.put_of_paper("65 % of the bus (2004)", pattern, SUSTAINED_GBPS);
        dual = spread.median;
    }
    section.shape(
        "Both ways at once come within 5 % of what the paper's bus sustains",
        Some((
            (dual / SUSTAINED_GBPS - 1.0).abs() < 0.05,
            format!(
                "{} of {} Gb/s, by the model",
                digits(dual),
                digits(SUSTAINED_GBPS)
            ),
        )),
    );
    section.chart(chart);
}

fn add_copies(results: &Results, section: &mut Section) {
    let mut copied = Chart::new(
        "memory-copies",
        "Copies of each byte of payload by end, from samples",
        Kind::Bars,
        "contender",
        Axis::linear("copies", "1/B"),
    );
    for (run, name) in RUNS {
        let Some(found) = results.for_section(run, section) else {
            continue;
        };
        for (end, of_cpu) in ends(found) {
            if let Some(value) = copies(of_cpu) {
                copied.put(end, name, value);
            }
        }
    }
    section.chart(copied);
}

/// A row of the paper's table: practical or theoretical.
type Model = fn(Movement, &Sizes, Adapter) -> Traffic;

fn add_table(section: &mut Section) {
    let mut table = Table::new(
        "Bytes on the memory bus for each byte on the network: P4, Table 1, and the model with the paper's sizes",
        &[
            "what",
            "fits: paper",
            "fits: model",
            "does not: paper",
            "does not: model",
        ],
    );
    let (kept, theory): (Model, Model) = (Traffic::of, Traffic::in_theory);
    let sender: fn(Traffic) -> Bytes = |it| it.sender;
    let receiver: fn(Traffic) -> Bytes = |it| it.receiver;
    for (what, way, traffic, end, fits, not) in [
        (
            "transmit, in theory",
            Movement::Tcp,
            theory,
            sender,
            "1 to 4",
            "2 to 4",
        ),
        (
            "transmit, in practice",
            Movement::Tcp,
            kept,
            sender,
            "1",
            "2 to 4",
        ),
        (
            "receive, in theory",
            Movement::Tcp,
            theory,
            receiver,
            "2 to 4",
            "4",
        ),
        (
            "receive, in practice",
            Movement::Tcp,
            kept,
            receiver,
            "2",
            "4",
        ),
        ("RDMA, either end", Movement::Rdma, kept, receiver, "1", "1"),
    ] {
        let ours = |message| range(end(traffic(way, &papers(message), Adapter::Own)));
        table.row([
            what.to_owned(),
            fits.to_owned(),
            ours(FITS),
            not.to_owned(),
            ours(DOES_NOT),
        ]);
    }
    section.table(table);
}
