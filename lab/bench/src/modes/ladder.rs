//! Runs `zerolane bench ladder`: removes overheads one by one, as the papers optimised UDP/IP stepwise (P3.1).

use anyhow::{Context, Result, anyhow};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{CoreArgs, Rounds, UDP_HEADERS, size};
use crate::harness::hosts;
use crate::harness::runs::{Ends, Run, order};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::source_sink::{Overheads, Sink, Source, SourceSink};
use crate::job::{Job, Work, fresh};
use crate::report::ladder::{LadderReport, Point, Rung};
use crate::report::{self, comparison::gbps};

/// Arguments of `zerolane bench ladder`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sizes of the messages, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "4KiB,16KiB,64KiB,256KiB,1MiB",
        value_name = "SIZES"
    )]
    size: Vec<ByteSize>,
    /// Bytes that one run moves, rounded up to whole buffers
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    bytes: ByteSize,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    cores: CoreArgs,
    /// Seed of the payload [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// MTUs of the two links: what Ethernet has, and what it can have.
const MTUS: [u32; 2] = [1500, 9000];

/// The settings of a run.
struct Step {
    rung: Rung,
    /// Of [`MTUS`].
    link: usize,
    sink: Sink,
    overheads: Overheads,
    security: Protection,
}

/// The rungs from the bottom, and beside them, for the interaction of checksum and copy, the one without a copy that has the
/// checksum still.
fn steps() -> Vec<Step> {
    let all = Overheads {
        no_gso: true,
        no_gro: true,
        checksum: true,
        no_trains: true,
        ..Overheads::default()
    };
    let no_gso = Overheads {
        no_gso: false,
        ..all
    };
    let no_gro = Overheads {
        no_gro: false,
        ..no_gso
    };
    let no_sum = Overheads {
        checksum: false,
        ..no_gro
    };
    let none = Overheads::default();
    let plain = Protection::Plain;
    [
        (Rung::Bottom, 0, Sink::Copy, all, plain),
        (Rung::LargeMtu, 1, Sink::Copy, all, plain),
        (Rung::Gso, 1, Sink::Copy, no_gso, plain),
        (Rung::Gro, 1, Sink::Copy, no_gro, plain),
        (Rung::NoCopyWithChecksum, 1, Sink::None, no_gro, plain),
        (Rung::NoChecksum, 1, Sink::Copy, no_sum, plain),
        (Rung::NoCopy, 1, Sink::None, no_sum, plain),
        (Rung::Trains, 1, Sink::None, none, plain),
        (Rung::SmallMtuAgain, 0, Sink::None, none, plain),
        (Rung::Encrypted, 0, Sink::None, none, Protection::Encrypted),
    ]
    .map(|(rung, link, sink, overheads, security)| Step {
        rung,
        link,
        sink,
        overheads,
        security,
    })
    .into()
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    for step in steps() {
        for &piece in &args.size {
            job(args, &step, piece, 0)?.check().context(Exit::Usage)?;
        }
    }
    report::present(args.json, |interrupt| measure(args, interrupt))
}

fn job(args: &Args, step: &Step, piece: ByteSize, seed: u64) -> Result<Job> {
    let one_lap = SourceSink {
        source: Source::Buffer,
        sink: step.sink,
        piece: size(piece)?,
        laps: 1,
        overheads: step.overheads,
        datagram: (MTUS[step.link] - UDP_HEADERS) as usize,
        soak: false,
        seed,
    };
    let work = one_lap.of_bytes(args.bytes.as_u64());
    Ok(Job {
        security: step.security,
        ..Job::of(Work::SourceSink(work))
    })
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<LadderReport> {
    let cores = [args.cores.tx_core, args.cores.responder()];
    let start = |mtu| Ends::here(hosts::link(Some(mtu), None)?, cores, None, interrupt);
    let mut links = [start(MTUS[0])?, start(MTUS[1])?];
    let mut machine = None;
    for ends in &mut links {
        machine = Some(ends.greet()?[0].clone());
    }
    let steps = steps();
    let all: Vec<usize> = (0..steps.len()).collect();
    let mut points = Vec::new();
    for &piece in &args.size {
        let mut runs: Vec<Vec<Run>> = steps.iter().map(|_| Vec::new()).collect();
        for round in 0..args.rounds.reps {
            for at in order(&all, round) {
                let step = &steps[at];
                let seed = args.seed.map_or_else(fresh, Ok)?;
                let job = job(args, step, piece, seed)?;
                let run = links[step.link].run(Name::Extended, &job)?;
                let (name, speed) = (step.rung.name(), gbps(&run));
                console::note(format_args!("{piece}, {name}: {speed:.1} Gb/s"));
                runs[at].push(run);
            }
        }
        let size = size(piece)?;
        let measured = steps.iter().zip(&runs);
        points.extend(measured.map(|(step, runs)| Point::new(step.rung, size, runs)));
    }
    let machine = machine.ok_or_else(|| anyhow!("no ends"))?;
    Ok(LadderReport::new(machine, args.rounds.reps, points))
}
