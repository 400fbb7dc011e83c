//! Builds the section on `bench stream`, the thesis's own benchmark.

use serde_json::Value;

use super::contender;
use crate::figure::{Axis, Chart, Kind, Section, Spread, Table, digits};
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
    add_copy_and_checksum(results, &mut section);
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

/// TCP with and without a copy at the receiver, and with its checksum left out or computed, by MTU.
fn add_copy_and_checksum(results: &Results, section: &mut Section) {
    let mut chart = Chart::new(
        "mtu-copy-checksum",
        "TCP without segmentation offload: a copy more at the receiver, and checksums in software",
        Kind::Bars,
        "MTU, bytes",
        Axis::linear("goodput", "Gb/s"),
    );
    for (run, checksum) in [
        ("stream-checksum-software", "checksum"),
        ("stream-checksum-offloaded", "no checksum"),
    ] {
        for (_, row) in rows(results, run, section) {
            let copy = match text(row, "sink") {
                "copy" => "copy",
                _ => "no copy",
            };
            if let Some(value) = gbps(row) {
                chart.put(
                    &format!("{copy}, {checksum}"),
                    &mtu_of(row).to_string(),
                    value,
                );
            }
        }
    }
    let of = |series, mtu| chart.at(series, mtu).map(|it| it.median);
    let at = |mtu| {
        let both = of("copy, checksum", mtu).filter(|it| *it > 0.0)?;
        Some((both, of("no copy, no checksum", mtu)?))
    };
    section.shape(
        "Without copy and checksum TCP is faster, and more so at a larger MTU",
        at("1500").zip(at("9000")).map(|(small, large)| {
            let [small, large] = [small, large].map(|(both, none)| none / both);
            (
                small > 1.0 && large > small,
                format!("{} times at 1500, {} at 9000", digits(small), digits(large)),
            )
        }),
    );
    section.chart(chart);
}

pub(super) fn protocols(results: &Results) -> Section {
    let mut section = Section::new(
        "protocols",
        "Scheduled Transfer and TCP, with and without touching the data",
        "P1: figures 17, 18 and 19, Table 1",
        &[
            "Pieces of 512 and of 128 KiB to a receiver that does nothing with them, and to one that reads a word of each 64 bytes. \
             The classic profile is the thesis's protocol. MSG_TRUNC, with which the thesis made TCP discard its data, is not used.",
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
    for (run, of_size) in [
        ("stream-protocols", ""),
        ("stream-protocols-128KiB", " 128 KiB"),
    ] {
        for (name, row) in rows(results, run, &mut section) {
            let category = format!("{}, {}{of_size}", mtu_of(row), text(row, "sink"));
            if let Some(value) = gbps(row) {
                ours.put(&name, &category, value);
            }
            if let Some(value) = cpu(row, "receiver") {
                cpu_of.put(&name, &category, value);
            }
        }
    }
    let kept = |series: &str, size: &str| {
        let at = |sink: &str| Some(ours.at(series, &format!("1500, {sink}{size}"))?.median);
        Some(at("touch")? / at("none").filter(|it| *it > 0.0)?)
    };
    section.shape(
        "Touching the data costs TCP less where a piece fits the cache",
        kept("TCP", " 128 KiB")
            .zip(kept("TCP", ""))
            .map(|(small, large)| {
                let figures = [small, large].map(digits).join(" and ");
                (
                    small > large,
                    format!(
                        "{figures} of its goodput at 128 and 512 KiB; the thesis's 0.70 and 0.28"
                    ),
                )
            }),
    );
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
        if !matches!(sink, "sendfile" | "MSG_TRUNC" | "sendfile, MSG_TRUNC") {
            let sink = sink.trim_end_matches(" 512 KiB");
            let name = format!("{protocol} (2001)");
            theirs.put_of_paper(&name, &format!("{mtu}, {sink}"), f64::from(mb) * MB_IN_GBPS);
        }
    }
    section.chart(theirs);
    section.table(table);
    section
}

/// Protocol, what is done with the data, MTU, MB/s, CPU of receiver and sender, percent of both processors.
const TABLE_1: [(&str, &str, u16, u8, u8, u8); 16] = [
    ("STP", "none", 9000, 98, 8, 17),
    ("STP", "touch", 9000, 53, 23, 9),
    ("STP", "none", 1500, 52, 5, 23),
    ("STP", "touch", 1500, 34, 16, 13),
    ("TCP", "none", 9000, 86, 56, 44),
    ("TCP", "MSG_TRUNC", 9000, 99, 23, 54),
    ("TCP", "sendfile", 9000, 78, 56, 14),
    ("TCP", "sendfile, MSG_TRUNC", 9000, 99, 23, 27),
    ("TCP", "touch 128 KiB", 9000, 61, 54, 30),
    ("TCP", "touch 512 KiB", 9000, 40, 54, 27),
    ("TCP", "none", 1500, 57, 58, 44),
    ("TCP", "MSG_TRUNC", 1500, 66, 60, 65),
    ("TCP", "sendfile", 1500, 61, 60, 32),
    ("TCP", "sendfile, MSG_TRUNC", 1500, 70, 52, 41),
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
    let mut receiver = cpu_chart("transfer-size-receiver", "receiver", "size");
    let mut sender = cpu_chart("transfer-size-sender", "sender", "size");
    for (name, row) in rows(results, "stream-transfer", &mut section) {
        let name = match mtu_of(row) {
            1500 => name,
            mtu => format!("{name}, MTU {mtu}"),
        };
        if let Some(value) = gbps(row) {
            absolute.put(&name, &size(&row["size"]), value);
        }
        put_cpu(
            &mut receiver,
            &mut sender,
            (&name, &size(&row["size"])),
            row,
        );
    }
    let rises = |series| {
        let points = absolute.series.iter().find(|it| it.name == series)?;
        let points = || points.points.iter().flatten();
        let (first, last) = (points().next()?.median, points().last()?.median);
        Some((first, last))
    };
    section.shape(
        "Goodput rises with the size of a Transfer",
        rises("Zerolane, classic profile").map(|(first, last)| {
            (
                first < last,
                format!("{} to {} Gb/s", digits(first), digits(last)),
            )
        }),
    );
    let ours = !absolute.is_empty();
    for (bytes, jumbo, standard) in TABLES_6_AND_7 {
        let (jumbo_cpu, standard_cpu) = (jumbo, standard);
        let ([jumbo, ..], [standard, ..]) = (jumbo, standard);
        let category = size(&Value::from(bytes));
        // In the quick plan only some sizes are measured: theirs are shown at those.
        if ours && !absolute.categories.contains(&category) {
            continue;
        }
        absolute.put_of_paper("STP (2001), MTU 9000", &category, jumbo * MB_IN_GBPS);
        absolute.put_of_paper("STP (2001), MTU 1500", &category, standard * MB_IN_GBPS);
        for (name, of_mtu) in [
            ("STP (2001), MTU 9000", jumbo_cpu),
            ("STP (2001), MTU 1500", standard_cpu),
        ] {
            let [rx, tx] = seconds_per_gb(of_mtu);
            receiver.put_of_paper(name, &category, rx);
            sender.put_of_paper(name, &category, tx);
        }
    }
    section.chart(relative_to_best("transfer-size-shape", &absolute));
    section.chart(absolute);
    section.chart(receiver);
    section.chart(sender);
    section
}

/// Transfer size in bytes; MB/s, CPU of receiver and sender in percent of two processors, with jumbo frames, and with
/// standard ones.
const TABLES_6_AND_7: [(u64, [f64; 3], [f64; 3]); 8] = [
    (4096, [9.0, 12.0, 14.0], [10.0, 15.0, 15.0]),
    (8192, [17.0, 12.0, 13.0], [17.0, 14.0, 16.0]),
    (16384, [29.0, 12.0, 13.0], [27.0, 11.0, 18.0]),
    (32768, [45.0, 10.0, 12.0], [32.0, 10.0, 16.0]),
    (65536, [64.0, 8.0, 11.0], [40.0, 7.0, 16.0]),
    (131_072, [81.0, 6.0, 11.0], [47.0, 6.0, 19.0]),
    (262_144, [91.0, 5.0, 15.0], [50.0, 5.0, 20.0]),
    (524_288, [98.0, 6.0, 17.0], [52.0, 5.0, 23.0]),
];

/// CPU seconds a GB of receiver and sender, of MB/s and percent of two processors.
fn seconds_per_gb([mb, receiver, sender]: [f64; 3]) -> [f64; 2] {
    [receiver, sender].map(|percent| percent / 100.0 * 2.0 / (mb * 1.048_576e-3))
}

fn cpu_chart(id: &str, end: &str, over: &str) -> Chart {
    let title = format!("CPU time of the {end}");
    let axis = Axis::logarithmic("CPU time", "s/GB");
    Chart::new(id, &title, Kind::Lines, over, axis)
}

/// Adds the CPU time of both ends of a row.
fn put_cpu(receiver: &mut Chart, sender: &mut Chart, (name, category): (&str, &str), row: &Value) {
    for (chart, end) in [(receiver, "receiver"), (sender, "sender")] {
        if let Some(value) = cpu(row, end) {
            chart.put(name, category, value);
        }
    }
}

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
            "Transfers of 512 KiB in STUs of the thesis's sizes, 32 of them a Block of the classic profile; here over an MTU of 9000 \
             bytes, there over one that the STU fills. The thesis's network card made 55 000 packets a second whatever their size, so \
             goodput rose with it; here one system call takes many.",
        ],
    );
    let mut chart = Chart::new(
        "stu-size-goodput",
        "Goodput by size of an STU",
        Kind::Lines,
        "STU, bytes",
        Axis::logarithmic("goodput", "Gb/s"),
    );
    let mut receiver = cpu_chart("stu-size-receiver", "receiver", "STU, bytes");
    let mut sender = cpu_chart("stu-size-sender", "sender", "STU, bytes");
    for (name, row) in rows(results, "stream-stu", &mut section) {
        let stu = row["stu"].as_u64().unwrap_or_default().to_string();
        if let Some(value) = gbps(row) {
            chart.put(&name, &stu, value);
        }
        put_cpu(&mut receiver, &mut sender, (&name, &stu), row);
    }
    let of = |stu| {
        chart
            .at("Zerolane, classic profile", stu)
            .map(|it| it.median)
    };
    section.shape(
        "Goodput rises with the size of an STU",
        of("512").zip(of("4096")).map(|(small, large)| {
            (
                small < large,
                format!(
                    "{} times from 512 to 4096 bytes; the thesis's 3.6",
                    digits(large / small)
                ),
            )
        }),
    );
    let ours = !chart.is_empty();
    let mut table = Table::new(
        "P1, Table 3: MB/s (of 2^20 bytes), CPU in percent of two processors",
        &["STU", "MB/s", "receiver", "sender"],
    );
    for (stu, figures) in TABLE_3 {
        let [mb, percent_rx, percent_tx] = figures;
        table.row([
            stu.to_owned(),
            digits(mb),
            digits(percent_rx),
            digits(percent_tx),
        ]);
        if ours {
            let name = "STP (2001)";
            let [rx, tx] = seconds_per_gb(figures);
            chart.put_of_paper(name, stu, mb * MB_IN_GBPS);
            receiver.put_of_paper(name, stu, rx);
            sender.put_of_paper(name, stu, tx);
        }
    }
    section.chart(chart);
    section.chart(receiver);
    section.chart(sender);
    section.table(table);
    section
}

/// Bytes of an STU; MB/s, CPU of receiver and sender in percent of two processors.
const TABLE_3: [(&str, [f64; 3]); 4] = [
    ("512", [27.0, 4.0, 18.0]),
    ("1024", [53.0, 6.0, 18.0]),
    ("2048", [87.0, 6.0, 18.0]),
    ("4096", [98.0, 6.0, 17.0]),
];
