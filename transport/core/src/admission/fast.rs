//! Fast mode (P2.4): whose turn it is to be fast, and when that pays.
//!
//! The paper promotes one stream because packets of several, interleaved, make speculation miss. Here
//! the kernel demultiplexes, so that streams do not garble each other; but interleaved packets merge
//! into shorter super-packets, and a forecast that was made for long ones misses. Whether that
//! happens depends on interface and load. So it is tried: when much has to be moved while several
//! streams share, one is promoted at a time for a second, and fast mode stays only if misses halve.

use crate::Instant;
use core::time::Duration;

/// The receiver's answer to a request to be fast (Fast_Ack, Fast_NAck).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastAnswer {
    /// The stream goes at full speed until its announced Transfers have arrived, at most for a tenth
    /// of a second.
    Granted,
    /// Another stream is fast, or this one was just now. It keeps its share, and may ask again.
    Refused,
}

/// How long a stream that asked to be fast is so, at most.
pub(super) const HOLD: Duration = Duration::from_millis(100);

/// How long misses are counted before fast mode is tried, and how long it is tried.
const TRIAL: Duration = Duration::from_secs(1);

/// How long a verdict stands.
const VERDICT: Duration = Duration::from_secs(10);

/// Misses, as a part of all that arrived, from which fast mode may pay.
const MISSES_PART: u64 = 8;

/// What is being found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Fair shares; misses are counted.
    Fair,
    /// Fast mode for a while; misses per 1024 bytes were these without it.
    Trial(u64),
    /// Fast mode paid.
    Fast,
    /// It did not.
    Vain,
}

/// Finds out whether fast mode pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    phase: Phase,
    since: Instant,
    arrived: u64,
    moved: u64,
}

impl Judge {
    pub(super) fn new() -> Judge {
        Judge {
            phase: Phase::Fair,
            since: Instant::ZERO,
            arrived: 0,
            moved: 0,
        }
    }

    /// Whether one stream at a time is to be fast.
    pub(super) fn is_fast(&self) -> bool {
        matches!(self.phase, Phase::Trial(_) | Phase::Fast)
    }

    /// Takes news of a stream while several share: bytes that arrived, and of those, bytes moved.
    pub(super) fn hear(&mut self, now: Instant, arrived: u64, moved: u64) {
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
        *self = Judge {
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
