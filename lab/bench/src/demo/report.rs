//! Prints the result of the demo: a table, and one sentence computed from it. Pure.

use std::time::Duration;

use comfy_table::Table;

use crate::harness::runs::Run;
use crate::report::comparison::{COSTS, Comparison, Figures, gbps};
use crate::report::{self, cell};

/// A difference below this share is no difference on a machine that others use.
const SAME: f64 = 0.05;

/// One run, as it happens.
pub(crate) fn line(run: &Run) -> String {
    format!(
        "  {:9} {:.2} s, {:.1} Gb/s, digest correct",
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
    let mut table = report::table(["", "TCP", "Zerolane"], 1);
    let columns = [compared.tcp.as_ref(), compared.zerolane.as_ref()];
    let mut row = |name: &str, figure: &dyn Fn(&Figures) -> String| {
        let [tcp, zerolane] = columns.map(|it| cell(it, figure));
        table.add_row([name, &tcp, &zerolane]);
    };
    row("goodput, Gb/s", &|it| format!("{:.1}", it.gbps.median));
    for (name, digits, cost) in COSTS {
        row(name, &|it| format!("{:.digits$}", cost(it)));
    }
    let cipher = cell(compared.cipher.clone(), |cipher| cipher);
    table.add_row(["encrypted by", "-", &cipher]);
    let copied = cell(compared.moved_bytes_per_byte, |bytes| format!("{bytes:.4}"));
    // The loop hands its buffer from one system call to the next.
    let tcp_copied = compared.tcp.as_ref().map_or("-", |_| "0.0000");
    table.add_row(["bytes copied in user space per byte", tcp_copied, &copied]);
    let misplaced = cell(compared.misplaced, |packets| packets.to_string());
    table.add_row(["packets misplaced", "-", &misplaced]);
    let ratio = cell(compared.ratio_vs_tcp, |ratio| format!("{ratio:.2}"));
    table.add_row(["goodput against TCP", "1", &ratio]);
    table
}

/// What the figures mean, whichever contender won.
fn sentence(compared: &Comparison) -> String {
    let (Some(speed), Some(cpu), Some(placed), Some(cipher)) = (
        compared.ratio_vs_tcp,
        compared.cpu_ratio_vs_tcp,
        compared.placed_fraction,
        &compared.cipher,
    ) else {
        return "Only one of the two ran: nothing to compare.".into();
    };
    let placed = format!(
        "{:.1} % of the bytes reached their final place without a copy in user space",
        (placed * 1000.0).floor() / 10.0
    );
    let cpu = if (cpu - 1.0).abs() <= SAME {
        "as much CPU time".to_owned()
    } else {
        format!("{cpu:.2} times the CPU time")
    };
    let encrypted = format!("Zerolane, encrypted with {cipher},");
    if speed > 1.0 + SAME {
        format!(
            "{encrypted} copied the file {speed:.2} times as fast as plain TCP with {cpu}: {placed}."
        )
    } else if speed < 1.0 - SAME {
        format!(
            "Here TCP won: {encrypted} copied the file {speed:.2} times as fast as plain TCP with {cpu}, \
             although {placed}."
        )
    } else {
        format!("{encrypted} and plain TCP were equally fast here, Zerolane with {cpu}: {placed}.")
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
            cipher: Some("a-cipher".into()),
            ..Comparison::of(&[])
        }
    }

    #[test]
    fn sentence__win() {
        assert_eq!(
            sentence(&compared(1.724, 0.8, 0.9996)),
            "Zerolane, encrypted with a-cipher, copied the file 1.72 times as fast as plain TCP with \
             0.80 times the CPU time: 99.9 % of the bytes reached their final place without a copy in user space."
        );
    }

    #[test]
    fn sentence__loss_is_said() {
        let text = sentence(&compared(0.7, 1.3, 1.0));
        assert!(
            text.starts_with(
                "Here TCP won: Zerolane, encrypted with a-cipher, copied the file 0.70 times"
            ),
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
    fn sentence__says_what_was_encrypted_whoever_won() {
        for speed in [1.7, 1.0, 0.7] {
            let text = sentence(&compared(speed, 1.0, 1.0));
            assert!(
                text.contains("Zerolane, encrypted with a-cipher,"),
                "{text}"
            );
            assert!(text.contains("plain TCP"), "{text}");
        }
    }

    #[test]
    fn sentence__one_alone_compares_nothing() {
        assert!(sentence(&Comparison::of(&[])).contains("nothing to compare"));
    }
}
