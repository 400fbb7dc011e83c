//! Runs `zerolane demo`: the same real file over TCP and over Zerolane, side by side.
//!
//! | module | what it does |
//! |---|---|
//! | `stage` | the directory and the file; how large it can be here |
//! | `report` | the table and the sentence |

mod report;
mod stage;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::interrupt::Interrupt;

use crate::cpu;
use crate::harness::hosts;
use crate::harness::link::Link;
use crate::harness::runs::{Ends, Run, order};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::{FileCopy, Job, Work};
use stage::Stage;

/// Arguments of `zerolane demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the file
    #[arg(long, default_value = "2GiB", value_name = "SIZE", hide = true)]
    size: ByteSize,
    /// Copy with one contender only
    #[arg(long, value_name = "CONTENDER", hide = true, value_parser = Name::among(&CONTENDERS))]
    only: Option<Name>,
}

const CONTENDERS: [Name; 2] = [Name::Tcp, Name::Zerolane];

/// Most copies with each contender.
const PAIRS: u32 = 3;

/// No further pair starts after this time, so that everything ends within a minute.
const LAST_START: Duration = Duration::from_secs(30);

/// Copies, compares, and prints the result.
pub fn run(args: Args) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let report = interrupt.explain(compare(&args, &interrupt))?;
    console::say(report)
}

fn compare(args: &Args, interrupt: &Interrupt) -> Result<String> {
    let started = Instant::now();
    let stage = Stage::set_up(args.size.as_u64(), interrupt)?;
    let mut ends = ends(&stage, interrupt)?;
    console::say(format_args!(
        "The two hosts: {}, one core each.",
        ends.link().map_or("unknown", Link::describe)
    ))?;
    let [sender, _] = ends.greet()?;
    let file = FileCopy {
        name: stage::NAME.into(),
        bytes: stage.bytes,
    };
    // What users of Zerolane get; TCP is as it is.
    let job = Job {
        security: Protection::Encrypted,
        ..Job::of(Work::File(file))
    };
    let contenders = args.only.map_or(CONTENDERS.to_vec(), |only| vec![only]);
    let mut runs: Vec<Run> = Vec::new();
    for index in 0..PAIRS {
        if index > 0 && started.elapsed() > LAST_START {
            break;
        }
        for contender in order(&contenders, index) {
            let run = ends.run(contender, &job)?;
            stage.verify_copy(interrupt)?;
            console::say(report::line(&run))?;
            runs.push(run);
        }
    }
    Ok(report::of(&runs, &sender.tcp_baseline, started.elapsed()))
}

fn ends(stage: &Stage, interrupt: &Interrupt) -> Result<Ends> {
    let cores = [0, 1.min(cpu::cores() - 1)];
    let (from, to) = (stage.source(), stage.destination());
    let link = hosts::link(None, None)?;
    Ends::here(link, cores, Some([&from, &to]), interrupt).context("starting the hosts")
}
