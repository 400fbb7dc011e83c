//! Attributes the one-way times of [`SIZES`] to modules, by separate sampled runs.

use anyhow::{Context, Result};
use zerolane_cli::console;

use super::{Args, Lengths, job, operations};
use crate::harness::runs::{Ends, Run};
use crate::harness::sampling::sampled;
use crate::job::name::Name;
use crate::job::operations::{Operations, Wait};
use crate::report::latency::{Operation, Pareto, Row, What};
use crate::report::pareto::Profile;

/// The paper's, bytes.
const SIZES: [usize; 2] = [64, 16 << 10];

/// Why the time cannot be attributed, if that is known in advance.
fn why_not(args: &Args, rows: &[Row]) -> Option<&'static str> {
    let cores = args.ends.place.cores;
    if args.no_pareto {
        Some("--no-pareto was given")
    } else if !rows.iter().any(is_shown) {
        Some("neither 64 bytes nor 16 KiB are among the sizes")
    } else if args.ends.place.to.is_some() {
        Some("the other machine is not sampled")
    } else if cores.tx_core == cores.responder() {
        Some("both ends share a core")
    } else {
        None
    }
}

/// Where the time of the rows of [`SIZES`] goes, messages alone; and why it is not shown.
pub(super) fn of(
    args: &Args,
    lengths: &Lengths,
    seed: u64,
    rows: &[Row],
    ends: &mut Ends,
) -> Result<(Vec<Pareto>, Option<String>)> {
    if let Some(why) = why_not(args, rows) {
        return Ok((Vec::new(), Some(why.into())));
    }
    let mut all = Vec::new();
    for row in rows.iter().filter(|it| is_shown(it)) {
        let What { size, wait, .. } = row.what;
        let us = row.one_way_us.median;
        let usual = operations(args, lengths, size, wait, Operation::Message, seed);
        let rounds = (lengths.sampled_millis as f64 * 1e3 / (2.0 * us.max(0.1))) as u64;
        let to_and_fro = Operations {
            iters: rounds.max(1),
            warm_up: 0,
            ..usual
        };
        let mut sample = |job| profile(ends, row.what.contender, job);
        let (run, sampled) = sample(to_and_fro)?;
        let parts = match (sampled, wait) {
            (Err(why), _) => return Ok((all, Some(why))),
            (Ok(sampled), Wait::Event) => {
                let latency = run.tx.latency.context("no times were measured")?;
                let mean = latency.mean.context("no mean")?;
                sampled.asleep(2 * to_and_fro.iters, mean, us)
            }
            (Ok(sampled), Wait::Poll) => match sample(in_vain(to_and_fro, lengths))?.1 {
                Ok(waiting) => sampled.polled(&waiting, us),
                Err(why) => return Ok((all, Some(why))),
            },
        };
        let what = row.what;
        all.extend(parts.into_iter().map(|part| Pareto { what, part }));
        console::note(format_args!("{}: sampled", row.name()));
    }
    Ok((all, None))
}

fn is_shown(row: &Row) -> bool {
    row.what.operation == Operation::Message && SIZES.contains(&row.what.size)
}

/// A round trip that is mostly waiting.
fn in_vain(usual: Operations, lengths: &Lengths) -> Operations {
    Operations {
        iters: 1,
        pause_millis: lengths.sampled_millis / 2,
        ..usual
    }
}

/// A run, and its samples, or why there are none.
fn profile(
    ends: &mut Ends,
    contender: Name,
    operations: Operations,
) -> Result<(Run, Result<Profile, String>)> {
    let (run, explanation) = sampled(|| ends.run(contender, &job(operations)))?;
    let why = || {
        let first = explanation.missing.first();
        first
            .cloned()
            .unwrap_or_else(|| "no sample was taken".into())
    };
    Ok((run, Profile::of(&explanation).ok_or_else(why)))
}
