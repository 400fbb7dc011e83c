//! Runs `zerolane bench fan`: many to one, one to many, and both directions at once (P4.6).

use std::time::Duration;

use anyhow::{Context, Result};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{CoreArgs, Rounds, seconds, size};
use crate::harness::hosts;
use crate::harness::link::Link;
use crate::harness::runs::{Ends, Run, order, out_of_turn};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::{Flows, Job, Work, fresh};
use crate::report;
use crate::report::fan::{FanReport, Pattern, Row};

/// Arguments of `zerolane bench fan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of ends on the side with many, each a process; with both directions at once, streams per direction
    #[arg(long, short = 'n', default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    ends: u8,
    /// How long each run lasts
    #[arg(long, short, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    time: Duration,
    /// Memory at each end of each stream, sent repeatedly
    #[arg(long, default_value = "8MiB", value_name = "SIZE")]
    buffer: ByteSize,
    /// MTU of the veth between the two namespaces [default: 1500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    mtu: Option<u32>,
    /// Measure only these
    #[arg(long, value_name = "CONTENDERS", value_delimiter = ',', value_parser = Name::among(&CONTENDERS))]
    only: Vec<Name>,
    /// Protection of Zerolane's connections; the default is also that of the library
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    cores: CoreArgs,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Those that can flow for a time.
const CONTENDERS: [Name; 4] = [
    Name::Zerolane,
    Name::Tcp,
    Name::ZerolanePlain,
    Name::Classic,
];
/// Measured unless `--only` names others.
const USUAL: [Name; 2] = [Name::Zerolane, Name::Tcp];

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    job(args, false)?.check().context(Exit::Usage)?;
    report::present(args.json, |interrupt| measure(args, interrupt))
}

/// Streams to the responder, or from it.
fn job(args: &Args, reverse: bool) -> Result<Job> {
    let millis = args.time.as_millis() as u64;
    let flows = Flows {
        buffer: size(args.buffer)?,
        initiators: args.ends.into(),
        parallel: 1,
        reverse,
        live: false,
        millis,
        // What a stream moved in a part of the time is not asked.
        sample_millis: millis.max(10),
        seed: fresh()?,
    };
    Ok(Job {
        security: args.security,
        ..Job::of(Work::Flows(flows))
    })
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<FanReport> {
    let link = hosts::link(args.mtu, None)?;
    let mut fans = [ends(args, &link, interrupt)?, ends(args, &link, interrupt)?];
    let [machine, _] = fans[0].greet()?;
    let contenders = match args.only.is_empty() {
        true => USUAL.to_vec(),
        false => args.only.clone(),
    };
    let all: Vec<_> = Pattern::ALL
        .into_iter()
        .flat_map(|pattern| contenders.iter().map(move |&it| (pattern, it)))
        .collect();
    let mut rows: Vec<Row> = all
        .iter()
        .map(|&(pattern, it)| Row::new(pattern, it))
        .collect();
    let places: Vec<usize> = (0..all.len()).collect();
    for round in 0..args.rounds.reps {
        for at in order(&places, round) {
            let (pattern, contender) = all[at];
            let runs = run_once(args, &mut fans, pattern, contender)?;
            rows[at].add(&runs);
            console::note(format_args!("{}", rows[at].last()));
        }
    }
    let path = link.describe().to_owned();
    Ok(FanReport::new(
        machine,
        path,
        args.security,
        args.ends,
        rows,
    ))
}

/// The many, and the one.
fn ends(args: &Args, link: &Link, interrupt: &Interrupt) -> Result<Ends> {
    let cores = [args.cores.tx_core, args.cores.responder()];
    Ends::several(link, cores, args.ends.into(), interrupt)
}

/// The streams towards the responder, and those from it.
fn run_once(
    args: &Args,
    [there, back]: &mut [Ends; 2],
    pattern: Pattern,
    contender: Name,
) -> Result<[Vec<Run>; 2]> {
    let (goes, comes) = (pattern != Pattern::Out, pattern != Pattern::In);
    if goes {
        there.begin(contender, &job(args, false)?)?;
    }
    if comes {
        back.begin(contender, &job(args, true)?)?;
    }
    let done = |started, ends: &mut Ends| match started {
        true => ends.finish(&mut out_of_turn),
        false => Ok(Vec::new()),
    };
    Ok([done(goes, there)?, done(comes, back)?])
}
