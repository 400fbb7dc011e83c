//! Detects queues from the round trip of every answer.
//!
//! It observes each round trip and the mean of each round. It decides:
//!
//! - whether a queue stands (a round longer by a quarter);
//! - whether one grows (consecutive answers ever later: Startup ends);
//! - whether others fill it (*crowded*: a queue in 24 consecutive rounds, on a path of 4 ms or more; until a round
//!   without one, or until the model calls it cleared);
//! - when to probe for the shortest round trip (none close to it for 10 s);
//! - how much of a busy end's lateness to compensate.

use super::{Lateness, Round, Sample, quantum_time};
use crate::time::Instant;
use core::time::Duration;

/// Round trips from which on queues are judged. On shorter ones, an end descheduled for a moment looks the same.
const LONG_RTT: Duration = Duration::from_millis(4);
/// An answer is late if it exceeds the shortest round trip by this part of it. This many in a row, each as late as the
/// one before or later, show a growing queue: a quarter of a round's answers.
const LATE_PART: u32 = 8;
const LATE_SAMPLES: u32 = 4;

/// The shortest round trip is probed again after this, before it expires ([`Sample::min_rtt`]).
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(10);

/// Longest lateness of an answer that is compensated: if the path is not late, the additional bytes become a queue.
const MAX_UNSTEADINESS: Duration = Duration::from_millis(2);
/// Minimum lifetime of an end's lateness (twice that at most): several turns of a scheduler.
const LATENESS_MEMORY: Duration = Duration::from_millis(100);
/// Variation of the round trip that is no queue: each end wakes for an answer, and a sleep ends some 50 us late.
pub(super) const NOISE: Duration = Duration::from_micros(200);

/// Consecutive rounds with a queue after which others must have filled it. Our own queue is gone in each turn of
/// probing, and on a path that slowed down, soon after its old rate expired.
const CROWDED_ROUNDS: u32 = 24;

/// State of the round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delay {
    /// The shortest.
    pub(super) min_rtt: Option<Duration>,
    /// When it was last close to the shortest.
    uncrowded: Instant,
    /// Consecutive rounds with a queue.
    crowded_rounds: u32,
    /// Consecutive answers delayed by a queue.
    late_samples: u32,
    latest_rtt: Duration,
    /// Smoothed mean of the round trip, and its mean deviation.
    smoothed: (Duration, Duration),
    own_lateness: Longest,
    peers_lateness: Longest,
}

/// The longest recent time.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    now: Duration,
    before: Duration,
    since: Instant,
}

impl Longest {
    fn note(&mut self, now: Instant, time: Duration) {
        if now - self.since > LATENESS_MEMORY {
            (self.before, self.now, self.since) = (self.now, Duration::ZERO, now);
        }
        self.now = self.now.max(time);
    }

    fn get(self) -> Duration {
        self.now.max(self.before)
    }
}

impl Delay {
    /// A path with that shortest round trip, seen `now`.
    pub(super) fn new(now: Instant, min_rtt: Option<Duration>) -> Delay {
        Delay {
            min_rtt,
            uncrowded: now,
            ..Delay::default()
        }
    }

    pub(super) fn note(&mut self, now: Instant, sample: &Sample) {
        self.min_rtt = Some(sample.min_rtt);
        if has_no_queue(sample) {
            self.uncrowded = now;
        }
        self.note_lateness(sample);
        self.smooth(sample.rtt);
        self.own_lateness.note(now, sample.lateness.own);
        self.peers_lateness.note(now, sample.lateness.peers);
    }

    /// The longest recent lateness of each end.
    pub(super) fn lateness(&self) -> Lateness {
        Lateness {
            own: self.own_lateness.get(),
            peers: self.peers_lateness.get(),
        }
    }

    /// Whether the round trip of this round was much longer than the shortest.
    pub(super) fn note_round(&mut self, round: &Round) -> bool {
        let queued = self.is_queued(round);
        let long = self.min_rtt.is_some_and(|it| it >= LONG_RTT);
        self.crowded_rounds = match queued && long {
            true => self.crowded_rounds + 1,
            false => 0,
        };
        queued
    }

    fn is_queued(&self, round: &Round) -> bool {
        let (Some(min_rtt), Some(mean)) = (self.min_rtt, round.rtt()) else {
            return false;
        };
        // Our own bursts take time as well.
        let slack = quantum_time(min_rtt) + NOISE;
        mean > min_rtt + min_rtt / 4 + slack
    }

    /// The excess of the round trip over the shortest.
    pub(super) fn queue(&self, mean: Duration) -> Duration {
        mean.saturating_sub(self.min_rtt.unwrap_or_default())
    }

    fn note_lateness(&mut self, sample: &Sample) {
        let slack = sample.min_rtt / LATE_PART + quantum_time(sample.min_rtt) + NOISE;
        // On shorter paths a late end looks the same.
        let late = sample.min_rtt >= LONG_RTT && sample.rtt > sample.min_rtt + slack;
        // A descheduled end answers everything at once, so later bursts seem to be answered sooner.
        let grows = sample.rtt + NOISE >= self.latest_rtt;
        self.latest_rtt = sample.rtt;
        self.late_samples = if late && grows {
            self.late_samples + 1
        } else {
            0
        };
    }

    /// Whether several consecutive answers came late: a queue grows, and more payload would only lengthen it.
    pub(super) fn is_queuing(&self) -> bool {
        self.late_samples >= LATE_SAMPLES
    }

    /// Whether the last answer came late.
    pub(super) fn is_late(&self) -> bool {
        self.late_samples > 0
    }

    /// Whether others fill the queue.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded_rounds >= CROWDED_ROUNDS
    }

    /// The queue no longer counts as crowded.
    pub(super) fn cleared(&mut self) {
        self.crowded_rounds = 0;
    }

    /// Whether to probe for the shortest round trip.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        now - self.uncrowded > PROBE_RTT_INTERVAL
    }

    /// The probe is done.
    pub(super) fn probed(&mut self, now: Instant) {
        self.uncrowded = now;
    }

    /// How late a busy end answers.
    pub(super) fn unsteadiness(&self) -> Duration {
        let most = (self.min_rtt.unwrap_or_default() / 2).min(MAX_UNSTEADINESS);
        (self.smoothed.1 * 2).min(most)
    }

    /// Recent mean of the round trip.
    pub(super) fn mean(&self) -> Option<Duration> {
        Some(self.smoothed.0).filter(|mean| !mean.is_zero())
    }

    fn smooth(&mut self, rtt: Duration) {
        let (mean, deviation) = self.smoothed;
        self.smoothed = match mean.is_zero() {
            true => (rtt, Duration::ZERO),
            false => (
                (mean * 7 + rtt) / 8,
                (deviation * 3 + mean.abs_diff(rtt)) / 4,
            ),
        };
    }
}

/// Whether the round trip was close to the shortest.
pub(super) fn has_no_queue(sample: &Sample) -> bool {
    sample.rtt <= sample.min_rtt + sample.min_rtt / 8
}

#[cfg(test)]
#[path = "delay_tests.rs"]
mod tests;
