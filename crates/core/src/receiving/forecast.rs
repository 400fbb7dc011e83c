//! Where the payload expected next belongs.

use crate::Span;
use crate::limits::MAX_FORECAST_RUNS;

/// Consecutive STUs of one size in one place; only the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The bytes all of them cover.
    pub span: Span,
    /// Payload bytes an STU.
    pub stu: u32,
    /// They may come as trains.
    pub trains: bool,
}

impl Run {
    /// STUs in the run.
    pub fn stus(&self) -> u32 {
        self.span.len.div_ceil(u64::from(self.stu)) as u32
    }
}

/// The spans expected next, in order. Every byte named is granted and still missing, so that what
/// lands there by mistake is overwritten by what belongs there.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    runs: [Option<Run>; MAX_FORECAST_RUNS],
    count: usize,
}

impl Forecast {
    /// The runs, in the order they are expected.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs[..self.count].iter().flatten().copied()
    }

    /// Nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds `run`; false when full.
    pub(crate) fn push(&mut self, run: Run) -> bool {
        if self.count == MAX_FORECAST_RUNS {
            return false;
        }
        self.runs[self.count] = Some(run);
        self.count += 1;
        true
    }
}
