//! Builds the section on `bench stream`, the thesis's own benchmark.

use serde_json::Value;

use super::contender;
use crate::figure::{Axis, Chart, Kind, Section, Spread, Table};
use crate::results::{Results, list, size, spread, text};

/// 1 MB of the thesis is 2^20 bytes: its MB/s in Gb/s.
const MB_IN_GBPS: f64 = 1.048_576 * 8.0 / 1000.0;

/// The rows of a run, with what each is called.
fn rows<'a>(
    results: &'a Results,
    run: &str,
    section: &mut Section,
) -> impl Iterator<Item = (String, &'a Value)> {
    let found = results.for_section(run, section);
    let rows = found.map_or(&[][..], |it| list(it, "rows"));
    rows.iter().map(|row| {
        let (key, source) = (text(row, "contender"), text(row, "source"));
        let mut name = contender(key).to_owned();
        // Some contenders are named by it already.
        if !matches!(source, "buffer" | "") && !key.ends_with(source) {
            name = format!("{name}, {source}");
        }
        (name, row)
    })
}

fn gbps(row: &Value) -> Option<Spread> {
    spread(&row["figures"]["gbps"])
}

/// CPU time of both ends, s/GB.
fn cpu(row: &Value, end: &str) -> Option<Spread> {
    spread(&row["figures"][end]["cpu_s_per_gb"])
}

fn mtu_of(row: &Value) -> u64 {
    row["mtu"].as_u64().unwrap_or_default()
}

pub(super) fn mtu(results: &Results) -> Section {
    let mut section = Section::new(
        "mtu",
        "Bandwidth and CPU time by MTU",
        "P0: figures 2, 3 and 4. P4: figures 9 and 13",
        &[
            "Pieces of 1 MiB, by TCP with and without the sender's copy (sendfile), and by Zerolane, encrypted; where \
             the name says checksum, the receiver sums all words. Lines continue beyond the MTUs of jumbo frames.",
            "The papers found that bandwidth rises and CPU time falls with the MTU. Trapeze reached 956 Mb/s over Myrinet and \
             988 over Gigabit Ethernet, and less than half of the link at 1500 bytes; zero copy with checksums in hardware left \
             less than 30 % of the receiver's CPU at 8 KB. Here segmentation offload hides most of it: the stack sees 64 KiB at \
             a time whatever the MTU.",
        ],
    );
    let chart = |id, title: &str, axis| Chart::new(id, title, Kind::Lines, "MTU, bytes", axis);
    let mut goodput = chart(
        "mtu-goodput",
        "Goodput by MTU",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut receiver = chart(
        "mtu-receiver",
        "CPU time of the receiver by MTU",
        Axis::linear("CPU time", "s/GB"),
    );
    let mut sender = chart(
        "mtu-sender",
        "CPU time of the sender by MTU",
        Axis::linear("CPU time", "s/GB"),
    );
    for (mut name, row) in rows(results, "stream-mtu", &mut section) {
        if text(row, "sink") == "checksum" {
            name = format!("{name}, checksum");
        }
        let mtu = mtu_of(row).to_string();
        for (chart, value) in [
            (&mut goodput, gbps(row)),
            (&mut receiver, cpu(row, "receiver")),
            (&mut sender, cpu(row, "sender")),
        ] {
            if let Some(value) = value {
                chart.put(&name, &mtu, value);
            }
        }
    }
    section.chart(goodput);
    section.chart(receiver);
    section.chart(sender);
    let mut theirs = Table::new("The papers' figures", &["paper", "what", "figure"]);
    for row in [
        ["P0, figure 2", "TCP, large MTU, Myrinet", "956 Mb/s"],
        [
            "P0, figure 2",
            "TCP, large MTU, Gigabit Ethernet",
            "988 Mb/s",
        ],
        [
            "P0, figure 2",
            "TCP, MTU 1500, Intel hosts",
            "about 300 Mb/s",
        ],
        ["P0, figure 2", "440LX with copy", "450 Mb/s"],
        ["P0, figure 2", "440LX without copy", "780 Mb/s"],
        [
            "P0, figure 3",
            "receiver, 8 KB, no copy, no checksum",
            "below 30 % CPU",
        ],
        [
            "P0, figure 3",
            "receiver, MTU 1500, at 410 Mb/s",
            "90 % CPU",
        ],
    ] {
        theirs.row(row);
    }
    section.table(theirs);
    section
}

pub(super) fn protocols(results: &Results) -> Section {
    let mut section = Section::new(
        "protocols",
        "Scheduled Transfer and TCP, with and without touching the data",
        "P1: figures 17, 18 and 19, Table 1",
        &[
            "Pieces of 512 KiB to a receiver that does nothing with them, and to one that reads a word of each 64 bytes. The \
             classic profile is the thesis's protocol. MSG_TRUNC, with which the thesis made TCP discard its data, is not used.",
            "The thesis's receiver had hardware that placed the data, so its CPU was nearly idle, until the data were touched: \
             they were not in the cache. Ours are: the kernel's copy, or the opening pass, put them there.",
        ],
    );
    let mut ours = Chart::new(
        "protocols-goodput",
        "Goodput by protocol and sink, here",
        Kind::Bars,
        "MTU and sink",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut cpu_of = Chart::new(
        "protocols-receiver",
        "CPU time of the receiver, here",
        Kind::Bars,
        "MTU and sink",
        Axis::linear("CPU time", "s/GB"),
    );
    for (name, row) in rows(results, "stream-protocols", &mut section) {
        let category = format!("{}, {}", mtu_of(row), text(row, "sink"));
        if let Some(value) = gbps(row) {
            ours.put(&name, &category, value);
        }
        if let Some(value) = cpu(row, "receiver") {
            cpu_of.put(&name, &category, value);
        }
    }
    section.chart(ours);
    section.chart(cpu_of);
    let mut theirs = Chart::new(
        "protocols-thesis",
        "The thesis's goodput by protocol and sink",
        Kind::Bars,
        "MTU and sink",
        Axis::linear("goodput", "Gb/s"),
    );
    let mut table = Table::new(
        "P1, Table 1: MB/s (of 2^20 bytes), CPU in percent of two processors",
        &["test", "MTU", "MB/s", "receiver", "sender"],
    );
    for (protocol, sink, mtu, mb, receiver, sender) in TABLE_1 {
        table.row([
            format!("{protocol}, {sink}"),
            mtu.to_string(),
            mb.to_string(),
            receiver.to_string(),
            sender.to_string(),
        ]);
        if matches!(sink, "none" | "touch" | "touch 512 KiB") {
            let sink = sink.split(' ').next().unwrap_or(sink);
            let name = format!("{protocol} (2001)");
            theirs.put_of_paper(&name, &format!("{mtu}, {sink}"), f64::from(mb) * MB_IN_GBPS);
        }
    }
    section.chart(theirs);
    section.table(table);
    section
}

/// Protocol, what is done with the data, MTU, MB/s, CPU of receiver and sender, percent of both processors.
const TABLE_1: [(&str, &str, u16, u8, u8, u8); 12] = [
    ("STP", "none", 9000, 98, 8, 17),
    ("STP", "touch", 9000, 53, 23, 9),
    ("STP", "none", 1500, 52, 5, 23),
    ("STP", "touch", 1500, 34, 16, 13),
    ("TCP", "none", 9000, 86, 56, 44),
    ("TCP", "sendfile", 9000, 78, 56, 14),
    ("TCP", "touch 128 KiB", 9000, 61, 54, 30),
    ("TCP", "touch 512 KiB", 9000, 40, 54, 27),
    ("TCP", "none", 1500, 57, 58, 44),
    ("TCP", "sendfile", 1500, 61, 60, 32),
    ("TCP", "touch 128 KiB", 1500, 40, 57, 31),
    ("TCP", "touch 512 KiB", 1500, 16, 54, 13),
];

pub(super) fn transfer_size(results: &Results) -> Section {
    let mut section = Section::new(
        "transfer-size",
        "Size of a Transfer",
        "P1: figure 16, Tables 6 and 7. P4: figures 7b and 8b",
        &[
            "Each piece is announced, granted and sent. Goodput is divided by that of the same line's largest size, \
             so that the cost of the size can be compared over 25 years; the chart below has absolute figures.",
            "In the thesis each Block waited for a round trip: 9 MB/s at 4 KB, 98 at 512 KB. The extended profile grants ahead.",
        ],
    );
    let mut absolute = Chart::new(
        "transfer-size-goodput",
        "Goodput by size of a Transfer",
        Kind::Lines,
        "size",
        Axis::logarithmic("goodput", "Gb/s"),
    );
    for (name, row) in rows(results, "stream-transfer", &mut section) {
        let name = match mtu_of(row) {
            1500 => name,
            mtu => format!("{name}, MTU {mtu}"),
        };
        if let Some(value) = gbps(row) {
            absolute.put(&name, &size(&row["size"]), value);
        }
    }
    let ours = !absolute.is_empty();
    for (bytes, jumbo, standard) in TABLES_6_AND_7 {
        let category = size(&Value::from(bytes));
        // In the quick plan only some sizes are measured: theirs are shown at those.
        if ours && !absolute.categories.contains(&category) {
            continue;
        }
        absolute.put_of_paper("STP (2001), MTU 9000", &category, jumbo * MB_IN_GBPS);
        absolute.put_of_paper("STP (2001), MTU 1500", &category, standard * MB_IN_GBPS);
    }
    section.chart(relative_to_best("transfer-size-shape", &absolute));
    section.chart(absolute);
    section
}

/// Transfer size in bytes, MB/s with jumbo frames, MB/s with standard ones.
const TABLES_6_AND_7: [(u64, f64, f64); 8] = [
    (4096, 9.0, 10.0),
    (8192, 17.0, 17.0),
    (16384, 29.0, 27.0),
    (32768, 45.0, 32.0),
    (65536, 64.0, 40.0),
    (131_072, 81.0, 47.0),
    (262_144, 91.0, 50.0),
    (524_288, 98.0, 52.0),
];

/// Each series as a share of its own value at the last category.
fn relative_to_best(id: &str, chart: &Chart) -> Chart {
    let mut relative = chart.clone();
    relative.id = id.into();
    relative.title = "Goodput as a share of that of the largest size".into();
    relative.axis = Axis::linear("share of the largest size's goodput", "1");
    for series in &mut relative.series {
        let last = series.points.last().copied().flatten();
        let Some(last) = last.filter(|it| it.median > 0.0) else {
            series.points.clear();
            continue;
        };
        for point in series.points.iter_mut().flatten() {
            *point = point.times(1.0 / last.median);
        }
    }
    relative
}

pub(super) fn stu_size(results: &Results) -> Section {
    let mut section = Section::new(
        "stu-size",
        "Size of an STU",
        "P1: figure 15, Table 3",
        &[
            "An STU fills a packet, so its size follows the MTU; the thesis chose it directly, 512 to 4096 bytes. \
             Zerolane supports no MTU below 1280 bytes. The thesis's network card made 55 000 packets a second \
             whatever their size, so \
             goodput rose with it; here one system call takes many.",
        ],
    );
    let mut chart = Chart::new(
        "stu-size-goodput",
        "Goodput by MTU: the size of an STU follows",
        Kind::Lines,
        "MTU, bytes",
        Axis::linear("goodput", "Gb/s"),
    );
    for (name, row) in rows(results, "stream-stu", &mut section) {
        if let Some(value) = gbps(row) {
            chart.put(&name, &mtu_of(row).to_string(), value);
        }
    }
    section.chart(chart);
    let mut theirs = Chart::new(
        "stu-size-thesis",
        "The thesis's goodput by MTU",
        Kind::Lines,
        "MTU, bytes",
        Axis::linear("goodput", "Gb/s"),
    );
    for (mtu, mb) in [
        ("576", 27.0),
        ("1088", 53.0),
        ("2112", 87.0),
        ("4160", 98.0),
    ] {
        theirs.put_of_paper("STP (2001)", mtu, mb * MB_IN_GBPS);
    }
    section.chart(theirs);
    section
}
