//! Runs every contender over one emulated link after the other.
//!
//! | module | what it holds |
//! |---|---|
//! | `loss`, `rtt` | which links |
//! | `report` | what came of them |
//! | `thesis` | what the thesis measured over such links |

pub(crate) mod loss;
mod report;
pub(crate) mod rtt;
mod thesis;

use std::time::Duration;

use anyhow::Result;
use netsim::link::LinkConfig;
use zerolane_cli::console;
use zerolane_cli::interrupt::Interrupt;

use self::report::{Cell, SweepReport};
use self::thesis::Thesis;
use super::arguments::LinkArgs;
use crate::harness::network::{Group, Network};
use crate::harness::runs::order;
use crate::job::Flows;
use crate::job::name::Name;
use crate::limits::REPS_MAX;
use crate::report::flows::{Attempt, FlowFigures, LeftOut};

/// The links of a benchmark, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    pub(crate) bench: &'static str,
    pub(crate) cells: Vec<CellPlan>,
    pub(crate) reps: u32,
    pub(crate) thesis: Thesis,
    /// The comparison, as text.
    pub(crate) method: &'static str,
}

/// A link to measure over.
#[derive(Clone, Debug)]
pub(crate) struct CellPlan {
    pub(crate) name: String,
    /// Row of the thesis's table, if it has one for this link.
    pub(crate) thesis_row: Option<&'static str>,
    pub(crate) there: LinkConfig,
    pub(crate) back: LinkConfig,
}

/// Reps of a sweep unless said; the argument of its benchmarks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RepsArg {
    /// Runs of each contender over each link [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPS_MAX)))]
    reps: Option<u32>,
}

impl RepsArg {
    pub(crate) fn get(&self, quick: bool) -> u32 {
        self.reps.unwrap_or(if quick { 1 } else { 3 })
    }
}

impl Sweep {
    /// Measures all cells.
    pub(crate) fn run(self, args: &LinkArgs, interrupt: &Interrupt) -> Result<SweepReport> {
        let flows = args.flows(Duration::from_secs(10))?;
        let network = args.network(1, args.interface_rate, interrupt)?;
        let (contenders, left_out) = network.able(&args.contenders(), flows)?;
        let mut cells: Vec<Cell> = Vec::new();
        for plan in &self.cells {
            network.set_links(plan.there, plan.back);
            let runs = self.runs(plan, &network, &contenders, flows, interrupt)?;
            let first = cells.first();
            let results = contenders.iter().map(|&contender| {
                let base = first.and_then(|cell| cell.goodput_of(contender));
                FlowFigures::of(contender, &runs, args.rate, base)
            });
            cells.push(Cell {
                link: plan.name.clone(),
                thesis_row: plan.thesis_row,
                rtt_ms: 2e3 * plan.there.delay.as_secs_f64(),
                results: results.collect(),
            });
        }
        Ok(SweepReport {
            bench: self.bench,
            method: self.method,
            rate_bits_per_s: args.rate,
            mtu: args.mtu,
            seconds_per_run: flows.time().as_secs_f64(),
            reps: self.reps,
            seed: args.seed,
            security: args.security,
            verified: true,
            left_out: LeftOut::all(left_out),
            cells,
            thesis: self.thesis,
        })
    }

    /// All runs over one link, the contenders by turns.
    fn runs(
        &self,
        plan: &CellPlan,
        network: &Network,
        contenders: &[Name],
        flows: Flows,
        interrupt: &Interrupt,
    ) -> Result<Vec<Attempt>> {
        let mut runs = Vec::new();
        for rep in 0..self.reps {
            for contender in order(contenders, rep) {
                let group = Group {
                    contender,
                    senders: vec![1],
                };
                let outcome = network.run(&[group], flows);
                interrupt.check()?;
                network.check()?;
                let run = Attempt::of(contender, outcome)?;
                console::note(format_args!("{}, {run}", plan.name));
                runs.push(run);
            }
        }
        Ok(runs)
    }
}
