//! Every contender over one link after the other: what `bench loss` and
//! `bench rtt` have in common.

use std::time::Duration;

use anyhow::{Context, Result};
use bytesize::ByteSize;
use netsim::link::LinkConfig;
use serde::Serialize;

use super::figures::{FlowFigures, Run};
use super::flow::contender::Contender;
use super::flow::stage::{Group, Stage, Terms};
use super::limits::{FLOW_MAX, REPS_MAX};
use super::orchestrate::order;
use super::protocol::Protection;
use super::thesis::Thesis;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lab::units;

/// What the benchmarks over emulated links have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LinkBenchArgs {
    /// How long each run lasts [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) time: Option<Duration>,
    /// Rate of the bottleneck
    #[arg(long, default_value = "1gbit", value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate: u64,
    /// MTU of the hosts' interfaces
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65521))]
    pub(crate) mtu: u32,
    /// Rate of each host's own interface [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub(crate) interface_rate: Option<u64>,
    /// Memory at each end of each flow
    #[arg(long, default_value = "32MiB", value_name = "SIZE")]
    pub(crate) buffer: ByteSize,
    /// Measure only these
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    pub(crate) only: Vec<Contender>,
    /// Decides which packets are lost
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Protection of Zerolane's connections
    #[arg(long, default_value = "plain", value_name = "MODE")]
    pub(crate) security: Protection,
    /// Short and few: to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

impl LinkBenchArgs {
    pub(crate) fn contenders(&self) -> Vec<Contender> {
        if self.only.is_empty() {
            Contender::ALL.to_vec()
        } else {
            self.only.clone()
        }
    }

    /// For how long each run flows, `usual` unless said.
    pub(crate) fn terms(&self, usual: Duration) -> Result<Terms> {
        const QUICK: Duration = Duration::from_secs(1);
        let usual = if self.quick { QUICK } else { usual };
        let time = self.time.unwrap_or(usual);
        anyhow::ensure!(
            (Duration::from_millis(100)..=FLOW_MAX).contains(&time),
            anyhow::anyhow!("--time is 100ms to {} s", FLOW_MAX.as_secs()).context(Exit::Usage)
        );
        let sample = if time > Duration::from_secs(5) {
            1000
        } else {
            100
        };
        Ok(Terms {
            time,
            sample: Duration::from_millis(sample),
            buffer: usize::try_from(self.buffer.as_u64()).context(Exit::Usage)?,
            security: self.security,
        })
    }
}

/// The links of a benchmark, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    pub(crate) bench: &'static str,
    pub(crate) cells: Vec<CellPlan>,
    pub(crate) reps: u32,
    pub(crate) thesis: Thesis,
    /// What is compared with what, in words.
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

/// Everything a sweep says; `--json` prints it as it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) bench: &'static str,
    pub(crate) method: &'static str,
    pub(crate) rate_bits_per_s: u64,
    pub(crate) mtu: u32,
    pub(crate) seconds_per_run: f64,
    pub(crate) reps: u32,
    pub(crate) seed: u64,
    /// Of Zerolane's connections.
    pub(crate) security: Protection,
    /// Every piece that arrived whole was right.
    pub(crate) verified: bool,
    pub(crate) cells: Vec<Cell>,
    pub(crate) thesis: Thesis,
}

/// One link, and how each contender fared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) link: String,
    #[serde(skip)]
    pub(crate) thesis_row: Option<&'static str>,
    pub(crate) rtt_ms: f64,
    pub(crate) results: Vec<FlowFigures>,
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
    pub(crate) fn run(self, args: &LinkBenchArgs, interrupt: &Interrupt) -> Result<Report> {
        let terms = args.terms(Duration::from_secs(10))?;
        let stage = Stage::set_up(1, args.mtu, args.interface_rate, args.seed, interrupt)?;
        let mut cells: Vec<Cell> = Vec::new();
        for plan in &self.cells {
            stage.set_links(plan.there, plan.back);
            let runs = self.runs(plan, &stage, args, terms, interrupt)?;
            let first = cells.first();
            let results = args.contenders().into_iter().map(|contender| {
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
        Ok(Report {
            bench: self.bench,
            method: self.method,
            rate_bits_per_s: args.rate,
            mtu: args.mtu,
            seconds_per_run: terms.time.as_secs_f64(),
            reps: self.reps,
            seed: args.seed,
            security: args.security,
            verified: true,
            cells,
            thesis: self.thesis,
        })
    }

    /// All runs over one link, the contenders by turns.
    fn runs(
        &self,
        plan: &CellPlan,
        stage: &Stage,
        args: &LinkBenchArgs,
        terms: Terms,
        interrupt: &Interrupt,
    ) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for rep in 0..self.reps {
            for contender in order(&args.contenders(), rep) {
                let group = Group {
                    contender,
                    senders: vec![1],
                };
                let outcome = stage.run(&[group], terms);
                interrupt.check()?;
                let run = Run::of(contender, outcome)?;
                console::note(format_args!("{}, {run}", plan.name));
                runs.push(run);
            }
        }
        Ok(runs)
    }
}

impl Cell {
    fn goodput_of(&self, contender: Contender) -> Option<f64> {
        let result = self.results.iter().find(|it| it.contender == contender)?;
        Some(result.mbps?.median)
    }
}
