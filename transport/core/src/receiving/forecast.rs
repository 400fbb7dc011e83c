//! Describes where the payload expected next belongs, when the lane asks before it receives.

use crate::limits::MAX_FORECAST_RUNS;
use crate::span::Span;

/// Consecutive STUs of one size in one contiguous place; only the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The bytes of all STUs.
    pub span: Span,
    /// Payload bytes per STU.
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

/// Whether datagram n of a message lies in STU n for each of the first `pairs` of `runs`: its overhead in its slot, its
/// payload in its place. The message has `total` bytes in datagrams of `segment` bytes, of which only the last may be
/// shorter, each with `around` bytes that are no payload.
pub fn pattern_holds(
    runs: &[Run],
    pairs: usize,
    total: usize,
    segment: usize,
    around: usize,
) -> bool {
    let segments = total.div_ceil(segment.max(1));
    if segments == 0 || segments > pairs || segment < around {
        return false;
    }
    let last = (total - (segments - 1) * segment).saturating_sub(around) as u64;
    let (payload, mut rest) = ((segment - around) as u64, segments as u64);
    for run in runs {
        let stus = u64::from(run.stus());
        let short = run.span.len - (stus - 1) * u64::from(run.stu);
        let place_of_last = if rest == stus {
            short
        } else {
            u64::from(run.stu)
        };
        if rest <= stus {
            return (rest == 1 || payload == u64::from(run.stu)) && last <= place_of_last;
        }
        if payload != u64::from(run.stu) || payload != short {
            return false;
        }
        rest -= stus;
    }
    false
}

/// The spans expected next, in order. Every byte is granted and missing, so that a misplaced byte is overwritten later
/// by the right one.
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

    /// Whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds `run`. False if full.
    pub(crate) fn push(&mut self, run: Run) -> bool {
        if self.count == MAX_FORECAST_RUNS {
            return false;
        }
        self.runs[self.count] = Some(run);
        self.count += 1;
        true
    }
}
