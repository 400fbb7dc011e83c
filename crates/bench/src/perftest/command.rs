//! From the command line to a plan, and back to a report.

use anyhow::{Context, Result, ensure};
use bytesize::ByteSize;
use clap::Subcommand;

use super::job::{Carrier, Job, RING_MAX_BYTES, Wait};
use super::measure::{Hosts, measure};
use super::report::{Report, Setup};
use super::table;
use super::test::Test;
use crate::limits::REPS_MAX;
use crate::link::{Host, Link};
use crate::mover::Token;
use crate::protocol::Protection;
use crate::{cpu, hosts};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

/// The tests, as subcommands of `zerolane bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One-way time of a put (half of a round trip of two)
    #[command(name = "put_lat")]
    PutLat(Args),
    /// Time of a get, there and back
    #[command(name = "get_lat")]
    GetLat(Args),
    /// Time of a fetch-and-add, there and back
    #[command(name = "fetch_lat")]
    FetchLat(Args),
    /// One-way time of a message (half of a round trip of two)
    #[command(name = "send_lat")]
    SendLat(Args),
    /// Bandwidth of puts
    #[command(name = "put_bw")]
    PutBw(Args),
    /// Bandwidth of gets
    #[command(name = "get_bw")]
    GetBw(Args),
    /// Small puts a second
    #[command(name = "put_rate")]
    PutRate(Args),
    /// Bandwidth of messages
    #[command(name = "send_bw")]
    SendBw(Args),
}

/// Arguments of every test.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of a message, 1 to 4 MiB [default: as the test has it]
    #[arg(long, short, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// All powers of two from 1 B to 4 MiB
    #[arg(long, short, conflicts_with = "size")]
    all: bool,
    /// Operations of a run [default: as fits the size]
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    iters: Option<u64>,
    /// Operations under way at once, in tests of bandwidth and rate [default: as the test has it]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPS_MAX)))]
    reps: u32,
    /// Wait by looking again and again (the default)
    #[arg(long, conflicts_with = "event")]
    poll: bool,
    /// Wait in the kernel, asleep
    #[arg(long)]
    event: bool,
    /// One short run of each side, to see that everything works
    #[arg(long, conflicts_with_all = ["iters", "reps"])]
    quick: bool,
    /// Measure only these
    #[arg(long, value_name = "SIDE", value_delimiter = ',')]
    only: Vec<Side>,
    /// Measure to the machine where `zerolane bench serve` runs
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// MTU of the path; between namespaces, the veth gets it [default: 1500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    mtu: Option<u32>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Core of the initiator
    #[arg(long, default_value_t = 0)]
    tx_core: usize,
    /// Core of the responder, where this command starts it [default: 1, or 0 if it is the only one]
    #[arg(long)]
    rx_core: Option<usize>,
    /// Protection of Zerolane's connection
    #[arg(long, default_value = "plain", value_name = "MODE")]
    security: Protection,
    /// Seed of the payload [default: a fresh one]
    #[arg(long)]
    seed: Option<u64>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// Raw UDP
    Udp,
    /// Raw TCP
    Tcp,
    /// Zerolane
    Zerolane,
    /// ucx_perftest over TCP
    Ucx,
    /// fi_pingpong over libfabric's tcp
    Libfabric,
}

impl Side {
    /// All, in the order of the first round.
    pub(crate) const ALL: [Side; 5] = [
        Side::Udp,
        Side::Tcp,
        Side::Zerolane,
        Side::Ucx,
        Side::Libfabric,
    ];

    /// As the command line and the reports spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Udp => "udp",
            Side::Tcp => "tcp",
            Side::Zerolane => "zerolane",
            Side::Ucx => "ucx",
            Side::Libfabric => "libfabric",
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) test: Test,
    pub(crate) wait: Wait,
    pub(crate) sides: Vec<Side>,
    /// Messages of each size, and how many of them.
    pub(crate) jobs: Vec<Job>,
    pub(crate) reps: u32,
}

/// Bytes of the headers of UDP over IPv4.
const UDP_HEADERS: u32 = 28;
/// Operations before the timed ones of a latency run, one for so many of them, and at least some.
const WARM_UP_PART: u64 = 10;
const WARM_UP_MIN: u64 = 100;
/// How much shorter a quick run is.
const QUICK_PART: u64 = 50;

/// Measures and prints.
pub(crate) fn run(command: Command) -> Result<()> {
    let (test, args) = command.split();
    let plan = plan(test, &args)?;
    let interrupt = Interrupt::install()?;
    let report = interrupt.explain(report(&args, &plan, &interrupt))?;
    if args.json {
        console::say(serde_json::to_string_pretty(&report)?)
    } else {
        console::say(table::of(&report))
    }
}

impl Command {
    fn split(self) -> (Test, Args) {
        match self {
            Command::PutLat(args) => (Test::PutLat, args),
            Command::GetLat(args) => (Test::GetLat, args),
            Command::FetchLat(args) => (Test::FetchLat, args),
            Command::SendLat(args) => (Test::SendLat, args),
            Command::PutBw(args) => (Test::PutBw, args),
            Command::GetBw(args) => (Test::GetBw, args),
            Command::PutRate(args) => (Test::PutRate, args),
            Command::SendBw(args) => (Test::SendBw, args),
        }
    }
}

/// What the command line asks for.
fn plan(test: Test, args: &Args) -> Result<Plan> {
    let seed = args
        .seed
        .map_or_else(|| Token::new().map(|token| token.0), Ok)?;
    let sizes = match args.size {
        Some(size) => vec![usize::try_from(size.as_u64()).context(Exit::Usage)?],
        None if args.all => test.all_sizes(),
        None => vec![test.default_size()],
    };
    let jobs = sizes
        .into_iter()
        .map(|size| job(test, args, size, seed).context(Exit::Usage))
        .collect::<Result<_>>()?;
    Ok(Plan {
        test,
        wait: wait(args),
        sides: match args.only.is_empty() {
            true => Side::ALL.to_vec(),
            false => args.only.clone(),
        },
        jobs,
        reps: if args.quick { 1 } else { args.reps },
    })
}

fn wait(args: &Args) -> Wait {
    match args.event {
        true => Wait::Event,
        false => Wait::Poll,
    }
}

/// The job of one size; carrier and token are each run's own.
fn job(test: Test, args: &Args, size: usize, seed: u64) -> Result<Job> {
    ensure!(size > 0, "a message of 0 bytes cannot be told from none");
    let iters = args.iters.unwrap_or_else(|| {
        let part = if args.quick { QUICK_PART } else { 1 };
        (test.default_iters(size) / part).max(1)
    });
    let depth = match args.depth {
        Some(depth) => depth as usize,
        None => test
            .default_depth()
            .min(RING_MAX_BYTES / size.max(1))
            .max(1),
    };
    let streams = test.metric() == super::test::Metric::Stream;
    let job = Job {
        test,
        carrier: Carrier::Udp,
        wait: wait(args),
        size,
        iters,
        warm_up: if streams {
            0
        } else {
            (iters / WARM_UP_PART).max(WARM_UP_MIN)
        },
        depth: if streams { depth } else { 1 },
        datagram: (args.mtu.unwrap_or(hosts::MTU) - UDP_HEADERS) as usize,
        seed,
        security: args.security,
        token: 0,
    };
    job.check()?;
    Ok(job)
}

fn report(args: &Args, plan: &Plan, interrupt: &Interrupt) -> Result<Report> {
    let responder_core = cpu::of_other_end(args.rx_core);
    // Declared first, dropped last: the namespaces outlive their processes.
    let link = match &args.to {
        None => Some(hosts::link(args.mtu, None)?),
        Some(_) => None,
    };
    let mut hosts = match &args.to {
        None => Hosts::here(link.as_ref(), [args.tx_core, responder_core], interrupt)?,
        Some(to) => Hosts::to(hosts::resolve(to)?, args.tx_core, interrupt)?,
    };
    let [initiator, responder] = hosts.greet()?;
    let measured = measure(plan, &mut hosts)?;
    let setup = Setup {
        path: link
            .as_ref()
            .map_or("between two machines", Link::describe)
            .to_owned(),
        mtu: link
            .as_ref()
            .is_some_and(Link::is_shaped)
            .then(|| args.mtu.unwrap_or(hosts::MTU)),
        initiator,
        responder,
        security: args.security,
        reps: plan.reps,
    };
    Ok(Report::of(plan, setup, measured))
}

/// The host of each part: the initiator is the one that `bench bulk` sends from.
pub(crate) const INITIATOR: Host = Host::Sender;
/// The other one.
pub(crate) const RESPONDER: Host = Host::Receiver;
