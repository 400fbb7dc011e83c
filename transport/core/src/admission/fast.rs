//! Decides when fast mode (PAPERS P2.4) pays, by measuring mispredictions with and without it.
//!
//! The paper promotes one stream because interleaved packets of several make speculation miss. Here the kernel
//! demultiplexes, so streams do not garble each other. But interleaved packets merge into shorter super-packets, and a
//! forecast made for long ones misses. Whether that happens depends on interface and load, so it is measured. When much
//! payload has to be moved while several streams share the link, one stream at a time is promoted for a second, and
//! fast mode stays only if misses halve.

use crate::time::Instant;
use core::time::Duration;

/// The receiver's answer to a request for fast mode (Fast_Ack, Fast_NAck).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastAnswer {
    /// The stream gets full speed until its announced Transfers have arrived, at most for a tenth of a second.
    Granted,
    /// Another stream is fast, or this one was just now. The stream keeps its share, and may ask again.
    Refused,
}

/// Longest time that a requesting stream stays fast.
pub(super) const HOLD: Duration = Duration::from_millis(100);

/// How long misses are counted before fast mode is tried, and how long the trial lasts.
const TRIAL: Duration = Duration::from_secs(1);

/// Lifetime of a verdict.
const VERDICT: Duration = Duration::from_secs(10);

/// Fast mode may pay if misses are at least this part of the arrivals.
const MISSES_PART: u64 = 8;

/// Phase of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Fair shares; misses are counted.
    Fair,
    /// Fast mode on trial; the value is the misses per 1024 bytes without it.
    Trial(u64),
    /// Fast mode paid.
    Fast,
    /// Fast mode did not pay.
    Vain,
}

/// Judges whether fast mode pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastTrial {
    phase: Phase,
    since: Instant,
    arrived: u64,
    moved: u64,
}

impl FastTrial {
    pub(super) fn new() -> FastTrial {
        FastTrial {
            phase: Phase::Fair,
            since: Instant::ZERO,
            arrived: 0,
            moved: 0,
        }
    }

    /// Whether one stream at a time should be fast.
    pub(super) fn is_fast(&self) -> bool {
        matches!(self.phase, Phase::Trial(_) | Phase::Fast)
    }

    /// Takes the report of a stream while several share the link: bytes arrived, and of those, bytes moved.
    pub(super) fn record(&mut self, now: Instant, arrived: u64, moved: u64) {
        self.arrived += arrived;
        self.moved += moved;
        let wait = match self.phase {
            Phase::Fair | Phase::Trial(_) => TRIAL,
            Phase::Fast | Phase::Vain => VERDICT,
        };
        if now - self.since < wait || self.arrived == 0 {
            return;
        }
        let misses = self.moved * 1024 / self.arrived;
        let phase = match self.phase {
            Phase::Fair if misses >= 1024 / MISSES_PART => Phase::Trial(misses),
            Phase::Trial(before) if misses * 2 <= before => Phase::Fast,
            Phase::Trial(_) => Phase::Vain,
            Phase::Fair | Phase::Fast | Phase::Vain => Phase::Fair,
        };
        *self = FastTrial {
            phase,
            since: now,
            arrived: 0,
            moved: 0,
        };
    }
}

#[cfg(test)]
#[path = "fast_tests.rs"]
mod tests;
