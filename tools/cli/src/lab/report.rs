//! Formats the report on the fate of all frames.

use comfy_table::{CellAlignment, Table, presets};
use netlab::lab::{LabStats, Lateness};
use netsim::link::LinkStats;

use crate::console;

/// A row for each interface of each host: the frames sent to it, and their fate.
pub(crate) fn of(stats: &LabStats, interfaces: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "towards",
        "frames",
        "delivered",
        "lost",
        "queue full",
        "too big",
        "down",
        "doubled",
        "overtaken",
        "marked",
    ]);
    let hosts = stats.towards.len() / interfaces.max(1);
    for (port, link) in stats.towards.iter().enumerate() {
        let (host, interface) = (port % hosts.max(1) + 1, port / hosts.max(1) + 1);
        let name = match interfaces {
            0 | 1 => format!("host {host}"),
            _ => format!("host {host}, interface {interface}"),
        };
        table.add_row(row(name, *link));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("{table}\n{}", added_jitter(stats.lateness));
    if let Some(faults) = faults(stats) {
        text.push('\n');
        text.push_str(&faults);
    }
    text
}

fn row(name: String, link: LinkStats) -> Vec<String> {
    let counts = [
        link.sent,
        link.delivered,
        link.lost,
        link.queue_dropped,
        link.too_big,
        link.down,
        link.duplicated,
        link.reordered,
        link.marked,
    ];
    std::iter::once(name)
        .chain(counts.iter().map(u64::to_string))
        .collect()
}

/// The jitter that the machine itself added, in words.
pub(crate) fn added_jitter(lateness: Lateness) -> String {
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    format!(
        "jitter added by this machine: median {:.0} us, 99 % below {:.0} us, at most {:.0} us",
        micros(lateness.median),
        micros(lateness.p99),
        micros(lateness.max)
    )
}

/// The number of frames dropped for reasons other than the link's; `None` if there are none.
pub(crate) fn faults(stats: &LabStats) -> Option<String> {
    let causes = [
        (stats.missed, "missed because this machine was too slow"),
        (stats.overflowed, "dropped for lack of memory"),
        (stats.unsent, "refused by the kernel"),
    ];
    let words: Vec<String> = causes
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{} {why}", console::counted(*count, "frame")))
        .collect();
    (!words.is_empty()).then(|| format!("NOT EMULATED FAITHFULLY: {}", words.join(", ")))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn stats(missed: u64) -> LabStats {
        let link = LinkStats {
            sent: 1234,
            lost: 7,
            ..LinkStats::default()
        };
        LabStats {
            towards: vec![link, LinkStats::default()],
            missed,
            overflowed: 0,
            unsent: 0,
            lateness: Lateness::default(),
        }
    }

    #[test]
    fn of__has_a_row_for_each_host() {
        let text = of(&stats(0), 1);
        assert!(text.contains("host 1") && text.contains("host 2"), "{text}");
        assert!(text.contains("1234"), "{text}");
        assert!(!text.contains("NOT EMULATED"), "{text}");
    }

    #[test]
    fn of__tells_what_a_link_that_was_down_dropped_from_what_was_too_big() {
        let mut stats = stats(0);
        stats.towards[0].too_big = 21;
        stats.towards[0].down = 43;
        let text = of(&stats, 1);
        let row = text.lines().find(|line| line.contains("host 1")).unwrap();
        let counts: Vec<&str> = row.split_whitespace().collect();
        let header = text.lines().find(|line| line.contains("towards")).unwrap();
        assert!(header.contains("too big   down"), "{header}");
        let at = counts.iter().position(|&it| it == "21");
        assert_eq!(at.map(|at| counts[at + 1]), Some("43"), "{row}");
    }

    #[test]
    fn of__does_not_hide_what_the_machine_dropped() {
        assert!(of(&stats(3), 1).contains("3 frames missed"));
    }
}
