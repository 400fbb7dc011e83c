//! Computes the figures of one contender with fewer and fewer overheads.

use serde::Serialize;

use super::stream::{Figures, in_words};
use super::{Report, cell, table};
use crate::harness::machine::Machine;
use crate::harness::runs::Run;

/// The method, as text; part of every report.
const METHOD: &str = "Zerolane, extended profile, from memory to memory between two network namespaces joined by \
     veth; sender and receiver are pinned to one core each. The rungs take turns (A B .. B A). Goodput: payload bytes \
     divided by the receiver's time from the start signal to the last byte; medians of the runs. The copy is an extra \
     one in user space; the checksum covers the payload in addition to UDP's. Every word of the last lap is checked \
     after each run. Unlike the paper's hardware, veth never checks UDP's own checksum, gathers no buffers, and has \
     no faster chip as a replacement.";

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rung {
    Bottom,
    LargeMtu,
    Gso,
    Gro,
    NoCopyWithChecksum,
    NoChecksum,
    NoCopy,
    Trains,
    SmallMtuAgain,
    Encrypted,
}

impl Rung {
    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rung::Bottom => "MTU 1500, one call and one header per datagram, checksum, copy",
            Rung::LargeMtu => "MTU 9000",
            Rung::Gso => "one call for many datagrams (GSO)",
            Rung::Gro => "many datagrams received as one (GRO)",
            Rung::NoCopyWithChecksum => "  (without the copy, with the checksum)",
            Rung::NoChecksum => "without the checksum",
            Rung::NoCopy => "without the copy",
            Rung::Trains => "trains in place of headers",
            Rung::SmallMtuAgain => "the same at MTU 1500",
            Rung::Encrypted => "encrypted, as by default",
        }
    }
}

/// One rung at one size of messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    rung: Rung,
    /// Bytes.
    size: usize,
    figures: Option<Figures>,
}

impl Point {
    pub(crate) fn new(rung: Rung, size: usize, runs: &[Run]) -> Point {
        Point {
            rung,
            size,
            figures: Figures::of(runs),
        }
    }

    fn gbps(&self) -> Option<f64> {
        Some(self.figures.as_ref()?.gbps.median)
    }
}

/// What it brings to leave out checksum and copy, Gb/s over the rung with both: the paper found more for both together than
/// for each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interaction {
    /// Bytes of the messages.
    size: usize,
    checksum_gbps: f64,
    copy_gbps: f64,
    both_gbps: f64,
    /// Of both together over the sum of each.
    ratio: Option<f64>,
}

impl Interaction {
    fn of(points: &[Point], size: usize) -> Option<Interaction> {
        let at = |rung| {
            let mut all = points.iter();
            all.find(|it| it.rung == rung && it.size == size)?.gbps()
        };
        let from = at(Rung::Gro)?;
        let gain = |rung| Some(at(rung)? - from);
        let (checksum_gbps, copy_gbps) = (gain(Rung::NoChecksum)?, gain(Rung::NoCopyWithChecksum)?);
        let (both_gbps, sum) = (gain(Rung::NoCopy)?, checksum_gbps + copy_gbps);
        Some(Interaction {
            size,
            checksum_gbps,
            copy_gbps,
            both_gbps,
            // Of gains: where noise is all there is, there is none.
            ratio: (checksum_gbps > 0.0 && copy_gbps > 0.0).then(|| both_gbps / sum),
        })
    }
}

/// Everything `bench ladder` says; `--json` prints it as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LadderReport {
    method: &'static str,
    machine: Machine,
    reps: u32,
    points: Vec<Point>,
    interactions: Vec<Interaction>,
}

impl LadderReport {
    pub(crate) fn new(machine: Machine, reps: u32, points: Vec<Point>) -> LadderReport {
        let sizes = sizes(&points).into_iter();
        LadderReport {
            method: METHOD,
            machine,
            reps,
            interactions: sizes
                .filter_map(|it| Interaction::of(&points, it))
                .collect(),
            points,
        }
    }
}

/// Those that were measured, in order.
fn sizes(points: &[Point]) -> Vec<usize> {
    let mut sizes: Vec<usize> = points.iter().map(|it| it.size).collect();
    sizes.dedup();
    sizes
}

impl Report for LadderReport {
    /// A row for each rung, a column for each size.
    fn text(&self) -> String {
        let sizes = sizes(&self.points);
        let header = sizes.iter().map(|&it| in_words(it));
        let mut table = table([String::from("goodput, Gb/s")].into_iter().chain(header), 1);
        let rungs = self
            .points
            .iter()
            .filter(|it| Some(&it.size) == sizes.first());
        for rung in rungs.map(|it| it.rung) {
            let row = self.points.iter().filter(|it| it.rung == rung);
            let row = row.map(|it| cell(it.gbps(), |it| format!("{it:.1}")));
            table.add_row([rung.name().to_owned()].into_iter().chain(row));
        }
        let interactions = self.interactions.iter().map(|it| {
            let ratio = cell(it.ratio, |ratio| format!("{ratio:.2}"));
            format!(
                "\n{}: without the checksum {:+.1}, without the copy {:+.1}, without both {:+.1} Gb/s, {ratio} of the sum",
                in_words(it.size),
                it.checksum_gbps,
                it.copy_gbps,
                it.both_gbps
            )
        });
        let interactions: String = interactions.collect();
        format!(
            "{table}{interactions}\nmedians of {} runs; payload verified.",
            self.reps
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::name::Name;
    use crate::measured::Measured;

    fn point(rung: Rung, gbps: f64) -> Point {
        let end = Measured::stream(1_000_000_000, 8.0 / gbps);
        let run = Run {
            contender: Name::Extended,
            tx: end.clone(),
            rx: end,
        };
        Point::new(rung, 4096, &[run])
    }

    #[test]
    fn Interaction__of_two_gains_and_both() {
        let points = [
            point(Rung::Gro, 8.0),
            point(Rung::NoChecksum, 10.0),
            point(Rung::NoCopyWithChecksum, 9.0),
            point(Rung::NoCopy, 14.0),
        ];
        let it = Interaction::of(&points, 4096).unwrap();
        let gains = [it.checksum_gbps, it.copy_gbps, it.both_gbps];
        let near = |(it, expected): (f64, f64)| (it - expected).abs() < 1e-9;
        assert!(gains.into_iter().zip([2.0, 1.0, 6.0]).all(near), "{it:?}");
        assert!(near((it.ratio.unwrap(), 2.0)));
        assert_eq!(Interaction::of(&points, 8192), None);
        // Where one of them gains nothing, there is nothing to compare.
        let slower = [points[0].clone(), point(Rung::NoChecksum, 7.0)];
        let points = [&slower[..], &points[2..]].concat();
        assert_eq!(Interaction::of(&points, 4096).unwrap().ratio, None);
    }
}
