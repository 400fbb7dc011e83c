//! A report for people.

use comfy_table::{CellAlignment, Table, presets};

use super::report::{Figures, Report, Spread};

/// The report of `bench bulk`: one table, and the facts around it.
pub(crate) fn bulk(report: &Report) -> String {
    let (setup, compared) = (&report.setup, &report.comparison);
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["", "TCP", "Zerolane"]);
    let mut row = |name: &str, figure: &dyn Fn(&Figures) -> String| {
        let cell = |figures: &Option<Figures>| figures.as_ref().map_or("-".into(), figure);
        table.add_row([
            name.to_owned(),
            cell(&compared.tcp),
            cell(&compared.zerolane),
        ]);
    };
    row("goodput, Gb/s: median (min to max)", &|figures| {
        spread(figures.gbps)
    });
    row("CPU s/GB, sender", &|figures| {
        format!("{:.3}", figures.tx_cpu_s_per_gb)
    });
    row("CPU s/GB, receiver", &|figures| {
        format!("{:.3}", figures.rx_cpu_s_per_gb)
    });
    row("system calls per MiB, sender", &|figures| {
        format!("{:.1}", figures.tx_syscalls_per_mib)
    });
    row("system calls per MiB, receiver", &|figures| {
        format!("{:.1}", figures.rx_syscalls_per_mib)
    });
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let facts = [
        compared
            .ratio_vs_tcp
            .map(|ratio| format!("Zerolane / TCP: {ratio:.2} (median of pairs)")),
        compared
            .cpu_ratio_vs_tcp
            .map(|ratio| format!("CPU, both ends: {ratio:.2} of TCP's")),
        compared
            .placed_fraction
            .map(|fraction| format!("placed directly: {:.3} %", fraction * 1e2)),
        compared
            .drops
            .map(|drops| format!("packets dropped: {drops}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    format!(
        "{table}\n{}\n{}, MTU {}, offloads {}, {} MiB buffers, {} runs of {:.1} GB; one core's \
         memcpy: {:.1} Gb/s; payload verified.",
        facts.join("; "),
        setup.path,
        setup.mtu.map_or("as it is".into(), |mtu| mtu.to_string()),
        setup.offloads,
        setup.buffer_bytes >> 20,
        setup.reps,
        setup.bytes_per_run as f64 / 1e9,
        setup.memcpy_gbps,
    )
}

fn spread(spread: Spread) -> String {
    format!(
        "{:.1} ({:.1} to {:.1})",
        spread.median, spread.min, spread.max
    )
}
