//! Computes what speculation and the second copy bring, alone and together, and what wrong speculation and packets in
//! between cost.

use serde::Serialize;

use super::stream::{Figures, in_words};
use super::{Report, cell, median, table};
use crate::harness::machine::Machine;
use crate::harness::runs::Run;
use crate::job::source_sink::Speculation;

/// The method, as text; part of every report.
const METHOD: &str = "From memory to memory over veth; sender and receiver are pinned to one core each; Zerolane plain, \
     extended profile. The settings take turns (A B .. B A). Forecast none: the receiver predicts nothing, and copies all \
     payload from the lane's memory into its place. Wrong: the sender swaps neighbours, so that each datagram is predicted \
     in the place of another. Second copy: the receiver copies all payload once more, to other memory. Packets in between: \
     datagrams of 64 bytes of the same connection, sent evenly among Transfers of 64 KiB; packets of other connections go \
     to other sockets. Copies are those in user space, counted; the kernel's own is one more. Goodput: payload bytes \
     divided by the receiver's time from the start signal to the last byte. Every word of the last lap is checked.";

/// Bytes of a page, by which the paper counts.
const PAGE: u64 = 4096;
/// Pages for which the number of packets in between is given.
const PAGES: u64 = 100_000;

/// What carries the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Payload {
    /// The kernel's TCP.
    Tcp,
    /// Datagrams, each with a header.
    Headers,
    /// Trains.
    Trains,
}

/// Packets in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Between {
    /// For so many pages.
    per_100_000: u64,
    /// Of a run.
    pub(crate) packets: u64,
}

impl Between {
    /// Of a run of so many bytes.
    pub(crate) fn of(per_100_000: u64, bytes: u64) -> Between {
        let packets = u128::from(per_100_000) * u128::from(bytes / PAGE) / u128::from(PAGES);
        Between {
            per_100_000,
            packets: u64::try_from(packets).unwrap_or(u64::MAX),
        }
    }
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) payload: Payload,
    /// `None` of TCP.
    pub(crate) forecast: Option<Speculation>,
    pub(crate) second_copy: bool,
    /// `None`: the setting is not about them.
    pub(crate) between: Option<Between>,
}

impl Cell {
    /// In words.
    pub(crate) fn name(&self) -> String {
        let payload = match self.payload {
            Payload::Tcp => "TCP",
            Payload::Headers => "headers",
            Payload::Trains => "trains",
        };
        let forecast = self.forecast.map(|it| format!(", forecast {}", it.name()));
        let copy = if self.second_copy {
            ", second copy"
        } else {
            ""
        };
        let between = self
            .between
            .map(|it| format!(", {} in between of {PAGES}", it.per_100_000));
        let (forecast, between) = (forecast.unwrap_or_default(), between.unwrap_or_default());
        format!("{payload}{forecast}{copy}{between}")
    }
}

/// A setting, and what was measured of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    cell: Cell,
    figures: Option<Figures>,
    /// Copies in user space of each byte of payload, the second included; `None` of no runs.
    copies_per_byte: Option<f64>,
    /// Datagrams that were not in their place at once, for each 100,000 pages.
    failed_per_100_000: Option<f64>,
    /// Packets in between that came, of a run.
    came_between: Option<f64>,
}

impl Row {
    fn of(cell: Cell, runs: &[Run]) -> Row {
        let bytes = |run: &Run| run.rx.bytes.max(1) as f64;
        let second = f64::from(u8::from(cell.second_copy));
        let moved = runs
            .iter()
            .map(|run| run.rx.moved_bytes as f64 / bytes(run));
        let failed = runs
            .iter()
            .map(|run| run.rx.misplaced as f64 / (bytes(run) / PAGE as f64) * PAGES as f64);
        let zerolane = cell.payload != Payload::Tcp;
        Row {
            cell,
            figures: Figures::of(runs),
            copies_per_byte: median(moved).map(|it| it + second),
            failed_per_100_000: median(failed).filter(|_| zerolane),
            came_between: median(runs.iter().map(|run| run.rx.between as f64))
                .filter(|_| cell.between.is_some()),
        }
    }

    fn gbps(&self) -> Option<f64> {
        Some(self.figures.as_ref()?.gbps.median)
    }
}

/// The gains over neither (no forecast, a second copy), as ratios of goodput: the paper has 45/42 for each alone, 65/42 and
/// 75/42 for both, and 35/42 for a forecast that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Gains {
    forecast_alone: f64,
    no_second_copy_alone: f64,
    both: f64,
    /// A wrong forecast over none, both with a second copy.
    wrong: f64,
}

impl Gains {
    fn of(rows: &[Row]) -> Option<Gains> {
        let at = |forecast, second_copy| {
            let mut rows = rows.iter();
            let row = rows.find(|it| {
                let cell = &it.cell;
                cell.payload == Payload::Headers
                    && cell.between.is_none()
                    && (cell.forecast, cell.second_copy) == (Some(forecast), second_copy)
            })?;
            row.gbps().filter(|it| *it > 0.0)
        };
        let neither = at(Speculation::None, true)?;
        Some(Gains {
            forecast_alone: at(Speculation::Right, true)? / neither,
            no_second_copy_alone: at(Speculation::None, false)? / neither,
            both: at(Speculation::Right, false)? / neither,
            wrong: at(Speculation::Wrong, true)? / neither,
        })
    }
}

/// Where and how it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setup {
    pub(crate) machine: Machine,
    /// The path between the ends, in words.
    pub(crate) path: String,
    pub(crate) reps: u32,
    /// Bytes of a Transfer.
    pub(crate) size: usize,
    /// Bytes of a run.
    pub(crate) bytes: u64,
}

/// Everything `bench speculation` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SpeculationReport {
    method: &'static str,
    #[serde(flatten)]
    setup: Setup,
    rows: Vec<Row>,
    /// `None` where not all settings were asked for.
    gains: Option<Gains>,
}

impl SpeculationReport {
    pub(crate) fn new(
        setup: Setup,
        cells: impl IntoIterator<Item = (Cell, Vec<Run>)>,
    ) -> SpeculationReport {
        let rows: Vec<_> = cells
            .into_iter()
            .map(|(cell, runs)| Row::of(cell, &runs))
            .collect();
        SpeculationReport {
            method: METHOD,
            setup,
            gains: Gains::of(&rows),
            rows,
        }
    }
}

impl Report for SpeculationReport {
    /// A row for each setting.
    fn text(&self) -> String {
        let header = [
            "",
            "goodput, Gb/s\nmedian (min to max)",
            "CPU s/GB\nreceiver",
            "copies\nper byte",
            "failed of\n100,000 pages",
            "came\nbetween",
        ];
        let mut table = table(header, 1);
        for row in &self.rows {
            let figures = row.figures.as_ref();
            table.add_row([
                row.cell.name(),
                cell(figures, |it| it.gbps.text(1)),
                cell(figures, |it| format!("{:.3}", it.receiver_cpu_s_per_gb())),
                cell(row.copies_per_byte, |it| format!("{it:.2}")),
                cell(row.failed_per_100_000, |it| format!("{it:.0}")),
                cell(row.came_between, |it| format!("{it:.0}")),
            ]);
        }
        let gains = self.gains.map_or_else(String::new, |it| {
            format!(
                "\nover neither: forecast alone {:.2}, no second copy alone {:.2}, both {:.2}; wrong over none {:.2}",
                it.forecast_alone, it.no_second_copy_alone, it.both, it.wrong
            )
        });
        format!(
            "{table}{gains}\n{}, {}, Transfers of {}, medians of {} runs; payload verified.",
            self.setup.machine.cpu,
            self.setup.path,
            in_words(self.setup.size),
            self.setup.reps
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::name::Name;
    use crate::measured::Measured;

    fn row(forecast: Speculation, second_copy: bool, gbps: f64, moved: u64) -> Row {
        let tx = Measured::stream(1_000_000_000, 8.0 / gbps);
        let rx = Measured {
            moved_bytes: moved,
            misplaced: moved.div_ceil(1432),
            ..tx.clone()
        };
        let run = Run {
            contender: Name::Extended,
            tx,
            rx,
        };
        let cell = Cell {
            payload: Payload::Headers,
            forecast: Some(forecast),
            second_copy,
            between: None,
        };
        Row::of(cell, &[run])
    }

    #[test]
    fn Gains__are_the_papers_of_its_figures() {
        let rows = [
            row(Speculation::None, true, 42.0, 1_000_000_000),
            row(Speculation::Right, true, 45.0, 0),
            row(Speculation::None, false, 45.0, 1_000_000_000),
            row(Speculation::Right, false, 75.0, 0),
            row(Speculation::Wrong, true, 35.0, 1_000_000_000),
        ];
        let gains = Gains::of(&rows).unwrap();
        let near = |it: f64, expected: f64| (it - expected).abs() < 1e-9;
        assert!(near(gains.forecast_alone, 45.0 / 42.0));
        assert!(near(gains.no_second_copy_alone, 45.0 / 42.0));
        assert!(near(gains.both, 75.0 / 42.0));
        assert!(near(gains.wrong, 35.0 / 42.0));
        assert_eq!(Gains::of(&rows[1..]), None);
        // One copy of the lane's, and the second.
        let copies = rows.map(|it| it.copies_per_byte.unwrap());
        assert_eq!(copies, [2.0, 1.0, 1.0, 0.0, 2.0]);
    }

    #[test]
    fn Row__counts_what_failed_by_pages() {
        // A page in 244,140 has 2.86 datagrams of 1432 bytes.
        let all = row(Speculation::Wrong, false, 8.0, 1_000_000_000);
        let failed = all.failed_per_100_000.unwrap();
        assert!((failed - 286_033.0).abs() < 1.0, "{failed}");
    }

    #[test]
    fn Between__of_the_bytes_of_a_run() {
        assert_eq!(Between::of(10_000, 409_600_000).packets, 10_000);
        assert_eq!(Between::of(100, 40_960_000).packets, 10);
        assert_eq!(Between::of(0, u64::MAX).packets, 0);
    }
}
