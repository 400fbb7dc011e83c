//! Runs `zerolane bench latency`: one-way times of raw UDP, TCP and Zerolane (P4.4).
//!
//! Messages have 1 byte to 64 KiB, and the ends poll or sleep. It also attributes the time to modules (P4.5).

mod pareto;

use anyhow::{Context, Result, ensure};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{EndsArgs, Rounds, UDP_HEADERS, size};
use crate::harness::hosts::MTU;
use crate::harness::runs::{Ends, Run, order};
use crate::job::name::Name;
use crate::job::operations::{Operations, Target, Wait};
use crate::job::settings::Protection;
use crate::job::{Job, Work};
use crate::report;
use crate::report::latency::{LatencyReport, METHOD, Operation, Row, What};
use crate::report::operations::{Setup, Skipped};

/// Arguments of `zerolane bench latency`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sizes of the messages, separated by commas; 64 B and 16 KiB also show where the time goes
    #[arg(
        long,
        short,
        value_delimiter = ',',
        default_value = "1,4,16,64,256,1KiB,4KiB,16KiB,64KiB",
        value_name = "SIZES"
    )]
    size: Vec<ByteSize>,
    /// Messages of a run, each way [default: depends on the size]
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    iters: Option<u64>,
    /// A few short runs, to see the output
    #[arg(long, conflicts_with_all = ["iters", "reps"])]
    quick: bool,
    /// Measure only these
    #[arg(long, value_name = "CONTENDERS", value_delimiter = ',', value_parser = Name::among(&CONTENDERS))]
    only: Vec<Name>,
    /// Do not sample where the time goes
    #[arg(long)]
    no_pareto: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    ends: EndsArgs,
}

const CONTENDERS: [Name; 4] = [Name::Udp, Name::Tcp, Name::Zerolane, Name::ZerolanePlain];
const WAITS: [Wait; 2] = [Wait::Poll, Wait::Event];

/// The lengths of runs.
struct Lengths {
    reps: u32,
    /// Bytes of a run each way, and most messages of one whose ends poll, and of one whose ends sleep.
    bytes: u64,
    polled: u64,
    asleep: u64,
    /// Of what is sampled.
    sampled_millis: u64,
}

/// Fewest messages of a run: there is a 99th percentile.
const ITERS_MIN: u64 = 100;
/// Messages before the timed ones, one for so many of those.
const WARM_UP_PART: u64 = 5;

impl Lengths {
    fn of(args: &Args) -> Lengths {
        match args.quick {
            true => Lengths {
                reps: 2,
                bytes: 16 << 20,
                polled: 1000,
                asleep: 250,
                sampled_millis: 250,
            },
            false => Lengths {
                reps: args.rounds.reps,
                bytes: 128 << 20,
                polled: 10_000,
                asleep: 2500,
                sampled_millis: 1500,
            },
        }
    }

    fn iters(&self, size: usize, wait: Wait) -> u64 {
        let most = match wait {
            Wait::Poll => self.polled,
            Wait::Event => self.asleep,
        };
        (self.bytes / size.max(1) as u64).clamp(ITERS_MIN, most)
    }
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let lengths = Lengths::of(args);
    let mut sizes = Vec::new();
    for &asked in &args.size {
        let size = size(asked)?;
        ensure!(
            size > 0,
            anyhow::anyhow!("a message has at least 1 byte").context(Exit::Usage)
        );
        let one = operations(args, &lengths, size, Wait::Poll, Operation::Message, 0);
        one.check().context(Exit::Usage)?;
        sizes.push(size);
    }
    report::present(args.ends.place.json, |interrupt| {
        measure(args, &lengths, &sizes, interrupt)
    })
}

fn operations(
    args: &Args,
    lengths: &Lengths,
    size: usize,
    wait: Wait,
    operation: Operation,
    seed: u64,
) -> Operations {
    let iters = args.iters.unwrap_or_else(|| lengths.iters(size, wait));
    Operations {
        test: operation.test(),
        wait,
        target: Target::Answers,
        size,
        iters,
        warm_up: iters / WARM_UP_PART,
        depth: 1,
        datagram: (args.ends.mtu.unwrap_or(MTU) - UDP_HEADERS) as usize,
        seed,
        pause_millis: 0,
    }
}

fn job(operations: Operations) -> Job {
    Job {
        security: Protection::Encrypted,
        ..Job::of(Work::Operations(operations))
    }
}

/// The operation of each contender: sockets support only messages.
fn sides(args: &Args) -> Vec<(Name, Operation)> {
    let chosen = |name: &Name| args.only.is_empty() || args.only.contains(name);
    let of = |name| match name {
        Name::Zerolane | Name::ZerolanePlain => &[Operation::Message, Operation::Put][..],
        _ => &[Operation::Message],
    };
    let all = CONTENDERS.into_iter().filter(chosen);
    all.flat_map(|name| of(name).iter().map(move |&it| (name, it)))
        .collect()
}

fn measure(
    args: &Args,
    lengths: &Lengths,
    sizes: &[usize],
    interrupt: &Interrupt,
) -> Result<LatencyReport> {
    let seed = args.ends.seed()?;
    let mut ends = args.ends.start(None, interrupt)?;
    let [initiator, responder] = ends.greet()?;
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for &size in sizes {
        for wait in WAITS {
            let of = |operation| operations(args, lengths, size, wait, operation, seed);
            let mut able = Vec::new();
            for (contender, operation) in sides(args) {
                match ends.able(contender, &job(of(operation))) {
                    Ok(()) => able.push((contender, operation)),
                    Err(why) => skipped.push(Skipped {
                        contender,
                        size: Some(size),
                        why,
                    }),
                }
            }
            rows.extend(rows_of(lengths, &mut ends, size, wait, &able, of)?);
        }
        console::note(format_args!("{size} bytes: done"));
    }
    skipped.dedup();
    let (path, mtu) = args.ends.path(&ends);
    let (pareto, pareto_missing) = pareto::of(args, lengths, seed, &rows, &mut ends)?;
    Ok(LatencyReport {
        test: "latency",
        method: METHOD,
        setup: Setup {
            path,
            mtu,
            initiator,
            responder,
            security: Protection::Encrypted,
            reps: lengths.reps,
        },
        verified: true,
        rows,
        skipped,
        pareto,
        pareto_missing,
    })
}

/// The rows of one size and way of waiting, the contenders by turns.
fn rows_of(
    lengths: &Lengths,
    ends: &mut Ends,
    size: usize,
    wait: Wait,
    sides: &[(Name, Operation)],
    of: impl Fn(Operation) -> Operations,
) -> Result<Vec<Row>> {
    let mut runs: Vec<Vec<Run>> = sides.iter().map(|_| Vec::new()).collect();
    let places: Vec<usize> = (0..sides.len()).collect();
    for round in 0..lengths.reps {
        for at in order(&places, round) {
            let (contender, operation) = sides[at];
            let run = ends.run(contender, &job(of(operation)));
            let name = contender.title();
            runs[at].push(run.with_context(|| format!("{size} bytes over {name}"))?);
        }
    }
    let udp = sides.iter().position(|it| it.0 == Name::Udp);
    let udp = udp.map_or(&[][..], |at| &runs[at]);
    let rows = sides.iter().zip(&runs);
    let rows = rows.filter_map(|(&(contender, operation), runs)| {
        let what = What {
            size,
            contender,
            operation,
            wait,
        };
        Row::of(what, of(operation).iters, runs, udp)
    });
    Ok(rows.collect())
}
