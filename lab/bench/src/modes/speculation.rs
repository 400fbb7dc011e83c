//! Runs `zerolane bench speculation`: forecast right, none and wrong, with and without a second copy, and with packets in
//! between (P2.1, P2.3, P2.7).

use anyhow::{Context, Result, anyhow, ensure};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{CoreArgs, Rounds, UDP_HEADERS, size};
use crate::harness::hosts::{self, MTU};
use crate::harness::runs::{Ends, Run, order};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::source_sink::{Overheads, Sink, Source, SourceSink, Speculation};
use crate::job::{Job, Work, fresh};
use crate::report::speculation::{Between, Cell, Payload, Setup, SpeculationReport};
use crate::report::{self, comparison::gbps};

/// Whether the receiver copies the payload once more, as programs do that get it in a buffer of the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SecondCopy {
    /// From the memory that was received into to other memory
    With,
    /// Not at all
    Without,
}

/// Arguments of `zerolane bench speculation`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the receiver predicts, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,right,wrong",
        value_name = "LIST"
    )]
    forecast: Vec<Speculation>,
    /// Whether the receiver copies all payload once more
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "with,without",
        value_name = "LIST"
    )]
    second_copy: Vec<SecondCopy>,
    /// Small packets in between, for each 100,000 pages of 4096 bytes, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "0,100,10000", value_name = "COUNTS",
          value_parser = clap::value_parser!(u64).range(0..=100_000))]
    between: Vec<u64>,
    /// Bytes of a Transfer
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    size: ByteSize,
    /// Bytes that one run moves, rounded up to whole buffers
    #[arg(long, default_value = "400MiB", value_name = "SIZE")]
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

/// Bytes of a Transfer among which packets come: short ones, so that the packets come evenly.
const SHORT: usize = 64 << 10;

/// A setting, and its runs.
struct Asked {
    cell: Cell,
    contender: Name,
    job: Job,
    runs: Vec<Run>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    for asked in asked(args)? {
        asked.job.check().context(Exit::Usage)?;
    }
    report::present(args.json, |interrupt| measure(args, interrupt))
}

fn job(args: &Args, piece: usize, sink: Sink, overheads: Overheads) -> Result<Job> {
    let one_lap = SourceSink {
        source: Source::Buffer,
        sink,
        piece,
        laps: 1,
        overheads,
        datagram: (MTU - UDP_HEADERS) as usize,
        soak: false,
        seed: args.seed.map_or_else(fresh, Ok)?,
    };
    let work = one_lap.of_bytes(args.bytes.as_u64());
    Ok(Job {
        security: Protection::Plain,
        ..Job::of(Work::SourceSink(work))
    })
}

/// All settings: TCP, headers by forecast and copy, trains by forecast, headers with packets in between.
fn asked(args: &Args) -> Result<Vec<Asked>> {
    ensure!(
        !args.forecast.is_empty() && !args.second_copy.is_empty(),
        anyhow!("--forecast and --second-copy name one or more").context(Exit::Usage)
    );
    let piece = size(args.size)?;
    let mut all = Vec::new();
    let mut add = |cell: Cell, contender, piece| {
        let sink = match cell.second_copy {
            true => Sink::Copy,
            false => Sink::None,
        };
        let overheads = Overheads {
            no_trains: cell.payload == Payload::Headers,
            speculation: cell.forecast.unwrap_or_default(),
            between: cell.between.map_or(0, |it| it.packets),
            ..Overheads::default()
        };
        let job = job(args, piece, sink, overheads)?;
        all.push(Asked {
            cell,
            contender,
            job,
            runs: Vec::new(),
        });
        Ok::<(), anyhow::Error>(())
    };
    let cell = |payload, forecast, second_copy| Cell {
        payload,
        forecast,
        second_copy,
        between: None,
    };
    for &copy in &args.second_copy {
        let copy = copy == SecondCopy::With;
        add(cell(Payload::Tcp, None, copy), Name::Tcp, piece)?;
        for &forecast in &args.forecast {
            let headers = cell(Payload::Headers, Some(forecast), copy);
            add(headers, Name::Extended, piece)?;
            // Trains have no neighbours to swap.
            if forecast != Speculation::Wrong {
                let trains = cell(Payload::Trains, Some(forecast), copy);
                add(trains, Name::Extended, piece)?;
            }
        }
    }
    for &per_100_000 in &args.between {
        let between = Between::of(per_100_000, args.bytes.as_u64());
        let cell = Cell {
            between: Some(between),
            ..cell(Payload::Headers, Some(Speculation::Right), false)
        };
        add(cell, Name::Extended, SHORT)?;
    }
    Ok(all)
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<SpeculationReport> {
    let cores = [args.cores.tx_core, args.cores.responder()];
    let mut ends = Ends::here(hosts::link(None, None)?, cores, None, interrupt)?;
    let machine = ends.greet()?[0].clone();
    let path = ends.link().map_or("", |link| link.describe()).to_owned();
    let mut asked = asked(args)?;
    let all: Vec<usize> = (0..asked.len()).collect();
    for round in 0..args.rounds.reps {
        for at in order(&all, round) {
            let it = &mut asked[at];
            let run = ends.run(it.contender, &it.job)?;
            console::note(format_args!("{}: {:.1} Gb/s", it.cell.name(), gbps(&run)));
            it.runs.push(run);
        }
    }
    let setup = Setup {
        machine,
        path,
        reps: args.rounds.reps,
        size: size(args.size)?,
        bytes: args.bytes.as_u64(),
    };
    let cells = asked.into_iter().map(|it| (it.cell, it.runs));
    Ok(SpeculationReport::new(setup, cells))
}
