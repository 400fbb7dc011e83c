//! What the demo says: a table, and one sentence computed from it. Pure.

use std::time::Duration;

use comfy_table::Table;

use crate::harness::runs::Run;
use crate::report::cell;
use crate::report::comparison::{Comparison, SideBySide, gbps};

/// A difference below this share is no difference on a machine that others use.
const SAME: f64 = 0.05;

/// One run, as it happens.
pub(crate) fn line(run: &Run) -> String {
    format!(
        "  {:9} {:.2} s, {:.1} Gb/s, digest right",
        format!("{}:", run.contender.title()),
        run.rx.seconds,
        gbps(run)
    )
}

/// The whole result; TCP ran with the `congestion` control.
pub(crate) fn of(runs: &[Run], congestion: &str, took: Duration) -> String {
    let compared = Comparison::of(runs);
    let tcp = compared.tcp.as_ref();
    let tcp = tcp.map(|_| format!(" TCP's congestion control was {congestion}."));
    format!(
        "{}\n{}{}\nAll done in {} s.",
        table(&compared),
        sentence(&compared),
        tcp.unwrap_or_default(),
        took.as_secs()
    )
}

fn table(compared: &Comparison) -> Table {
    let mut table = SideBySide::new(compared);
    table.row("goodput, Gb/s", &|figures| {
        format!("{:.1}", figures.gbps.median)
    });
    table.costs();
    let copied = cell(compared.moved_bytes_per_byte, |bytes| format!("{bytes:.4}"));
    // The loop hands its buffer from one system call to the next.
    let tcp_copied = compared.tcp.as_ref().map_or("-", |_| "0.0000");
    table.cells("bytes copied in user space, a byte", tcp_copied, &copied);
    let misplaced = cell(compared.misplaced, |packets| packets.to_string());
    table.cells("packets misplaced", "-", &misplaced);
    let ratio = cell(compared.ratio_vs_tcp, |ratio| format!("{ratio:.2}"));
    table.cells("goodput against TCP", "1", &ratio);
    table.finish()
}

/// What the figures mean, whoever won.
fn sentence(compared: &Comparison) -> String {
    let (Some(speed), Some(cpu), Some(placed)) = (
        compared.ratio_vs_tcp,
        compared.cpu_ratio_vs_tcp,
        compared.placed_fraction,
    ) else {
        return "Only one of the two was run: nothing to compare.".into();
    };
    let placed = format!(
        "{:.1} % of the bytes were put into their final place by the kernel's own copy",
        (placed * 1000.0).floor() / 10.0
    );
    let cpu = if (cpu - 1.0).abs() <= SAME {
        "as much CPU time".to_owned()
    } else {
        format!("{cpu:.2} times the CPU time")
    };
    if speed > 1.0 + SAME {
        format!("Zerolane copied the file {speed:.2} times as fast as TCP with {cpu}: {placed}.")
    } else if speed < 1.0 - SAME {
        format!(
            "Here TCP won: Zerolane copied the file {speed:.2} times as fast as TCP with {cpu}, \
             although {placed}."
        )
    } else {
        format!("Zerolane and TCP were equally fast here, Zerolane with {cpu}: {placed}.")
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn compared(speed: f64, cpu: f64, placed: f64) -> Comparison {
        Comparison {
            ratio_vs_tcp: Some(speed),
            cpu_ratio_vs_tcp: Some(cpu),
            placed_fraction: Some(placed),
            ..Comparison::of(&[])
        }
    }

    #[test]
    fn sentence__win() {
        assert_eq!(
            sentence(&compared(1.724, 0.8, 0.9996)),
            "Zerolane copied the file 1.72 times as fast as TCP with 0.80 times the CPU time: \
             99.9 % of the bytes were put into their final place by the kernel's own copy."
        );
    }

    #[test]
    fn sentence__loss_is_said() {
        let text = sentence(&compared(0.7, 1.3, 1.0));
        assert!(
            text.starts_with("Here TCP won: Zerolane copied the file 0.70 times"),
            "{text}"
        );
        assert!(text.contains("1.30 times the CPU time"), "{text}");
    }

    #[test]
    fn sentence__noise_is_no_win() {
        let text = sentence(&compared(1.04, 0.97, 1.0));
        assert!(text.contains("equally fast"), "{text}");
        assert!(text.contains("as much CPU time"), "{text}");
    }

    #[test]
    fn sentence__one_alone_compares_nothing() {
        assert!(sentence(&Comparison::of(&[])).contains("nothing to compare"));
    }
}
