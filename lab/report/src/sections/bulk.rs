//! Builds the section on transfers from memory to memory.

use super::contender;
use crate::figure::{Axis, Chart, Kind, Section, Table, digits};
use crate::results::{Results, spread, text};

/// Contenders of `bench bulk`, in the order of the charts.
const SIDES: [&str; 6] = [
    "zerolane",
    "zerolane_plain",
    "tcp",
    "tcp_splice",
    "tls",
    "quinn",
];

const SIZES: [(&str, &str); 3] = [
    ("bulk-64KiB", "64 KiB"),
    ("bulk-1MiB", "1 MiB"),
    ("bulk-64MiB", "64 MiB"),
];

pub(super) fn memory_to_memory(results: &Results) -> Section {
    let mut section = Section::new(
        "bulk",
        "Memory to memory",
        "P2: figure 1. P4: figures 25b and 26a. P1: chapter 6",
        &[
            "Each contender in turn sends one buffer repeatedly. Zerolane is encrypted, as by default; \
             Zerolane plain \
             and TCP are not; TLS and QUIC are. CPU time is that of both ends, per GB.",
            "The paper on speculative defragmentation had 42 MB/s with the ordinary stack, and 75 with speculation and zero copy. \
             The paper on RDMA had 2.5 Gb/s with TCP and 6.6 with RDMA, at nearly no CPU time of the receiver.",
        ],
    );
    let mut goodput = Chart::new(
        "bulk-goodput",
        "Goodput from memory to memory",
        Kind::Bars,
        "buffer",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut cpu = Chart::new(
        "bulk-cpu",
        "CPU time of both ends",
        Kind::Bars,
        "buffer",
        Axis::linear("CPU time", "s/GB"),
    );
    let mut ratios = Table::new(
        "Ratio to TCP by send and recv, runs compared pair by pair; share of the payload placed without a copy in user space",
        &["buffer", "Zerolane / TCP", "plain / TCP", "placed"],
    );
    for (run, size) in SIZES {
        let Some(found) = results.for_section(run, &mut section) else {
            continue;
        };
        for side in SIDES {
            let figures = &found[side];
            if let Some(gbps) = spread(&figures["gbps"]) {
                goodput.put(contender(side), size, gbps);
            }
            if let (Some(tx), Some(rx)) = (
                spread(&figures["tx_cpu_s_per_gb"]),
                spread(&figures["rx_cpu_s_per_gb"]),
            ) {
                let both = crate::figure::Spread::single(tx.median + rx.median);
                cpu.put(contender(side), size, both);
            }
        }
        let cell = |key: &str| found[key].as_f64().map_or_else(|| "–".into(), digits);
        ratios.row([
            size.to_owned(),
            cell("ratio_vs_tcp"),
            cell("plain_ratio_vs_tcp"),
            cell("placed_fraction"),
        ]);
    }
    section.chart(goodput);
    section.chart(cpu);
    section.table(ratios);
    let mut theirs = Table::new(
        "The papers' figures",
        &["paper", "what", "goodput", "CPU of the receiver"],
    );
    for row in [
        ["P2, figures 1 and 5", "ordinary TCP", "42 MB/s", "–"],
        ["P2, figure 5", "with fast buffers", "75 MB/s", "–"],
        ["P4, figure 8", "TCP", "2.5 Gb/s", "about 110 % of 2"],
        ["P4, figures 21 to 24", "RDMA", "6.6 Gb/s", "nearly none"],
    ] {
        theirs.row(row);
    }
    section.table(theirs);
    section
}

pub(super) fn offloads(results: &Results) -> Section {
    let mut section = Section::new(
        "offloads",
        "Without offloads, and with unprepared ends",
        "P4: figures 11 and 14",
        &[
            "The same transfer over a veth whose offloads are on; off at the sender alone, as with a plain network card; without \
             segmentation and merging at both ends, so that every packet of 1500 bytes passes the kernel alone, and only the checksum \
             is left out; and with checksums in software, too.",
            "Of the checksum's offload P4 found a slight gain, of segmentation's a loss for large messages. What a receiver pays that \
             speculates and is always wrong is in the section on speculation and the second copy.",
        ],
    );
    let mut chart = Chart::new(
        "offloads-goodput",
        "Goodput by offloads of the veth, buffer 1 MiB",
        Kind::Bars,
        "offloads",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut table = Table::new(
        "Payload placed directly, and payload copied in user space",
        &["offloads", "placed", "copied bytes per byte"],
    );
    for (run, name) in [
        ("bulk-1MiB", "on"),
        ("offloads-sender", "off at the sender"),
        ("offloads-off", "checksum alone"),
        ("offloads-none", "none"),
    ] {
        let Some(found) = results.for_section(run, &mut section) else {
            continue;
        };
        for side in ["zerolane", "zerolane_plain", "tcp"] {
            if let Some(gbps) = spread(&found[side]["gbps"]) {
                chart.put(contender(side), name, gbps);
            }
        }
        let cell = |key: &str| found[key].as_f64().map_or_else(|| "–".into(), digits);
        table.row([
            name.to_owned(),
            cell("placed_fraction"),
            cell("moved_bytes_per_byte"),
        ]);
    }
    let tcp = |offloads| chart.at("TCP", offloads).map(|it| it.median);
    section.shape(
        "The offload of the checksum alone gains something",
        tcp("checksum alone")
            .zip(tcp("none"))
            .map(|(with, without)| {
                (
                    with > without,
                    format!("TCP, {} and {} Gb/s", digits(with), digits(without)),
                )
            }),
    );
    section.chart(chart);
    section.table(table);
    section
}

pub(super) fn socket_buffers(results: &Results) -> Section {
    let mut section = Section::new(
        "socket-buffers",
        "TCP by the size of its socket buffers",
        "P4: figure 10",
        &[
            "TCP with fixed buffers at both ends. Today's kernel sizes both by default. The paper blames a sender \
             whose \
             window is larger than the receiver's, and gives a smaller one as the example: 64 KB against 128 KB.",
        ],
    );
    let mut chart = Chart::new(
        "socket-buffers-goodput",
        "TCP by its socket buffers",
        Kind::Bars,
        "send buffer, receive buffer",
        Axis::linear("goodput", "Gb/s"),
    );
    for (run, name) in [
        ("buffers-64KiB", "64, 64 KiB"),
        ("buffers-send-64KiB", "64, 128 KiB"),
        ("buffers-receive-64KiB", "128, 64 KiB"),
        ("buffers-128KiB", "128, 128 KiB"),
        ("bulk-1MiB", "by the kernel"),
    ] {
        if let Some(found) = results.for_section(run, &mut section)
            && let Some(gbps) = spread(&found["tcp"]["gbps"])
        {
            chart.put("TCP", name, gbps);
        }
    }
    section.chart(chart);
    if let Ok(found) = results.get("bulk-1MiB") {
        let name = text(found, "tcp_congestion");
        section.text.push(format!("Congestion control: {name}."));
    }
    let mut theirs = Table::new(
        "P4, figure 10: TCP at 10 Gb/s on Windows, in words",
        &["buffer", "throughput"],
    );
    theirs.row(["receive", "rises as it grows"]);
    theirs.row(["send", "falls as it grows"]);
    section.table(theirs);
    section
}
