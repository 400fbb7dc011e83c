//! Runs `zerolane bench put_lat` and its like: latencies, rates and bandwidths, as in perftest.
//!
//! It compares with raw UDP, raw TCP, and UCX and libfabric over TCP if they are installed.

use anyhow::{Context, Result, ensure};
use bytesize::ByteSize;
use clap::Subcommand;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{EndsArgs, LaneArgs, Rounds, UDP_HEADERS, size};
use crate::contender::program::Program;
use crate::harness::hosts::MTU;
use crate::harness::runs::{Ends, order};
use crate::job::name::Name;
use crate::job::operations::{Operations, Target, Wait};
use crate::job::settings::Protection;
use crate::job::test::{Metric, Test};
use crate::job::{Job, Work};
use crate::report;
use crate::report::operations::{METHOD, OperationsReport, Runs, Setup, SizeReport, Skipped};

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
    /// Small puts per second
    #[command(name = "put_rate")]
    PutRate(Args),
    /// Bandwidth of messages
    #[command(name = "send_bw")]
    SendBw(Args),
}

/// Arguments of every test.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of a message, up to 64 MiB [default: depends on the test]
    #[arg(long, short, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// All powers of two from 1 B to 4 MiB
    #[arg(long, short, conflicts_with = "size")]
    all: bool,
    /// Operations of a run [default: depends on the size]
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    iters: Option<u64>,
    /// Operations in flight at once, in tests of bandwidth and rate [default: depends on the test]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,
    /// Wait by polling (the default)
    #[arg(long, conflicts_with = "event")]
    poll: bool,
    /// Wait in the kernel, asleep
    #[arg(long)]
    event: bool,
    /// How the target of the puts waits [put_lat]
    #[arg(long, value_enum, default_value_t, value_name = "TARGET")]
    target: Target,
    /// One short run of each contender, to see that it works
    #[arg(long, conflicts_with_all = ["iters", "reps"])]
    quick: bool,
    /// Measure only these
    #[arg(long, value_name = "CONTENDERS", value_delimiter = ',', value_parser = Name::among(&CONTENDERS))]
    only: Vec<Name>,
    /// Protection of Zerolane's connection
    #[arg(long, default_value = "plain", value_name = "MODE")]
    security: Protection,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    ends: EndsArgs,
    #[command(flatten)]
    lane: LaneArgs,
}

/// In the order of the first round.
const CONTENDERS: [Name; 6] = [
    Name::Udp,
    Name::Tcp,
    Name::Unix,
    Name::Zerolane,
    Name::Ucx,
    Name::Libfabric,
];

/// The subject of a measurement.
struct Plan {
    test: Test,
    target: Target,
    contenders: Vec<Name>,
    /// A job for each size.
    jobs: Vec<Operations>,
    reps: u32,
}

/// How much shorter a quick run is.
const QUICK_PART: u64 = 50;

/// Measures and prints.
pub(crate) fn run(command: Command) -> Result<()> {
    let (test, args) = command.split();
    let plan = plan(test, &args)?;
    report::present(args.ends.place.json, |interrupt| {
        measure(&args, &plan, interrupt)
    })
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
    let seed = args.ends.seed()?;
    let sizes = match args.size {
        Some(asked) => vec![size(asked)?],
        None if args.all => test.all_sizes(),
        None => vec![test.default_size()],
    };
    let jobs = sizes
        .into_iter()
        .map(|size| operations(test, args, size, seed).context(Exit::Usage));
    Ok(Plan {
        test,
        target: args.target,
        contenders: match (args.only.is_empty(), args.target) {
            (true, Target::Answers) => CONTENDERS.to_vec(),
            (true, _) => vec![Name::Zerolane],
            (false, _) => args.only.clone(),
        },
        jobs: jobs.collect::<Result<_>>()?,
        reps: if args.quick { 1 } else { args.rounds.reps },
    })
}

fn wait(args: &Args) -> Wait {
    match args.event {
        true => Wait::Event,
        false => Wait::Poll,
    }
}

/// The operations of one size.
fn operations(test: Test, args: &Args, size: usize, seed: u64) -> Result<Operations> {
    ensure!(size > 0, "a message has at least 1 byte");
    let iters = args.iters.unwrap_or_else(|| {
        let part = if args.quick { QUICK_PART } else { 1 };
        (test.default_iters(size) / part).max(1)
    });
    let datagram = (args.ends.mtu.unwrap_or(MTU) - UDP_HEADERS) as usize;
    let usual = Operations::usual(test, size, iters, datagram, seed);
    let operations = Operations {
        wait: wait(args),
        target: args.target,
        depth: match (test.metric(), args.depth) {
            (Metric::Stream, Some(depth)) => depth as usize,
            _ => usual.depth,
        },
        ..usual
    };
    operations.check()?;
    Ok(operations)
}

fn measure(args: &Args, plan: &Plan, interrupt: &Interrupt) -> Result<OperationsReport> {
    let mut ends = args.lane.start(&args.ends, None, interrupt)?;
    let [initiator, responder] = ends.greet()?;
    let mut skipped = Vec::new();
    let mut sizes = Vec::new();
    for &operations in &plan.jobs {
        let job = Job {
            security: args.security,
            lane: args.lane.lane,
            bypass: args.lane.bypass,
            ..Job::of(Work::Operations(operations))
        };
        let able = able(plan, &ends, &job, operations.size, &mut skipped);
        sizes.push(SizeReport::of(&runs(
            plan, &mut ends, &job, operations, &able,
        )?));
        if plan.jobs.len() > 1 {
            console::note(format_args!("{} bytes: done", operations.size));
        }
    }
    let (path, mtu) = args.lane.path(&args.ends, &ends);
    Ok(OperationsReport {
        test: plan.test,
        wait: wait(args),
        target: args.target,
        method: METHOD,
        setup: Setup {
            path,
            mtu,
            initiator,
            responder,
            security: args.security,
            reps: plan.reps,
        },
        verified: true,
        sizes,
        skipped,
    })
}

/// The contenders that can do this job; notes why others cannot, once if it is so for all sizes.
fn able(plan: &Plan, ends: &Ends, job: &Job, size: usize, skipped: &mut Vec<Skipped>) -> Vec<Name> {
    let mut named = Vec::new();
    for &contender in &plan.contenders {
        let answers = plan.target == Target::Answers || contender == Name::Zerolane;
        let able = match answers {
            true => ends.able(contender, job),
            false => Err("it has no remote memory".into()),
        };
        let Err(why) = able else {
            named.push(contender);
            continue;
        };
        // What a program lacks, it lacks at every size.
        let size = Program::of(contender).is_none().then_some(size);
        let skip = Skipped {
            contender,
            size,
            why,
        };
        if !skipped.contains(&skip) {
            skipped.push(skip);
        }
    }
    named
}

/// The runs of one size, the contenders by turns.
fn runs(
    plan: &Plan,
    ends: &mut Ends,
    job: &Job,
    operations: Operations,
    able: &[Name],
) -> Result<Runs> {
    let mut runs = Vec::new();
    for rep in 0..plan.reps {
        for contender in order(able, rep) {
            let run = ends.run(contender, job).with_context(|| {
                let (test, size, name) = (plan.test.name(), operations.size, contender.title());
                format!("{test} of {size} bytes over {name}")
            })?;
            runs.push(run);
        }
    }
    Ok(Runs { operations, runs })
}
