//! Measures the round trip, and derives every timeout from it.
//!
//! All other modules ask [`Recovery`] how long to wait.

use crate::limits::{
    INITIAL_RTO, KNOWN_AFTER_SAMPLES, MAX_RTO, MAX_RTT, MIN_DATA_RTO, MIN_DATA_TIMEOUT, MIN_RTO,
};
use crate::time::Instant;
use crate::transfer::TransferId;
use core::time::Duration;

/// A request whose answer tells the round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// Request_Connection, answered by Connection_Answer.
    Handshake,
    /// Request_To_Send, answered by a grant or a Request_Answer.
    Announcement(TransferId),
    /// The Clear_To_Send of a Block when nothing else was granted, answered by Data.
    Grant(TransferId),
    /// Nop with this Sync, which no other has.
    Nop(u32),
}

/// Minimum lifetime of the shortest round trip (at most twice that): a path may change.
const MIN_MEMORY: Duration = Duration::from_secs(10);

/// The shortest recent round trip.
#[derive(Clone, Copy, Debug)]
struct Shortest {
    now: Duration,
    before: Duration,
    since: Instant,
}

/// A mean and its deviation, smoothed as in RFC 6298.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    mean: Duration,
    deviation: Duration,
}

impl Estimate {
    fn first(sample: Duration) -> Estimate {
        Estimate {
            mean: sample,
            deviation: sample / 2,
        }
    }

    fn next(self, sample: Duration) -> Estimate {
        Estimate {
            mean: (self.mean * 7 + sample) / 8,
            deviation: (self.deviation * 3 + self.mean.abs_diff(sample)) / 4,
        }
    }

    /// An upper bound of most samples.
    fn bound(self) -> Duration {
        self.mean.saturating_add(self.deviation * 4)
    }
}

/// Round-trip estimate and back-off.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    smoothed: Option<Estimate>,
    /// How long numbered operations took to be confirmed. This includes a peer that may serve a thousand connections
    /// first, so it sets timeouts and tells nothing about the path.
    confirmations: Option<Estimate>,
    /// The timed operation, and its departure.
    operation: Option<(u32, Instant)>,
    shortest: Option<Shortest>,
    /// Shortest of the samples from which no delay was subtracted. Excludes the handshake, which may wait for a
    /// program.
    asked: Option<Duration>,
    samples: u32,
    backoff: u32,
    /// Classic profile: a fixed wait for payload, as the thesis's implementation had.
    fixed: Option<Duration>,
    /// The timed request, and its departure.
    probe: Option<(Timed, Instant)>,
}

impl Recovery {
    pub(crate) fn adaptive() -> Recovery {
        Recovery {
            smoothed: None,
            confirmations: None,
            operation: None,
            shortest: None,
            asked: None,
            samples: 0,
            backoff: 0,
            fixed: None,
            probe: None,
        }
    }

    /// Fixes the wait for payload at `wait`, whatever is measured.
    pub(crate) fn fix_data_timeout(&mut self, wait: Duration) {
        self.fixed = Some(wait.max(MIN_DATA_TIMEOUT));
    }

    /// Starts timing `request`, unless another is being timed. A measurement that never ends (the Transfer was
    /// cancelled, the Nop lost) must not block later ones.
    pub(crate) fn time(&mut self, request: Timed, now: Instant) {
        let stale = |since| now - since > MAX_RTO * 4;
        if self.probe.is_none_or(|(_, since)| stale(since)) {
            self.probe = Some((request, now));
        }
    }

    /// Whether a round-trip measurement is in progress.
    pub(crate) fn is_timing(&self) -> bool {
        self.probe.is_some()
    }

    /// Stops timing `request`: it was repeated, so that its answer is ambiguous (Karn's algorithm), or it is void.
    pub(crate) fn untime(&mut self, request: Timed) {
        self.probe.take_if(|probe| probe.0 == request);
    }

    /// `request` was answered.
    pub(crate) fn answered(&mut self, request: Timed, now: Instant) {
        if let Some((_, sent)) = self.probe.take_if(|probe| probe.0 == request) {
            let rtt = now - sent;
            if request != Timed::Handshake {
                self.asked = Some(self.asked.map_or(rtt, |asked| asked.min(rtt)));
            }
            self.sample(now, rtt);
        }
    }

    /// The answer to a path's own question took `rtt`.
    pub(crate) fn asked(&mut self, now: Instant, rtt: Duration) {
        self.asked = Some(self.asked.map_or(rtt, |asked| asked.min(rtt)));
        self.sample(now, rtt);
    }

    /// The round trip, if a report of arrivals came after `elapsed` and the peer claims that it delayed the report by
    /// `delay`. Never below half of the quickest answer to a question: a peer could make any path look short by
    /// claiming more delay, or unsent payload; no answer is quicker than the path. (RFC 9002, 5.3, does not let a claim
    /// go below the quickest answer. Here answers are rare, and may take longer than a burst's first packet.)
    pub(crate) fn less_delay(&self, elapsed: Duration, delay: Duration) -> Duration {
        elapsed.saturating_sub(delay).max(self.least())
    }

    /// Whether [`Recovery::less_delay`] rejects the claim, and no measurement is in progress that could tell: then a
    /// question is due. The answers so far may have been slow, or the path is shorter now.
    pub(crate) fn doubts(&self, elapsed: Duration, delay: Duration) -> bool {
        self.probe.is_none() && elapsed.saturating_sub(delay) < self.least()
    }

    fn least(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| asked / 2)
    }

    /// Takes a round-trip sample of `rtt`.
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration) {
        self.sample_with(now, rtt, Duration::ZERO);
    }

    /// Takes a round-trip sample of `rtt`, and `lateness` of the ends besides. The lateness does not lengthen the path,
    /// but an answer takes that much longer.
    pub(crate) fn sample_with(&mut self, now: Instant, rtt: Duration, lateness: Duration) {
        if rtt > MAX_RTT {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        self.note_shortest(now, rtt);
        let (took, before) = (rtt + lateness, self.smoothed);
        self.smoothed = Some(before.map_or(Estimate::first(took), |it| it.next(took)));
    }

    /// Numbered operation `number` leaves for the first time. Times it, unless another is being timed.
    pub(crate) fn time_operation(&mut self, number: u32, now: Instant) {
        self.operation.get_or_insert((number, now));
    }

    /// Operations were repeated, so that a confirmation is ambiguous (Karn's algorithm).
    pub(crate) fn untime_operation(&mut self) {
        self.operation = None;
    }

    /// All operations numbered below `expected` are confirmed.
    pub(crate) fn operations_confirmed(&mut self, expected: u32, now: Instant) {
        let below = |number: u32| expected.wrapping_sub(number).wrapping_sub(1) < u32::MAX / 2;
        let Some((_, sent)) = self.operation.take_if(|it| below(it.0)) else {
            return;
        };
        let took = now - sent;
        if took <= MAX_RTT {
            let before = self.confirmations;
            self.confirmations = Some(before.map_or(Estimate::first(took), |it| it.next(took)));
        }
    }

    fn note_shortest(&mut self, now: Instant, rtt: Duration) {
        let fresh = Shortest {
            now: rtt,
            before: rtt,
            since: now,
        };
        let shortest = self.shortest.get_or_insert(fresh);
        if now - shortest.since > MIN_MEMORY {
            *shortest = Shortest {
                before: shortest.now,
                ..fresh
            };
        }
        shortest.now = shortest.now.min(rtt);
    }

    /// Shortest round trip of the last 10 to 20 seconds, if measured.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.shortest.map(|it| it.now.min(it.before))
    }

    /// Mean deviation of the round trip.
    pub(crate) fn deviation(&self) -> Duration {
        self.smoothed.map_or(Duration::ZERO, |it| it.deviation)
    }

    /// Whether enough samples exist to rely on the round trip.
    pub(crate) fn is_known(&self) -> bool {
        self.samples >= KNOWN_AFTER_SAMPLES
    }

    /// Smoothed round trip, if measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.smoothed.map(|it| it.mean)
    }

    /// How long a peer that owes an answer may be silent: [`Recovery::control_timeout`] without back-off.
    pub(crate) fn patience(&self) -> Duration {
        let path = self.smoothed.map_or(INITIAL_RTO, Estimate::bound);
        let confirmations = self.confirmations.map_or(Duration::ZERO, Estimate::bound);
        path.max(confirmations).max(MIN_RTO)
    }

    /// Forgets the path: it was replaced. A fixed wait stays.
    pub(crate) fn forget(&mut self) {
        *self = Recovery {
            fixed: self.fixed,
            ..Recovery::adaptive()
        };
    }

    /// How long a control operation may be unanswered before it counts as lost. Back-off ends at [`MAX_RTO`], unless
    /// the round trip itself is longer.
    pub(crate) fn control_timeout(&self) -> Duration {
        let base = self.patience();
        base.saturating_mul(1 << self.backoff)
            .min(MAX_RTO.max(base))
    }

    /// How long payload, or an answer to it, may stay out before it counts as lost: usually under two round trips, once
    /// the round trip is known.
    pub(crate) fn data_timeout(&self) -> Duration {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let base = self.repair_timeout();
        base.saturating_mul(1 << self.backoff)
            .min(MAX_RTO.max(base))
    }

    /// How long after a request its repair is overdue.
    pub(crate) fn repair_timeout(&self) -> Duration {
        let Some(Estimate { mean, deviation }) = self.smoothed else {
            return INITIAL_RTO;
        };
        let least = if self.is_known() {
            MIN_DATA_RTO
        } else {
            MIN_RTO
        };
        (mean + (deviation * 4).max(mean / 4)).max(least)
    }

    /// Longest age of a burst that may still be in flight. The receiver, which asks for it, has already waited at its
    /// end.
    pub(crate) fn flight_time(&self) -> Duration {
        self.rtt().map_or(INITIAL_RTO, |mean| mean + mean / 8)
    }

    /// A timer expired: doubles the next wait.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(6);
    }

    /// Whether a timer expired since the last progress.
    pub(crate) fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// Resets the back-off: there was progress.
    pub(crate) fn progress(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
