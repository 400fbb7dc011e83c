//! Estimates the path's rate from the delivery rate of every answer.
//!
//! The highest rate of the last rounds counts. A sample at which the sender had less to send than allowed counts only
//! if it is higher. The peak of the last seconds sets the minimum that congestion leaves.

use super::Sample;
use crate::limits::MAX_RATES;
use crate::time::Instant;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Rounds, and time, for which the highest rate counts: one slow moment of an end does not make a slow path.
const RATE_ROUNDS: u64 = 10;
const RATE_MEMORY: Duration = Duration::from_millis(200);

/// Minimum lifetime of the peak (twice that at most): longer than a reaction to congestion lasts (`HOLD`).
const PEAK_MEMORY: Duration = Duration::from_secs(5);

/// The highest recent rates, bytes per second.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// Round, time, rate; in falling order of rate.
    highest: VecDeque<(u64, Instant, u64)>,
    /// Highest rate since the given time, and in the period before.
    peak: (u64, Instant),
    old_peak: u64,
}

impl Rates {
    /// The highest rate of the last rounds.
    pub(super) fn highest(&self) -> Option<u64> {
        self.highest.front().map(|&(_, _, rate)| rate)
    }

    /// The highest rate of the last seconds.
    pub(super) fn peak(&self) -> u64 {
        self.peak.0.max(self.old_peak)
    }

    /// Takes a sample of round number `rounds`.
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
