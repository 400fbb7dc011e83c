//! A report for people.

use comfy_table::{CellAlignment, Table, presets};

use super::report::{Comparison, Figures, Report, Spread};

/// A table with a column for each mover: TCP and Zerolane, between them those that were run.
pub(crate) struct SideBySide<'a> {
    columns: Vec<Option<&'a Figures>>,
    table: Table,
}

impl SideBySide<'_> {
    /// A table without rows yet.
    pub(crate) fn new(compared: &Comparison) -> SideBySide<'_> {
        let between = [("TLS", &compared.tls), ("quinn", &compared.quinn)];
        let between = between.into_iter().filter(|(_, figures)| figures.is_some());
        let movers = [("TCP", &compared.tcp)]
            .into_iter()
            .chain(between)
            .chain([("Zerolane", &compared.zerolane)]);
        let (names, columns): (Vec<&str>, Vec<Option<&Figures>>) = movers
            .map(|(name, figures)| (name, figures.as_ref()))
            .unzip();
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([""].into_iter().chain(names));
        SideBySide { columns, table }
    }

    /// A row of a figure that every mover has.
    pub(crate) fn row(&mut self, name: &str, figure: &dyn Fn(&Figures) -> String) {
        let cells = self.columns.iter();
        let cells = cells.map(|figures| figures.map_or("-".into(), figure));
        self.table
            .add_row([name.to_owned()].into_iter().chain(cells));
    }

    /// A row of cells as they are, of a table of TCP and Zerolane alone.
    pub(crate) fn cells(&mut self, name: &str, tcp: &str, zerolane: &str) {
        self.table.add_row([name, tcp, zerolane]);
    }

    /// The table, its figures to the right.
    pub(crate) fn finish(mut self) -> Table {
        for column in self.table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self.table
    }
}

/// The report of `bench bulk`: one table, and the facts around it.
pub(crate) fn bulk(report: &Report) -> String {
    let (setup, compared) = (&report.setup, &report.comparison);
    let mut table = SideBySide::new(compared);
    table.row("goodput, Gb/s: median (min to max)", &|figures| {
        spread(figures.gbps)
    });
    table.row("CPU s/GB, sender", &|figures| {
        format!("{:.3}", figures.tx_cpu_s_per_gb)
    });
    table.row("CPU s/GB, receiver", &|figures| {
        format!("{:.3}", figures.rx_cpu_s_per_gb)
    });
    table.row("system calls per MiB, sender", &|figures| {
        format!("{:.1}", figures.tx_syscalls_per_mib)
    });
    table.row("system calls per MiB, receiver", &|figures| {
        format!("{:.1}", figures.rx_syscalls_per_mib)
    });
    let table = table.finish();
    let ratio = |of: &str, ratio: Option<f64>| {
        ratio.map(|ratio| format!("Zerolane / {of}: {ratio:.2} (median of pairs)"))
    };
    let facts = [
        ratio("TCP", compared.ratio_vs_tcp),
        ratio("TLS", compared.ratio_vs_tls),
        ratio("quinn", compared.ratio_vs_quinn),
        compared
            .cpu_ratio_vs_tcp
            .map(|ratio| format!("CPU, both ends: {ratio:.2} of TCP's")),
        compared
            .placed_fraction
            .map(|fraction| format!("placed directly: {:.3} %", fraction * 1e2)),
        compared
            .drops
            .map(|drops| format!("packets dropped: {drops}")),
        compared
            .tcp
            .as_ref()
            .or(compared.tls.as_ref())
            .map(|_| format!("TCP with {}", setup.tcp_congestion)),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    format!(
        "{table}\n{}\n{}, MTU {}, offloads {}, {} MiB buffers, {} runs of {:.1} GB; one core's \
         memcpy: {:.1} Gb/s; Zerolane {}; payload verified.",
        facts.join("; "),
        setup.path,
        setup.mtu.map_or("as it is".into(), |mtu| mtu.to_string()),
        setup.offloads,
        setup.buffer_bytes >> 20,
        setup.reps,
        setup.bytes_per_run as f64 / 1e9,
        setup.memcpy_gbps,
        setup.security.name(),
    )
}

fn spread(spread: Spread) -> String {
    format!(
        "{:.1} ({:.1} to {:.1})",
        spread.median, spread.min, spread.max
    )
}
