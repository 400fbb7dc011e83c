//! The rate of delivery.
//!
//! It observes the rate of each answer. It decides which one counts: the highest of the last rounds, and not one at
//! which there was less to send than might have left, unless it is higher; for the least that congestion leaves, the
//! peak of the last seconds.

use super::Sample;
use crate::Instant;
use crate::limits::MAX_RATES;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Rounds, and time, for which the highest rate counts: one slow moment of an end is no slow path.
const RATE_ROUNDS: u64 = 10;
const RATE_MEMORY: Duration = Duration::from_millis(200);

/// How long the peak is remembered at least (twice that at most): longer than congestion is answered for (`HOLD`).
const PEAK_MEMORY: Duration = Duration::from_secs(5);

/// The highest rates lately, bytes per second.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// Round, time, rate; falling.
    highest: VecDeque<(u64, Instant, u64)>,
    /// Highest rate since when, and in the time before that.
    peak: (u64, Instant),
    old_peak: u64,
}

impl Rates {
    /// The highest of the last rounds.
    pub(super) fn highest(&self) -> Option<u64> {
        self.highest.front().map(|&(_, _, rate)| rate)
    }

    /// The highest of the last seconds.
    pub(super) fn peak(&self) -> u64 {
        self.peak.0.max(self.old_peak)
    }

    /// Takes in a sample of round number `rounds`.
    pub(super) fn note(&mut self, now: Instant, rounds: u64, sample: &Sample) {
        self.note_peak(now, sample.rate);
        if sample.limited && self.highest().is_some_and(|rate| sample.rate < rate) {
            return;
        }
        while self.highest.pop_back_if(|it| it.2 <= sample.rate).is_some() {}
        if self.highest.len() >= MAX_RATES {
            self.highest.pop_back();
        }
        self.highest.push_back((rounds, now, sample.rate));
        let old = |&mut (round, at, _): &mut (u64, Instant, u64)| {
            round + RATE_ROUNDS < rounds && now - at > RATE_MEMORY
        };
        while self.highest.len() > 1 && self.highest.pop_front_if(old).is_some() {}
    }

    fn note_peak(&mut self, now: Instant, rate: u64) {
        if now - self.peak.1 > PEAK_MEMORY {
            self.old_peak = self.peak.0;
            self.peak = (0, now);
        }
        self.peak.0 = self.peak.0.max(rate);
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
