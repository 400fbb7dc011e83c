//! Arranges the explanation in sections of tables and sentences.

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use zerolane_explain::{CpuTime, Explanation, Source};

/// An optional table, and sentences.
#[derive(Default)]
pub(super) struct Section {
    pub(super) table: Option<Rows>,
    pub(super) words: Vec<String>,
}

/// A table: the first columns are names, the others numbers.
pub(super) struct Rows {
    pub(super) titles: Vec<&'static str>,
    pub(super) name_columns: usize,
    pub(super) rows: Vec<Vec<String>>,
    /// The share of each row in the total, from 0 to 1; empty if rows have no total.
    pub(super) shares: Vec<f64>,
}

impl Rows {
    fn new<const N: usize>(
        titles: [&'static str; N],
        name_columns: usize,
        rows: impl Iterator<Item = [String; N]>,
    ) -> Rows {
        Rows {
            titles: titles.into(),
            name_columns,
            rows: rows.map(Vec::from).collect(),
            shares: Vec::new(),
        }
    }

    /// A section with these rows; `None` if there are none.
    fn section(self) -> Option<Section> {
        (!self.rows.is_empty()).then(|| Section {
            table: Some(self),
            words: Vec::new(),
        })
    }
}

impl Section {
    fn words(words: impl IntoIterator<Item = String>) -> Option<Section> {
        let words: Vec<_> = words.into_iter().collect();
        (!words.is_empty()).then_some(Section { table: None, words })
    }
}

pub(super) fn sections(explanation: &Explanation) -> Vec<Section> {
    let sections = [
        causes(explanation),
        by_cpu(explanation),
        unexplained(explanation),
        Section::words([carried(explanation)]),
        interfaces(explanation),
        per_mib(explanation),
        hardware(explanation),
        Some(drops(explanation)),
        driver_statistics(explanation),
        reasons(explanation),
        missing(explanation),
    ];
    sections.into_iter().flatten().collect()
}

/// Formats the explanation for a terminal.
pub(super) fn text(explanation: &Explanation) -> String {
    let of_section = |section: Section| {
        let table = section.table.as_ref().map(text_of_table);
        let parts: Vec<_> = table.into_iter().chain(section.words).collect();
        parts.join("\n")
    };
    let sections: Vec<_> = sections(explanation).into_iter().map(of_section).collect();
    sections.join("\n\n")
}

fn text_of_table(rows: &Rows) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(&rows.titles);
    table.add_rows(&rows.rows);
    for column in table.column_iter_mut().skip(rows.name_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn causes(explanation: &Explanation) -> Option<Section> {
    let sampling = explanation.sampling?;
    let cpu = explanation.cpu?;
    let causes = &explanation.causes;
    let rows = causes.iter().map(|it| {
        let per_kib = it.ns_per_kib.map(|it| format!("{it:.1}"));
        let (seconds, share) = (format!("{:.3}", it.seconds), percent(it.share));
        [
            it.cause.to_string(),
            seconds,
            share,
            per_kib.unwrap_or_default(),
        ]
    });
    let mut table = Rows::new(["cause", "CPU s", "share", "ns/KiB"], 1, rows);
    table.shares = causes.iter().map(|it| it.share).collect();
    let explained = format!(
        "{} explained; {} samples at {} Hz {}of {} CPUs in {:.2} s, {} records lost; watching took {} of the CPU time",
        percent(explanation.explained_fraction.unwrap_or(0.0)),
        sampling.samples,
        sampling.frequency_hz,
        match sampling.source {
            Source::Tick => "(the kernel's tick) ",
            Source::Clock => "",
        },
        sampling.cpus,
        explanation.seconds,
        sampling.lost,
        explanation.perturbation_fraction.map_or_else(
            || "an unknown share".into(),
            |it| format!("about {}", percent(it))
        ),
    );
    Some(Section {
        table: Some(table),
        words: vec![explained, owners(&cpu)],
    })
}

/// Causes listed for each CPU.
const CAUSES_OF_CPU: usize = 4;

/// Where the time of each CPU went, if there are several: of each end, where ends are pinned.
fn by_cpu(explanation: &Explanation) -> Option<Section> {
    let cpus = explanation
        .by_cpu
        .iter()
        .filter(|_| explanation.by_cpu.len() > 1);
    let words = cpus.map(|it| {
        let causes = it.causes.iter().take(CAUSES_OF_CPU);
        let causes: Vec<_> = causes
            .map(|cause| format!("{} {}", cause.cause, percent(cause.share)))
            .collect();
        let copies = it
            .copies_per_byte
            .map(|copies| format!("; copies of each byte: about {copies:.1}"));
        format!(
            "CPU {}: {}{}",
            it.cpu,
            causes.join(", "),
            copies.unwrap_or_default()
        )
    });
    Section::words(words)
}

fn owners(cpu: &CpuTime) -> String {
    format!(
        "CPU time: program {:.2} s, kernel beside it {:.2} s, other programs {:.2} s, explaining {:.2} s, idle {:.2} s",
        cpu.program, cpu.kernel, cpu.others, cpu.explaining, cpu.idle
    )
}

fn unexplained(explanation: &Explanation) -> Option<Section> {
    let rows = explanation.unexplained.iter().map(|it| {
        let (seconds, share) = (format!("{:.3}", it.seconds), percent(it.share));
        [it.symbol.clone(), seconds, share]
    });
    Rows::new(["unexplained: function", "CPU s", "share"], 1, rows).section()
}

fn carried(explanation: &Explanation) -> String {
    let bytes = ByteSize(explanation.bytes);
    let rate = explanation.bytes as f64 * 8.0 / explanation.seconds.max(f64::EPSILON) / 1e9;
    let copies = explanation.copies_per_byte.zip(explanation.copies);
    let copies = copies.map(|(copied, how)| {
        let seconds = how.kernel_seconds + how.user_seconds;
        let gb = how.bytes_per_second / 1e9;
        let range = explanation.copies_per_byte_range;
        let range = range.map(|[least, most]| format!(" ({least:.1} to {most:.1})"));
        let range = range.unwrap_or_default();
        format!(
            "; each byte was copied about {copied:.1} times{range}, by {seconds:.2} s in copies at {gb:.1} GB/s, of which \
             programs' own {:.2} s",
            how.user_seconds
        )
    });
    format!(
        "carried {bytes}, {rate:.2} Gb/s{}",
        copies.unwrap_or_default()
    )
}

fn interfaces(explanation: &Explanation) -> Option<Section> {
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
    Rows::new(titles, 2, rows).section()
}

fn per_mib(explanation: &Explanation) -> Option<Section> {
    let per_mib = explanation.per_mib.iter();
    let words = per_mib.map(|(name, each)| format!("{} {each:.2}", name.replace('_', " ")));
    let words = words.collect::<Vec<_>>().join(", ");
    let sentence = (!words.is_empty()).then(|| format!("for each MiB carried: {words}"));
    Section::words(sentence)
}

fn hardware(explanation: &Explanation) -> Option<Section> {
    let rows = explanation.hardware.iter().flatten().map(|it| {
        let each = it.instructions as f64 / it.cycles.max(1) as f64;
        [
            it.cpu.to_string(),
            it.cycles.to_string(),
            it.instructions.to_string(),
            format!("{each:.2}"),
            it.cache_misses.to_string(),
        ]
    });
    let titles = ["CPU", "cycles", "instructions", "a cycle", "cache misses"];
    Rows::new(titles, 1, rows).section()
}

fn drops(explanation: &Explanation) -> Section {
    let rows = explanation.drops.iter().map(|it| {
        let interface = it.interface.clone().unwrap_or_default();
        [
            it.namespace.clone(),
            interface,
            it.words.clone(),
            it.count.to_string(),
        ]
    });
    let titles = ["namespace", "interface", "dropped: where", "packets"];
    let Some(mut section) = Rows::new(titles, 3, rows).section() else {
        return Section {
            table: None,
            words: vec!["no packet was dropped".into()],
        };
    };
    section.words = explanation
        .lossy_sockets
        .iter()
        .map(|socket| {
            let owner = socket
                .owner
                .as_deref()
                .unwrap_or("a process that was not found");
            let (protocol, port, drops) = (socket.protocol, socket.port, socket.drops);
            format!("{drops} of them by the {protocol} socket at port {port} of {owner}")
        })
        .collect();
    section
}

fn driver_statistics(explanation: &Explanation) -> Option<Section> {
    let rows = explanation.driver_statistics.iter().map(|it| {
        let count = it.count.to_string();
        [
            it.namespace.clone(),
            it.interface.clone(),
            it.name.clone(),
            count,
        ]
    });
    let titles = [
        "namespace",
        "interface",
        "dropped or damaged: the driver's own counter",
        "count",
    ];
    Rows::new(titles, 3, rows).section()
}

fn reasons(explanation: &Explanation) -> Option<Section> {
    let rows = explanation.drop_reasons.iter().map(|it| {
        let function = it.function.clone().unwrap_or_default();
        [it.reason.clone(), function, it.count.to_string()]
    });
    let titles = [
        "dropped on this machine: the kernel's reason",
        "in function",
        "packets",
    ];
    Rows::new(titles, 2, rows).section()
}

fn missing(explanation: &Explanation) -> Option<Section> {
    let missing = explanation.missing.iter();
    Section::words(missing.map(|it| format!("not found out: {it}")))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
