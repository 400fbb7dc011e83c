//! Computes figures from measurements, for programs and for people. Pure, except for the printing.
//!
//! | module | figures of |
//! |---|---|
//! | `comparison` | contenders that move the same bytes |
//! | `stream` | contenders from sources to sinks |
//! | `fan` | many streams at once |
//! | `ladder` | one contender with fewer and fewer overheads |
//! | `speculation` | one contender by what its receiver predicts |
//! | `curve` | contenders by message size |
//! | `chain` | nodes of a chain, with and without copies |
//! | `costs`, `model` | unit costs, and predictions from them |
//! | `flows` | contenders that move as much as they can in a given time |
//! | `intervals` | flows by interval |
//! | `operations` | contenders that do single operations |
//! | `latency`, `pareto` | one-way times, and their parts |

pub(crate) mod chain;
pub(crate) mod comparison;
pub(crate) mod costs;
pub(crate) mod curve;
pub(crate) mod fan;
pub(crate) mod flows;
pub(crate) mod intervals;
pub(crate) mod ladder;
pub(crate) mod latency;
pub(crate) mod model;
pub(crate) mod operations;
pub(crate) mod pareto;
pub(crate) mod speculation;
pub(crate) mod stream;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;
use zerolane_cli::console;
use zerolane_cli::interrupt::Interrupt;

/// All that a benchmark has to say. As JSON it is what it is.
pub(crate) trait Report: Serialize {
    /// For people.
    fn text(&self) -> String;
}

/// Measures, unless the user asks to stop, and prints what came of it.
pub(crate) fn present<R: Report>(
    json: bool,
    measure: impl FnOnce(&Interrupt) -> Result<R>,
) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let report = interrupt.explain(measure(&interrupt))?;
    match json {
        true => console::say(serde_json::to_string_pretty(&report)?),
        false => console::say(report.text()),
    }
}

/// Smallest, middle and largest of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Spread { min, median, max })
    }

    /// In words.
    pub(crate) fn text(self, digits: usize) -> String {
        let Spread { min, median, max } = self;
        format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
    }
}

/// `None` of no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// The spread of each side's runs, and the median of each other side's ratios to `base`, run by run. `None`: a side, or
/// `base`, has no runs.
pub(crate) fn compared<S: Copy + Ord>(
    runs: &BTreeMap<S, Vec<f64>>,
    base: S,
) -> Option<(BTreeMap<S, Spread>, BTreeMap<S, f64>)> {
    let of_base = runs.get(&base)?;
    let spread = |(&side, runs): (&S, &Vec<f64>)| Some((side, Spread::of(runs.iter().copied())?));
    let ratio = |(&side, runs): (&S, &Vec<f64>)| {
        let pairs = runs.iter().zip(of_base).map(|(ours, theirs)| ours / theirs);
        Some((side, median(pairs)?))
    };
    let others = runs.iter().filter(|(side, _)| **side != base);
    let spreads = runs.iter().map(spread).collect::<Option<_>>()?;
    Some((spreads, others.filter_map(ratio).collect()))
}

/// A table whose first columns are words and whose others are figures.
pub(crate) fn table<H: Into<String>>(header: impl IntoIterator<Item = H>, words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header.into_iter().map(Into::<String>::into));
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What there is in words, "-" for what there is not.
pub(crate) fn cell<T>(value: Option<T>, words: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), words)
}

/// A fraction as a percentage.
pub(crate) fn percent(fraction: Option<f64>, digits: usize) -> String {
    cell(fraction, |it| format!("{:.digits$} %", it * 100.0))
}

/// The MTU of a path, which is not always known.
pub(crate) fn mtu(mtu: Option<u32>) -> String {
    mtu.map_or_else(|| "as it is".into(), |mtu| mtu.to_string())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Spread__median_of_odd_even_and_none() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }
}
