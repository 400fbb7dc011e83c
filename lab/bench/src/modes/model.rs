//! Runs `zerolane bench model`: compares predictions from unit costs with measurements (P4.3).

use anyhow::{Result, anyhow};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::interrupt::Interrupt;
use zerolane_model::{Carrier, Row, predict};

use super::arguments::{CoreArgs, UDP_HEADERS};
use crate::costs;
use crate::costs::place::Place;
use crate::costs::rounds;
use crate::costs::samples::Effort;
use crate::harness::hosts::{self, MTU};
use crate::harness::runs::{Ends, Run, order};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::source_sink::{Overheads, Sink, Source, SourceSink};
use crate::job::{Job, Laps, Work, fresh};
use crate::report::model::{Drift, ModelReport, ModelRow};
use crate::report::{self, comparison::gbps};

/// Arguments of `zerolane bench model`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Measures unit costs as `bench costs` does: copies, system calls, wake-ups, trains, a single Transfer. Predicts goodput and CPU time of `bench bulk` and `bench stream` from these alone, then runs both. Costs and runs alternate: the difference between the costs of the first and the last round is the machine's own share of the error.")]
pub(crate) struct Args {
    /// Bytes that one run moves, rounded up to whole buffers [default: 1GiB; quick: 256MiB]
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
    /// Runs of each row [default: 5; quick: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    reps: Option<u32>,
    #[command(flatten)]
    cores: CoreArgs,
    /// A few short runs, to see that it works
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Buffers of the rows of `bench bulk`, MiB.
const BULK_MIB: [usize; 2] = [1, 64];
/// Pieces of those of `bench stream`, MiB.
const STREAM_MIB: usize = 1;
/// Transfers that `bench bulk` cuts a buffer into.
const BULK_PIECES: usize = 2;

/// The rows of `bench bulk`.
const BULK: [(Name, Protection, Carrier); 4] = [
    (Name::Tcp, Protection::Plain, Carrier::Tcp),
    (Name::TcpSplice, Protection::Plain, Carrier::TcpSplice),
    (Name::ZerolanePlain, Protection::Plain, Carrier::Plain),
    (Name::Zerolane, Protection::Encrypted, Carrier::Encrypted),
];

/// The rows of `bench stream`, as it spells the protocol.
const STREAM: [(&str, Name, Carrier, Source, Sink); 14] = [
    ("tcp", Name::Tcp, Carrier::Tcp, Source::Buffer, Sink::None),
    ("tcp", Name::Tcp, Carrier::Tcp, Source::Buffer, Sink::Touch),
    ("tcp", Name::Tcp, Carrier::Tcp, Source::Buffer, Sink::Copy),
    (
        "tcp",
        Name::Tcp,
        Carrier::Tcp,
        Source::Buffer,
        Sink::Checksum,
    ),
    ("tcp", Name::Tcp, Carrier::Tcp, Source::Buffer, Sink::File),
    ("tcp", Name::Tcp, Carrier::Tcp, Source::Read, Sink::None),
    (
        "tcp",
        Name::TcpSplice,
        Carrier::TcpSplice,
        Source::Splice,
        Sink::None,
    ),
    (
        "tcp",
        Name::TcpSendfile,
        Carrier::TcpSendfile,
        Source::Sendfile,
        Sink::None,
    ),
    (
        "extended",
        Name::Extended,
        Carrier::Encrypted,
        Source::Buffer,
        Sink::None,
    ),
    (
        "extended",
        Name::Extended,
        Carrier::Encrypted,
        Source::Buffer,
        Sink::Touch,
    ),
    (
        "extended",
        Name::Extended,
        Carrier::Encrypted,
        Source::Buffer,
        Sink::Copy,
    ),
    (
        "extended",
        Name::Extended,
        Carrier::Encrypted,
        Source::Buffer,
        Sink::Checksum,
    ),
    (
        "extended",
        Name::Extended,
        Carrier::Encrypted,
        Source::Buffer,
        Sink::File,
    ),
    (
        "extended",
        Name::Extended,
        Carrier::Encrypted,
        Source::Read,
        Sink::None,
    ),
];

/// A row, and how it is measured.
struct Asked {
    name: String,
    command: String,
    contender: Name,
    job: Job,
    row: Row,
    runs: Vec<Run>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    report::present(args.json, |interrupt| measure(args, interrupt))
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<ModelReport> {
    let cores = [args.cores.tx_core, args.cores.responder()];
    let reps = args.reps.unwrap_or(if args.quick { 3 } else { 5 });
    let effort = Effort::of(args.quick).in_rounds(reps);
    let unit_costs = || {
        let link = hosts::link(None, None)?;
        console::note(format_args!("measuring unit costs"));
        let place = Place { link: &link, cores };
        costs::measure(effort, &place, (MTU - UDP_HEADERS) as usize, interrupt)
    };
    let mut costs = Vec::new();
    let mut ends = Ends::here(hosts::link(None, None)?, cores, None, interrupt)?;
    let machine = ends.greet()?[0].clone();
    let path = ends.link().map_or("", |link| link.describe()).to_owned();
    let mut rows = asked(args)?;
    let all: Vec<usize> = (0..rows.len()).collect();
    for round in 0..reps {
        // By turns with the rows: what the machine does meanwhile meets both.
        costs.push(unit_costs()?);
        for at in order(&all, round) {
            let it = &mut rows[at];
            it.runs.push(ends.run(it.contender, &it.job)?);
            let last = it.runs.last().ok_or_else(|| anyhow!("no run"))?;
            console::note(format_args!("{}: {:.1} Gb/s", it.name, gbps(last)));
        }
    }
    drop(ends);
    let drift = match &costs[..] {
        [first, .., last] => Drift::of(first, last),
        _ => None,
    };
    let costs = rounds::middle(&costs)?;
    let rows = rows.into_iter().filter_map(|it| {
        let predicted = predict(&it.row, &costs);
        ModelRow::new(it.name, it.command, predicted, &it.runs)
    });
    Ok(ModelReport::new(
        machine,
        path,
        reps,
        rows.collect(),
        costs,
        drift,
    ))
}

fn asked(args: &Args) -> Result<Vec<Asked>> {
    let usual = if args.quick { 256 << 20 } else { 1 << 30 };
    let bytes = args.bytes.map_or(usual, |it| it.as_u64());
    let mut rows = Vec::new();
    for mib in BULK_MIB {
        for (contender, security, carrier) in BULK {
            let buffer = mib << 20;
            let laps = Laps {
                buffer,
                laps: bytes.div_ceil(buffer as u64).max(1),
                seed: fresh()?,
            };
            let only = match contender {
                Name::ZerolanePlain => "zerolane_plain",
                Name::TcpSplice => "tcp_splice",
                Name::Zerolane => "zerolane",
                _ => "tcp",
            };
            rows.push(Asked {
                name: format!("bulk {only} {mib}MiB"),
                command: format!("zerolane bench bulk --only {only} --buffer {mib}MiB"),
                contender,
                job: Job {
                    security,
                    ..Job::of(Work::Laps(laps))
                },
                row: Row::memory(carrier, buffer, buffer / BULK_PIECES),
                runs: Vec::new(),
            });
        }
    }
    for (protocol, contender, carrier, source, sink) in STREAM {
        let one_lap = SourceSink {
            source,
            sink,
            piece: STREAM_MIB << 20,
            laps: 1,
            overheads: Overheads::default(),
            datagram: (MTU - UDP_HEADERS) as usize,
            soak: false,
            seed: fresh()?,
        };
        let work = one_lap.of_bytes(bytes);
        let (from, to) = (source.name(), sink.name());
        rows.push(Asked {
            name: format!("stream {protocol} {from} to {to} {STREAM_MIB}MiB"),
            command: format!(
                "zerolane bench stream --protocol {protocol} --source {from} --sink {to} \
                 --size {STREAM_MIB}MiB --no-soak"
            ),
            contender,
            job: Job {
                security: Protection::Encrypted,
                ..Job::of(Work::SourceSink(work))
            },
            row: Row {
                source: match source {
                    Source::Read => zerolane_model::Source::Read,
                    _ => zerolane_model::Source::Memory,
                },
                sink: match sink {
                    Sink::None => zerolane_model::Sink::None,
                    Sink::Touch => zerolane_model::Sink::Touch,
                    Sink::Copy => zerolane_model::Sink::Copy,
                    Sink::Checksum => zerolane_model::Sink::Checksum,
                    Sink::File => zerolane_model::Sink::File,
                },
                ..Row::memory(carrier, work.laps().buffer, work.piece)
            },
            runs: Vec::new(),
        });
    }
    Ok(rows)
}
