//! Repeats a measurement, and keeps a summary of its samples.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result};
use zerolane_model::Cost;

/// How often each experiment is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Samples of which the median is taken.
    pub(crate) samples: usize,
    /// A sample of work on memory covers at least so many bytes.
    pub(crate) bytes: usize,
}

impl Effort {
    /// For figures to show.
    pub(crate) const FULL: Effort = Effort {
        samples: 15,
        bytes: 16 << 20,
    };
    /// To see that it works, and for a first look
    pub(crate) const QUICK: Effort = Effort {
        samples: 5,
        bytes: 4 << 20,
    };

    /// Of this, what each of so many rounds has to do; at least three samples.
    pub(crate) fn in_rounds(self, rounds: u32) -> Effort {
        Effort {
            samples: self.samples.div_ceil(rounds.max(1) as usize).max(3),
            ..self
        }
    }

    /// The one or the other.
    pub(crate) fn of(quick: bool) -> Effort {
        if quick { Effort::QUICK } else { Effort::FULL }
    }
}

/// Nanoseconds of a second, and bytes of a KiB.
const NANOS: f64 = 1e9;
const KIB: f64 = 1024.0;

/// The cost of what took so many seconds, nanoseconds.
pub(super) fn nanoseconds(seconds: impl IntoIterator<Item = f64>) -> Result<Cost> {
    let cost = Cost::of(seconds.into_iter().map(|it| it * NANOS));
    cost.context("an experiment without samples")
}

/// The same of bytes that took so many seconds each, nanoseconds a KiB.
pub(super) fn per_kib(seconds: impl IntoIterator<Item = f64>) -> Result<Cost> {
    nanoseconds(seconds.into_iter().map(|it| it * KIB))
}

/// Seconds of an item where `work` does so many; the first time, in which caches and branch predictors settle, is not
/// kept.
pub(super) fn timed(
    effort: Effort,
    items: f64,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(effort.samples);
    for sample in 0..=effort.samples {
        let started = Instant::now();
        work()?;
        let took = started.elapsed().as_secs_f64() / items;
        if sample > 0 {
            seconds.push(took);
        }
    }
    Ok(seconds)
}

/// Nanoseconds a KiB of `work`, which is told where a `piece` of a memory of `len` bytes begins and how long it is, one after
/// the other, over and over.
pub(super) fn over_memory(
    effort: Effort,
    len: usize,
    piece: usize,
    mut work: impl FnMut(usize, usize) -> Result<()>,
) -> Result<Cost> {
    let laps = effort.bytes.div_ceil(len).max(1);
    per_kib(timed(effort, (laps * len) as f64, || {
        for _ in 0..laps {
            for at in (0..len).step_by(piece) {
                work(black_box(at), piece.min(len - at))?;
            }
        }
        Ok(())
    })?)
}
