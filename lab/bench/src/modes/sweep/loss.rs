//! Runs `bench loss`: the cost of lost, reordered and burst-wise lost packets.

use std::time::Duration;

use anyhow::Result;
use netsim::link::{LinkConfig, Loss, Reorder};

use zerolane_cli::lab::link::bottleneck;
use zerolane_cli::units::{self, Queue};

use super::{CellPlan, RepsArg, Sweep, thesis};
use crate::modes::arguments::LinkArgs;
use crate::report;

/// Arguments of `zerolane bench loss`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure at these losses only [default: 0%, 0.0001% to 0.1% as in the thesis, 1%, 5%, bursts, reordering]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = units::percent)]
    at: Vec<f64>,
    /// Round trip
    #[arg(long, default_value = "1ms", value_name = "TIME", value_parser = units::duration)]
    rtt: Duration,
    /// Queue of the bottleneck: packets, bytes, or bdp
    #[arg(long, default_value = "1000", value_name = "LIMIT")]
    queue: Queue,
    /// Lose acknowledgements too; the thesis lost only data packets
    #[arg(long)]
    both_ways: bool,
    #[command(flatten)]
    reps: RepsArg,
    #[command(flatten)]
    common: LinkArgs,
}

const LOSSES: [f64; 8] = [0.0, 1e-6, 5e-6, 1e-5, 1e-4, 1e-3, 1e-2, 5e-2];
const QUICK_LOSSES: [f64; 2] = [0.0, 1e-2];

const METHOD: &str = "One flow for a fixed time over an emulated link. Packets are lost or delayed only in the \
     direction of the data, as in the thesis, unless --both-ways is given. Goodput: payload bytes in place, divided \
     by the receiver's time from the start signal. Every word of every complete piece is checked.";

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let sweep = Sweep {
        bench: "loss",
        cells: cells(args),
        reps: args.reps.get(args.common.quick),
        thesis: thesis::LOSS,
        method: METHOD,
    };
    let common = &args.common;
    report::present(common.json, |interrupt| sweep.run(common, interrupt))
}

fn cells(args: &Args) -> Vec<CellPlan> {
    let good = bottleneck(args.common.rate, args.rtt, args.queue);
    let cell = |name: String, bad: LinkConfig| CellPlan {
        thesis_row: thesis::LOSS.row(&name).map(|row| row.link),
        name,
        there: bad,
        back: if args.both_ways { bad } else { good },
    };
    let random = |loss: f64| {
        let percent = format!("{:.4}", loss * 100.0);
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        let loss = Loss::Random(loss);
        cell(format!("loss {percent} %"), LinkConfig { loss, ..good })
    };
    if !args.at.is_empty() {
        return args.at.iter().copied().map(random).collect();
    }
    if args.common.quick {
        return QUICK_LOSSES.map(random).to_vec();
    }
    let mut cells = LOSSES.map(random).to_vec();
    cells.push(cell(
        "loss 1 %, bursts of 10".into(),
        LinkConfig {
            loss: Loss::bursts(0.01, 10.0),
            ..good
        },
    ));
    cells.push(cell(
        "5 % delayed by 1 ms".into(),
        LinkConfig {
            reorder: Reorder {
                probability: 0.05,
                by: Duration::from_millis(1),
            },
            ..good
        },
    ));
    cells
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn cells_of(words: &[&str]) -> Vec<CellPlan> {
        cells(&Line::parse_from(words).args)
    }

    #[test]
    fn cells__every_row_of_the_thesis_has_one() {
        let rows: Vec<_> = cells_of(&["loss"])
            .iter()
            .filter_map(|cell| cell.thesis_row)
            .collect();
        let all: Vec<_> = thesis::LOSS.rows.iter().map(|row| row.link).collect();
        assert_eq!(rows, all);
    }

    #[test]
    fn cells__the_way_back_is_good_unless_asked() {
        let one = &cells_of(&["loss", "--at", "5%"])[0];
        assert_eq!(one.there.loss, Loss::Random(0.05));
        assert_eq!(one.back.loss, Loss::None);
        let both = &cells_of(&["loss", "--at", "5%", "--both-ways"])[0];
        assert_eq!(both.back.loss, Loss::Random(0.05));
    }
}
