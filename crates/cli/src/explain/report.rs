//! The explanation as tables and sentences.

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use zerolane_explain::{CpuTime, Explanation};

/// Columns of the first table that are not numbers.
const NAME_COLUMNS: usize = 1;

pub(super) fn of(explanation: &Explanation) -> String {
    let sections = [
        causes(explanation),
        unexplained(explanation),
        Some(carried(explanation)),
        interfaces(explanation),
        per_mib(explanation),
        Some(drops(explanation)),
        missing(explanation),
    ];
    sections
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn table<const N: usize>(
    titles: [&str; N],
    name_columns: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(titles);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(name_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn causes(explanation: &Explanation) -> Option<String> {
    let sampling = explanation.sampling?;
    let cpu = explanation.cpu?;
    let rows = explanation.causes.iter().map(|it| {
        let per_kib = it
            .ns_per_kib
            .map_or_else(String::new, |it| format!("{it:.1}"));
        [
            it.cause.to_string(),
            format!("{:.3}", it.seconds),
            percent(it.share),
            per_kib,
        ]
    });
    let titles = ["cause", "CPU s", "share", "ns/KiB"];
    let explained = explanation.explained_fraction.unwrap_or(0.0);
    Some(format!(
        "{}\n{} explained; {} samples at {} Hz of {} CPUs in {:.2} s, {} records lost\n{}",
        table(titles, NAME_COLUMNS, rows),
        percent(explained),
        sampling.samples,
        sampling.frequency_hz,
        sampling.cpus,
        explanation.seconds,
        sampling.lost,
        owners(&cpu),
    ))
}

fn owners(cpu: &CpuTime) -> String {
    format!(
        "CPU time: program {:.2} s, kernel beside it {:.2} s, other programs {:.2} s, explaining {:.2} s, idle {:.2} s",
        cpu.program, cpu.kernel, cpu.others, cpu.explaining, cpu.idle
    )
}

fn unexplained(explanation: &Explanation) -> Option<String> {
    let rows = explanation.unexplained.iter().map(|it| {
        [
            it.symbol.clone(),
            format!("{:.3}", it.seconds),
            percent(it.share),
        ]
    });
    let titles = ["unexplained: function", "CPU s", "share"];
    (!explanation.unexplained.is_empty()).then(|| table(titles, NAME_COLUMNS, rows))
}

fn carried(explanation: &Explanation) -> String {
    let bytes = ByteSize(explanation.bytes);
    let rate = explanation.bytes as f64 * 8.0 / explanation.seconds.max(f64::EPSILON) / 1e9;
    let copies = explanation.copies_per_byte.zip(explanation.copies).map(|(copied, how)| {
        let seconds = how.kernel_seconds + how.user_seconds;
        let gb = how.bytes_per_second / 1e9;
        format!(
            "; each byte was copied about {copied:.1} times, by {seconds:.2} s in copies at {gb:.1} GB/s, of which \
             programs' own {:.2} s",
            how.user_seconds
        )
    });
    format!(
        "carried {bytes}, {rate:.2} Gb/s{}",
        copies.unwrap_or_default()
    )
}

fn interfaces(explanation: &Explanation) -> Option<String> {
    let rows = explanation.interfaces.iter().map(|it| {
        [
            it.namespace.clone(),
            it.name.clone(),
            ByteSize(it.rx_bytes).to_string(),
            it.rx_packets.to_string(),
            ByteSize(it.tx_bytes).to_string(),
            it.tx_packets.to_string(),
        ]
    });
    let titles = [
        "namespace",
        "interface",
        "received",
        "packets",
        "sent",
        "packets",
    ];
    (!explanation.interfaces.is_empty()).then(|| table(titles, 2, rows))
}

fn per_mib(explanation: &Explanation) -> Option<String> {
    let per_mib = explanation.per_mib.iter();
    let words: Vec<_> = per_mib
        .map(|(name, each)| format!("{} {each:.2}", name.replace('_', " ")))
        .collect();
    (!words.is_empty()).then(|| format!("for each MiB carried: {}", words.join(", ")))
}

fn drops(explanation: &Explanation) -> String {
    if explanation.drops.is_empty() {
        return "no packet was dropped".into();
    }
    let rows = explanation.drops.iter().map(|it| {
        let interface = it.interface.clone().unwrap_or_default();
        [
            it.namespace.clone(),
            interface,
            it.words.clone(),
            it.count.to_string(),
        ]
    });
    let mut text = table(
        ["namespace", "interface", "dropped: where", "packets"],
        3,
        rows,
    );
    for socket in &explanation.lossy_sockets {
        let owner = socket
            .owner
            .as_deref()
            .unwrap_or("a process that was not found");
        let (protocol, port, drops) = (socket.protocol, socket.port, socket.drops);
        text.push_str(&format!(
            "\n{drops} of them by the {protocol} socket at port {port} of {owner}"
        ));
    }
    text
}

fn missing(explanation: &Explanation) -> Option<String> {
    let lines: Vec<_> = explanation
        .missing
        .iter()
        .map(|it| format!("not found out: {it}"))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
