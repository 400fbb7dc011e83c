//! Runs `zerolane bench stream`: from every source to every sink, as in the thesis's yantt (P1.13).

use anyhow::{Context, Result, anyhow, ensure};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{PlaceArgs, UDP_HEADERS, size};
use crate::harness::hosts::MTU;
use crate::harness::link::{Link, Offloads};
use crate::harness::runs::{Run, order};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::source_sink::{Overheads, Sink, Source, SourceSink};
use crate::job::{Job, Work};
use crate::limits::REPS_MAX;
use crate::report;
use crate::report::stream::{Figures, LeftOut, Row, Setup, StreamReport};

/// The carriers to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    /// The kernel's TCP
    Tcp,
    /// Raw UDP, without retransmission
    Udp,
    /// Zerolane as the thesis describes Scheduled Transfer
    Classic,
    /// Zerolane with its own extensions
    Extended,
}

impl Protocol {
    /// What does it from this source.
    fn contender(self, source: Source) -> Name {
        match (self, source) {
            (Protocol::Tcp, Source::Sendfile) => Name::TcpSendfile,
            (Protocol::Tcp, Source::Splice) => Name::TcpSplice,
            (Protocol::Tcp, _) => Name::Tcp,
            (Protocol::Udp, _) => Name::Udp,
            (Protocol::Classic, _) => Name::Classic,
            (Protocol::Extended, _) => Name::Extended,
        }
    }
}

/// Arguments of `zerolane bench stream`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Lists are separated by commas. Every combination is measured; impossible ones are named. Combinations with the same MTU and size take turns until the goodput of each is known precisely enough.")]
pub(crate) struct Args {
    /// What carries it
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "tcp,extended",
        value_name = "LIST"
    )]
    protocol: Vec<Protocol>,
    /// Source of the sender's data
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "buffer",
        value_name = "LIST"
    )]
    source: Vec<Source>,
    /// What the receiver does with the data
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,checksum",
        value_name = "LIST"
    )]
    sink: Vec<Sink>,
    /// Bytes per Transfer or write
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1MiB",
        value_name = "SIZES"
    )]
    size: Vec<ByteSize>,
    /// MTUs of the path; between namespaces, the veth gets them [default: 1500]
    #[arg(long, value_delimiter = ',', value_name = "MTUS",
          value_parser = clap::value_parser!(u32).range(1280..=65535))]
    mtu: Vec<u32>,
    /// Offloads of the veth between the two namespaces [default: on]
    #[arg(long, conflicts_with = "to")]
    offloads: Option<Offloads>,
    /// Bytes of an STU, powers of two from 512 to 32768, of which 32 are a Block of the classic profile [default: as the
    /// path carries]
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    stu: Vec<u32>,
    /// Bytes that one run moves, rounded up to whole buffers
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    bytes: ByteSize,
    /// Repeat until the 95 % confidence interval of the mean goodput is this narrow, in percent
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    within: f64,
    /// Most runs of each combination
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPS_MAX)))]
    reps: u32,
    /// Protection of Zerolane's connections; the default is also that of the library
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    /// Do not run the thread that measures each core's spare time
    #[arg(long)]
    no_soak: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Fewest runs by which a spread is known.
const LEAST_REPS: u32 = 3;

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        args.within > 0.0,
        anyhow!("--within is a percentage above 0").context(Exit::Usage)
    );
    ensure!(
        args.place.to.is_none() || args.mtu.len() <= 1,
        anyhow!("between two machines only one --mtu is possible").context(Exit::Usage)
    );
    for &size in &args.size {
        // What no end does is told before anything is measured.
        for stu in stus(args) {
            let job = job(args, (Source::Buffer, Sink::None), size, (MTU, stu), 0)?;
            job.check().context(Exit::Usage)?;
        }
    }
    report::present(args.place.json, |interrupt| measure(args, interrupt))
}

/// The sizes of an STU to measure.
fn stus(args: &Args) -> Vec<Option<u32>> {
    match &args.stu[..] {
        [] => vec![None],
        stus => stus.iter().copied().map(Some).collect(),
    }
}

fn job(
    args: &Args,
    (source, sink): (Source, Sink),
    piece: ByteSize,
    (mtu, stu): (u32, Option<u32>),
    seed: u64,
) -> Result<Job> {
    let one_lap = SourceSink {
        source,
        sink,
        piece: size(piece)?,
        laps: 1,
        overheads: Overheads {
            stu,
            ..Overheads::default()
        },
        datagram: (mtu - UDP_HEADERS) as usize,
        soak: !args.no_soak,
        seed,
    };
    let work = one_lap.of_bytes(args.bytes.as_u64());
    Ok(Job {
        security: args.security,
        ..Job::of(Work::SourceSink(work))
    })
}

/// A combination that is measured, and its runs.
struct Measured {
    contender: Name,
    job: Job,
    row: Row,
    runs: Vec<Run>,
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<StreamReport> {
    let (mut rows, mut left_out, mut setup) = (Vec::new(), Vec::new(), None);
    let mtus = match &args.mtu[..] {
        [] => vec![None],
        mtus => mtus.iter().copied().map(Some).collect(),
    };
    for asked in mtus {
        let mut ends = args.place.start(asked, args.offloads, interrupt)?;
        let [sender, receiver] = ends.greet()?;
        let (path, mtu) = args.place.path(&ends, asked);
        let offloads = match ends.link().is_some_and(Link::is_shaped) {
            true => args.offloads.unwrap_or_default().name(),
            false => "unchanged",
        };
        setup.get_or_insert_with(|| Setup::new(path, offloads, [sender, receiver], args.security));
        for &piece in &args.size {
            let mut group = Vec::new();
            for ((protocol, source, sink), stu) in combinations(args) {
                let seed = args.place.seed()?;
                let path = (asked.unwrap_or(MTU), stu);
                let job = job(args, (source, sink), piece, path, seed)?;
                let contender = protocol.contender(source);
                let row = Row::new(contender, (source, sink), size(piece)?, (mtu, stu));
                match ends.able(contender, &job) {
                    Ok(()) => group.push(Measured {
                        contender,
                        job,
                        row,
                        runs: Vec::new(),
                    }),
                    Err(why) => left_out.push(LeftOut::of(&row, why)),
                }
            }
            let all: Vec<usize> = (0..group.len()).collect();
            for round in 0..args.reps {
                for at in order(&all, round) {
                    let it = &mut group[at];
                    if is_known(args, &it.runs) {
                        continue;
                    }
                    it.runs.push(ends.run(it.contender, &it.job)?);
                    let speed = report::comparison::gbps(&it.runs[it.runs.len() - 1]);
                    console::note(format_args!("{}: {speed:.1} Gb/s", it.row.name()));
                }
            }
            rows.extend(group.into_iter().map(|it| it.row.with(&it.runs)));
        }
    }
    let setup = setup.ok_or_else(|| anyhow!("nothing was measured"))?;
    Ok(StreamReport::new(setup, args.within, rows, left_out))
}

/// Whether the mean of these runs is known precisely enough.
fn is_known(args: &Args, runs: &[Run]) -> bool {
    runs.len() >= LEAST_REPS as usize
        && Figures::of(runs).is_some_and(|it| it.half_width_percent() <= Some(args.within))
}

fn combinations(args: &Args) -> Vec<((Protocol, Source, Sink), Option<u32>)> {
    let mut all = Vec::new();
    for stu in stus(args) {
        for &source in &args.source {
            for &sink in &args.sink {
                let protocols = args.protocol.iter();
                all.extend(protocols.map(|&it| ((it, source, sink), stu)));
            }
        }
    }
    all
}
