//! `zerolane demo`: the same real file over TCP and over Zerolane, side by side.
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

use crate::cpu;
use crate::link::{Host, Link, Offloads};
use crate::orchestrate::{Ends, Plan, RunResult};
use crate::peer::Peer;
use crate::protocol::{Mover, Payload, Protection};
use crate::tcp;
use stage::Stage;
use zerolane_cli::console;
use zerolane_cli::interrupt::Interrupt;

/// Arguments of `zerolane demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the file
    #[arg(long, default_value = "2GiB", value_name = "SIZE", hide = true)]
    size: ByteSize,
    /// Copy with one mover only
    #[arg(long, value_name = "MOVER", hide = true)]
    only: Option<Mover>,
}

/// Copies with each mover, at most.
const PAIRS: u32 = 3;

/// No further pair is begun after this long, so that all ends within a minute.
const LAST_START: Duration = Duration::from_secs(30);

const MTU: u32 = 1500;

/// Copies, compares, and says what came of it.
pub fn run(args: Args) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let report = interrupt.explain(compare(&args, &interrupt))?;
    console::say(report)
}

fn compare(args: &Args, interrupt: &Interrupt) -> Result<String> {
    let started = Instant::now();
    let stage = Stage::set_up(args.size.as_u64(), interrupt)?;
    let link = link();
    console::say(format_args!(
        "The two hosts: {}, one core each.",
        link.describe()
    ))?;
    let mut ends = ends(&link, &stage, interrupt)?;
    let sender = ends.sender.greet()?;
    ends.receiver.greet()?;
    let plan = Plan {
        payload: Payload::File {
            name: stage::NAME.into(),
            bytes: stage.bytes,
        },
        movers: args
            .only
            .map_or(vec![Mover::Tcp, Mover::Zerolane], |mover| vec![mover]),
        tcp: tcp::for_files(),
        security: Protection::Plain,
    };
    let mut runs: Vec<RunResult> = Vec::new();
    for index in 0..PAIRS {
        if index > 0 && started.elapsed() > LAST_START {
            break;
        }
        runs.extend(ends.pair(&plan, index, |run| {
            stage.verify_copy(interrupt)?;
            console::say(report::line(run))
        })?);
    }
    Ok(report::of(&runs, &sender.tcp_baseline, started.elapsed()))
}

fn link() -> Link {
    Link::namespaces(MTU, Offloads::On).unwrap_or_else(|error| {
        console::note(format_args!(
            "No network namespaces here ({error:#}): using loopback."
        ));
        Link::loopback()
    })
}

fn ends(link: &Link, stage: &Stage, interrupt: &Interrupt) -> Result<Ends> {
    let end = |host, name, core: usize, files| -> Result<Peer> {
        let mut command = link.this_program(host)?;
        let bind = link.address(host).to_string();
        command.args([
            "bench",
            "end",
            "--bind",
            &bind,
            "--core",
            &core.to_string(),
            "--files",
        ]);
        command.arg(files);
        Peer::spawn(name, command, interrupt).context("starting the hosts")
    };
    let last_core = 1.min(cpu::cores() - 1);
    Ok(Ends {
        sender: end(Host::Sender, "sender", 0, stage.source())?,
        receiver: end(Host::Receiver, "receiver", last_core, stage.destination())?,
        receiver_address: link.address(Host::Receiver),
    })
}
