//! Runs `zerolane bench curve`: goodput, latency and CPU time by message size, of TCP, UDP, Zerolane and others.
//!
//! Its runs are those of `bench send_bw`, `put_bw`, `send_lat` and `put_lat`, by turns.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bytesize::ByteSize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;
use zerolane_report::chart;
use zerolane_report::sections::curve::charts;

use super::arguments::{EndsArgs, LaneArgs, Rounds, UDP_HEADERS, size};
use crate::contender::program::Program;
use crate::harness::hosts::MTU;
use crate::harness::runs::{Ends, order};
use crate::job::operations::{Operations, Wait};
use crate::job::settings::Protection;
use crate::job::test::{Metric, SIZE_MAX};
use crate::job::{Job, Work};
use crate::report;
use crate::report::curve::{CurveReport, METHOD, Side, SideRun, SizeReport};
use crate::report::operations::{Setup, Skipped};

/// Arguments of `zerolane bench curve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of a message, up to 64 MiB [default: powers of two from 8 B to 64 MiB]
    #[arg(long, short, value_name = "SIZES", value_delimiter = ',')]
    size: Vec<ByteSize>,
    /// Powers of four, and one short run of each contender
    #[arg(long, conflicts_with = "reps")]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_name = "CONTENDERS", value_delimiter = ',')]
    only: Vec<Side>,
    /// Poll in streams, too: fewer wake-ups, but CPU time says nothing
    #[arg(long)]
    poll: bool,
    /// Protection of Zerolane's connection
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    /// Draw the figures into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    ends: EndsArgs,
    #[command(flatten)]
    lane: LaneArgs,
}

/// How much shorter a quick run is.
const QUICK_PART: u64 = 50;
/// Fewest operations of a run: a connection is slow at first.
const ITERS_MIN: u64 = 8;
/// Smallest message without `--size`, bytes.
const SIZE_MIN: usize = 8;
const METRICS: [Metric; 2] = [Metric::Stream, Metric::Latency];

/// Measures, draws and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = args.ends.seed()?;
    let sizes = sizes(args)?;
    for &size in &sizes {
        let operations = operations(args, Side::Tcp, Metric::Stream, size, seed);
        operations.check().context(Exit::Usage)?;
    }
    // A file that cannot be written is found now, not after the measurement.
    let svg = args
        .svg
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())));
    let svg = svg.transpose()?;
    report::present(args.ends.place.json, |interrupt| {
        let report = measure(args, &sizes, seed, interrupt)?;
        if let Some(mut svg) = svg {
            let drawn = chart::file(&charts(&serde_json::to_value(&report)?))?;
            svg.write_all(drawn.as_bytes())?;
        }
        Ok(report)
    })
}

fn sizes(args: &Args) -> Result<Vec<usize>> {
    if !args.size.is_empty() {
        return args.size.iter().map(|&it| size(it)).collect();
    }
    let powers = SIZE_MIN.ilog2()..=SIZE_MAX.ilog2();
    // Of four, and the smallest.
    let asked = |power: &u32| !args.quick || power.is_multiple_of(2) || *power == SIZE_MIN.ilog2();
    Ok(powers.filter(asked).map(|power| 1 << power).collect())
}

fn operations(args: &Args, side: Side, metric: Metric, size: usize, seed: u64) -> Operations {
    let test = side.test(metric, size);
    let part = if args.quick { QUICK_PART } else { 1 };
    // Of size 0, which the check refuses, there is no usual number.
    let iters = (test.default_iters(size.max(1)) / part).max(ITERS_MIN);
    let datagram = (args.ends.mtu.unwrap_or(MTU) - UDP_HEADERS) as usize;
    Operations {
        wait: match (metric, args.poll) {
            (Metric::Stream, false) => Wait::Event,
            _ => Wait::Poll,
        },
        ..Operations::usual(test, size, iters, datagram, seed)
    }
}

fn measure(args: &Args, sizes: &[usize], seed: u64, interrupt: &Interrupt) -> Result<CurveReport> {
    let mut ends = args.lane.start(&args.ends, None, interrupt)?;
    let [initiator, responder] = ends.greet()?;
    let reps = if args.quick { 1 } else { args.rounds.reps };
    let sides = match args.only.is_empty() {
        true => Side::ALL.to_vec(),
        false => args.only.clone(),
    };
    let (mut skipped, mut reports) = (Vec::new(), Vec::new());
    for &size in sizes {
        let job = |side, metric| Job {
            security: args.security,
            lane: args.lane.lane,
            bypass: args.lane.bypass,
            ..Job::of(Work::Operations(operations(args, side, metric, size, seed)))
        };
        let able = able(&sides, &ends, job, size, &mut skipped);
        let mut runs = Vec::new();
        for (metric, able) in METRICS.into_iter().zip(able) {
            for rep in 0..reps {
                for side in order(&able, rep) {
                    let run = ends
                        .run(side.name(), &job(side, metric))
                        .with_context(|| format!("{} of {size} bytes", side.title()))?;
                    runs.push(SideRun { side, metric, run });
                }
            }
        }
        reports.push(SizeReport::of(size, &runs));
        console::note(format_args!("{}: done", ByteSize(size as u64)));
    }
    let (path, mtu) = args.lane.path(&args.ends, &ends);
    Ok(CurveReport {
        bench: "curve",
        method: METHOD,
        setup: Setup {
            path,
            mtu,
            initiator,
            responder,
            security: args.security,
            reps,
        },
        polls: args.poll,
        verified: true,
        sizes: reports,
        skipped,
    })
}

/// Who can do the job of each metric; notes why others cannot, once if it is so for all sizes.
fn able(
    sides: &[Side],
    ends: &Ends,
    job: impl Fn(Side, Metric) -> Job,
    size: usize,
    skipped: &mut Vec<Skipped>,
) -> [Vec<Side>; 2] {
    let mut named = [Vec::new(), Vec::new()];
    for &side in sides {
        let able = METRICS.map(|metric| ends.able(side.name(), &job(side, metric)));
        let lacks = [able[0].as_ref().err(), able[1].as_ref().err()];
        let why = match lacks {
            [None, None] => None,
            [Some(one), Some(other)] if one == other => Some(one.clone()),
            [stream, latency] => {
                let of = |what, why: Option<&String>| Some(format!("{what}: {}", why?));
                let both = [of("goodput", stream), of("latency", latency)];
                Some(both.into_iter().flatten().collect::<Vec<_>>().join("; "))
            }
        };
        if let Some(why) = why {
            // What a program lacks, it lacks at every size.
            let size = Program::of(side.name()).is_none().then_some(size);
            let skip = Skipped {
                contender: side.name(),
                size,
                why,
            };
            if !skipped.contains(&skip) {
                skipped.push(skip);
            }
        }
        for (named, able) in named.iter_mut().zip(able) {
            if able.is_ok() {
                named.push(side);
            }
        }
    }
    named
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn asked(words: &[&str]) -> Args {
        Line::parse_from([&["curve"], words].concat()).args
    }

    #[test]
    fn sizes__powers_from_8_bytes_to_64_MiB() {
        let all = sizes(&asked(&[])).unwrap();
        assert_eq!((all[0], all[1], all.len()), (8, 16, 24));
        assert_eq!(all[23], 64 << 20);
        let quick = sizes(&asked(&["--quick"])).unwrap();
        assert_eq!(quick[..4], [8, 16, 64, 256]);
        assert_eq!(*quick.last().unwrap(), 64 << 20);
    }

    #[test]
    fn operations__every_usual_job_is_allowed() {
        for words in [&[][..], &["--quick"]] {
            let args = asked(words);
            for size in sizes(&args).unwrap() {
                for metric in METRICS {
                    for side in Side::ALL {
                        operations(&args, side, metric, size, 1).check().unwrap();
                    }
                }
            }
        }
    }
}
