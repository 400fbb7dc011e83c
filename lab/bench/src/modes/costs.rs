//! Runs `zerolane bench costs`: unit costs on this machine.

use anyhow::Result;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{CoreArgs, UDP_HEADERS};
use crate::costs::place::Place;
use crate::costs::samples::Effort;
use crate::harness::hosts::{self, MTU};
use crate::harness::machine::Machine;
use crate::report;
use crate::report::costs::CostsReport;
use crate::{costs, cpu};

/// Arguments of `zerolane bench costs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cores: CoreArgs,
    /// Few repetitions, to see that it works
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    report::present(args.json, |interrupt| measure(args, interrupt))
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<CostsReport> {
    let link = hosts::link(None, None)?;
    let place = Place {
        link: &link,
        cores: [args.cores.tx_core, args.cores.responder()],
    };
    let datagram = (MTU - UDP_HEADERS) as usize;
    let costs = costs::measure(Effort::of(args.quick), &place, datagram, interrupt)?;
    let machine = Machine::this(cpu::cores())?;
    Ok(CostsReport::new(machine, link.describe(), costs))
}
