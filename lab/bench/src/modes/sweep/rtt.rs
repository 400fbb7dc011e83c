//! Runs `bench rtt`: the cost of distance.

use std::time::Duration;

use anyhow::Result;
use netsim::link::{LinkConfig, Loss};

use zerolane_cli::lab::link::bottleneck;
use zerolane_cli::units::{self, Queue};

use super::{CellPlan, RepsArg, Sweep, thesis};
use crate::modes::arguments::LinkArgs;
use crate::report;

/// Arguments of `zerolane bench rtt`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure at these round trips only [default: 0 to 100ms as in the thesis, and 50ms with 0.1 % loss]
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = units::duration)]
    at: Vec<Duration>,
    /// With --at: loss of packets in the direction of the data
    #[arg(long, value_name = "PERCENT", value_parser = units::percent, requires = "at")]
    loss: Option<f64>,
    /// Queue of the bottleneck: packets, bytes, or bdp
    #[arg(long, default_value = "bdp", value_name = "LIMIT")]
    queue: Queue,
    #[command(flatten)]
    reps: RepsArg,
    #[command(flatten)]
    common: LinkArgs,
}

const MICROS: [u64; 10] = [
    0, 250, 500, 1000, 2500, 5000, 10_000, 20_000, 50_000, 100_000,
];
const QUICK_MICROS: [u64; 2] = [1000, 10_000];

const METHOD: &str = "One flow for a fixed time over an emulated link, with half of the round trip each way. The \
     queue of the bottleneck holds one bandwidth-delay product unless --queue is given. Goodput: payload bytes in \
     place, divided by the receiver's time from the start signal, slow start included. Every word of every complete \
     piece is checked.";

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let sweep = Sweep {
        bench: "rtt",
        cells: cells(args),
        reps: args.reps.get(args.common.quick),
        thesis: thesis::LATENCY,
        method: METHOD,
    };
    let common = &args.common;
    report::present(common.json, |interrupt| sweep.run(common, interrupt))
}

fn cells(args: &Args) -> Vec<CellPlan> {
    let cell = |rtt: Duration, loss: f64| {
        let good = bottleneck(args.common.rate, rtt, args.queue);
        let mut name = format!("RTT {} ms", rtt.as_secs_f64() * 1e3);
        if loss > 0.0 {
            name.push_str(&format!(", loss {} %", loss * 100.0));
        }
        CellPlan {
            thesis_row: thesis::LATENCY.row(&name).map(|row| row.link),
            name,
            there: LinkConfig {
                loss: Loss::Random(loss),
                ..good
            },
            back: good,
        }
    };
    if !args.at.is_empty() {
        let loss = args.loss.unwrap_or_default();
        return args.at.iter().map(|&rtt| cell(rtt, loss)).collect();
    }
    let lossless = |micros: u64| cell(Duration::from_micros(micros), 0.0);
    if args.common.quick {
        return QUICK_MICROS.map(lossless).to_vec();
    }
    let mut cells = MICROS.map(lossless).to_vec();
    cells.push(cell(Duration::from_millis(50), 1e-3));
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

    #[test]
    fn cells__every_row_of_the_thesis_has_one() {
        let cells = cells(&Line::parse_from(["rtt"]).args);
        let rows: Vec<_> = cells.iter().filter_map(|cell| cell.thesis_row).collect();
        let all: Vec<_> = thesis::LATENCY.rows.iter().map(|row| row.link).collect();
        assert_eq!(rows, all);
        assert_eq!(cells[10].name, "RTT 50 ms, loss 0.1 %");
        // 1 Gb/s for 50 ms.
        assert_eq!(cells[10].there.queue_bytes, Some(6_250_000));
    }
}
