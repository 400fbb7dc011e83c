//! Formats the report on a trace as text.

use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanBytes;
use zerolane_trace::{Cause, Counts, FlowReport, HostReport, Report, Seen, Tallies, Tally};

use crate::console;

/// Formats the report, with at most `most` flows and hosts.
pub(super) fn of(report: &Report, most: usize) -> String {
    let parts = [
        Some(packets(report)),
        Some(rules(&report.sum.rules)),
        Some(interference(&report.sum)),
        cut(&hosts(report, most), report.hosts.len(), most, "host"),
        cut(&flows(report, most), report.flows.len(), most, "flow"),
        folded(report),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join("\n\n")
}

/// Formats a rate in percent; `-` if nothing was predicted.
fn percent(tally: &Tally) -> String {
    tally
        .rate()
        .map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", 100.0 * rate))
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    rows.for_each(|row| {
        table.add_row(row);
    });
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// `table`, and the number of rows it leaves out; `None` if there are no rows.
fn cut(table: &str, all: usize, most: usize, what: &str) -> Option<String> {
    match all.saturating_sub(most) {
        0 if all == 0 => None,
        0 => Some(table.to_owned()),
        _ if most == 0 => Some(format!(
            "{}, which --flows shows",
            console::counted(all, what)
        )),
        more => Some(format!(
            "{table}\nand {}",
            console::counted(more, &format!("more {what}"))
        )),
    }
}

fn packets(report: &Report) -> String {
    let seen = &report.seen;
    let mut text = format!(
        "{}, {} on the wire, in {:.3} s; {} with payload of {}",
        console::counted(seen.packets, "packet"),
        HumanBytes(seen.bytes),
        seen.seconds,
        report.sum.data_packets,
        HumanBytes(report.sum.payload_bytes),
    );
    for (count, what) in left_out(seen) {
        if count > 0 {
            text.push_str(&format!("\n{count} {what}"));
        }
    }
    text
}

/// Counts of packets that belong to no flow, or were changed before the capture.
fn left_out(seen: &Seen) -> [(u64, String); 6] {
    let link = seen.link.unwrap_or_default();
    let merged = "longer than a frame: this host had merged them (ethtool -K DEVICE gro off lro off shows what comes)";
    [
        (seen.not_ip, "not IP".to_owned()),
        (
            seen.cut,
            "recorded without all of their headers: not counted".to_owned(),
        ),
        (seen.malformed, "malformed: not counted".to_owned()),
        (
            seen.unknown_link,
            format!("of a kind of link that is not read, such as {link}: not counted"),
        ),
        (
            seen.lone_fragments,
            "fragments without the first of their datagram: counted without ports".to_owned(),
        ),
        (seen.merged, merged.to_owned()),
    ]
}

fn rules(rules: &Tallies) -> String {
    let rows = [
        ("pages", &rules.pages),
        ("pages, per stream", &rules.pages_per_stream),
        ("pairs", &rules.pairs),
        ("trains", &rules.trains),
    ];
    let header = [
        "rule",
        "predicted",
        "hit",
        "rate",
        "bytes hit",
        "of",
        "first",
        "interleaved",
        "control",
        "reordered",
        "lost",
        "size",
    ];
    let rows = rows.into_iter().map(|(name, tally)| {
        let [first, interleaved, control, reordered, lost, size] =
            Cause::ALL.map(|cause| tally.misses(cause).to_string());
        [
            name.to_owned(),
            tally.potential.to_string(),
            tally.hits.to_string(),
            percent(tally),
            HumanBytes(tally.hit_bytes).to_string(),
            HumanBytes(tally.bytes).to_string(),
            first,
            interleaved,
            control,
            reordered,
            lost,
            size,
        ]
    });
    table(header, rows)
}

/// The cost of interference, and how much the kernel merges nevertheless.
fn interference(sum: &Counts) -> String {
    let rules = &sum.rules;
    let lost = rules.pages_per_stream.hits.saturating_sub(rules.pages.hits);
    let bytes = rules
        .pages_per_stream
        .hit_bytes
        .saturating_sub(rules.pages.hit_bytes);
    let mean = rules.pairs.potential as f64 / rules.runs.max(1) as f64;
    format!(
        "Interference: a large packet of another flow came before {}, only small ones before {}. In one list of \
         descriptors that costs {} ({}).\n\
         The kernel would merge {mean:.1} packets per message.",
        console::counted(sum.interleaved, "packet"),
        sum.control_between,
        console::counted(lost, "page"),
        HumanBytes(bytes),
    )
}

fn hosts(report: &Report, most: usize) -> String {
    let header = [
        "receiving host",
        "frames",
        "large",
        "small",
        "bytes",
        "pages",
        "successful",
        "rate",
        "per stream",
    ];
    let row = |host: &HostReport| {
        [
            host.address.to_string(),
            host.frames.to_string(),
            host.large.to_string(),
            host.small.to_string(),
            HumanBytes(host.bytes).to_string(),
            host.pages.potential.to_string(),
            host.pages.hits.to_string(),
            percent(&host.pages),
            percent(&host.pages_per_stream),
        ]
    };
    table(header, report.hosts.iter().take(most).map(row))
}

fn flows(report: &Report, most: usize) -> String {
    let header = [
        "flow",
        "packets",
        "bytes",
        "pages",
        "per stream",
        "pairs",
        "trains",
    ];
    let row = |FlowReport { flow, counts }: &FlowReport| {
        let rules = &counts.rules;
        [
            flow.to_string(),
            counts.packets.to_string(),
            HumanBytes(counts.bytes).to_string(),
            percent(&rules.pages),
            percent(&rules.pages_per_stream),
            percent(&rules.pairs),
            percent(&rules.trains),
        ]
    };
    table(header, report.flows.iter().take(most).map(row))
}

fn folded(report: &Report) -> Option<String> {
    let others = report.folded.as_ref()?;
    let hosts = match report.hosts_folded {
        0 => String::new(),
        hosts => {
            let hosts = console::counted(hosts, "host");
            format!("; {hosts} without other flows not listed")
        }
    };
    Some(format!(
        "Only in the sum: {} that were silent longest ({}, {}){hosts}; --follow follows more",
        console::counted(others.flows, "flow"),
        console::counted(others.counts.packets, "packet"),
        HumanBytes(others.counts.bytes),
    ))
}
