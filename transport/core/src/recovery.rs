//! When silence means loss: the round trip measured, and the timeout made of it.
//!
//! Everything else asks [`Recovery`] how long to wait; nothing else knows why.

use crate::limits::{
    INITIAL_RTO, KNOWN_AFTER_SAMPLES, MAX_RTO, MAX_RTT, MIN_DATA_RTO, MIN_DATA_TIMEOUT, MIN_RTO,
};
use crate::{Instant, TransferId};
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

/// How long the shortest round trip is remembered at least (twice that at most): a path may change.
const MIN_MEMORY: Duration = Duration::from_secs(10);

/// The shortest round trip lately.
#[derive(Clone, Copy, Debug)]
struct Shortest {
    now: Duration,
    before: Duration,
    since: Instant,
}

/// A mean and its deviation, by RFC 6298's smoothing.
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

    /// What hardly any takes longer than.
    fn bound(self) -> Duration {
        self.mean.saturating_add(self.deviation * 4)
    }
}

/// Round-trip estimate and back-off.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    smoothed: Option<Estimate>,
    /// How long numbered operations took to be confirmed. That is the path, and a peer that may have a thousand
    /// connections to serve before this one: it tells how long to wait, and nothing of the path.
    confirmations: Option<Estimate>,
    /// The operation that is being timed, and when it left.
    operation: Option<(u32, Instant)>,
    shortest: Option<Shortest>,
    /// Shortest of those from which nothing was taken off. The handshake is none: it may wait for a
    /// program.
    asked: Option<Duration>,
    samples: u32,
    backoff: u32,
    /// Classic profile: a fixed wait for payload, as the thesis's implementation had.
    fixed: Option<Duration>,
    /// The one request being timed, and when it left.
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

    /// From here on the wait for payload is `wait`, whatever is measured.
    pub(crate) fn fix_data_timeout(&mut self, wait: Duration) {
        self.fixed = Some(wait.max(MIN_DATA_TIMEOUT));
    }

    /// Starts timing `request`, unless one is being timed. A measurement that never ends (the
    /// Transfer was cancelled, the Nop lost) must not be the last one.
    pub(crate) fn time(&mut self, request: Timed, now: Instant) {
        let stale = |since| now - since > MAX_RTO * 4;
        if self.probe.is_none_or(|(_, since)| stale(since)) {
            self.probe = Some((request, now));
        }
    }

    /// Whether an answer is awaited that tells the round trip.
    pub(crate) fn is_timing(&self) -> bool {
        self.probe.is_some()
    }

    /// `request` was repeated, so that its answer could be to either (Karn), or it is void.
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

    /// A question of a path of its own was answered after `rtt`.
    pub(crate) fn asked(&mut self, now: Instant, rtt: Duration) {
        self.asked = Some(self.asked.map_or(rtt, |asked| asked.min(rtt)));
        self.sample(now, rtt);
    }

    /// The round trip, if a report of what arrived came after `elapsed` and claims to have waited for `delay`
    /// at the peer: half of the quickest answer to a question at least. A peer could make any path look
    /// short by claiming more delay, or what has not arrived yet; no answer comes sooner than the path lets
    /// it. (RFC 9002, 5.3, does not let a claim go below the quickest answer. Here that is rare, and may
    /// take longer than a burst's first packet.)
    pub(crate) fn less_delay(&self, elapsed: Duration, delay: Duration) -> Duration {
        elapsed.saturating_sub(delay).max(self.least())
    }

    /// Whether [`Recovery::less_delay`] does not believe the claim, and no answer is awaited that could tell:
    /// a question is due. The answers so far may have been slow, or the path is shorter now.
    pub(crate) fn doubts(&self, elapsed: Duration, delay: Duration) -> bool {
        self.probe.is_none() && elapsed.saturating_sub(delay) < self.least()
    }

    fn least(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| asked / 2)
    }

    /// A round trip took `rtt`.
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration) {
        self.sample_with(now, rtt, Duration::ZERO);
    }

    /// A round trip took `rtt`, and the ends were late by `lateness` besides: the path is no longer for that, but an
    /// answer takes as long.
    pub(crate) fn sample_with(&mut self, now: Instant, rtt: Duration, lateness: Duration) {
        if rtt > MAX_RTT {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        self.note_shortest(now, rtt);
        let (took, before) = (rtt + lateness, self.smoothed);
        self.smoothed = Some(before.map_or(Estimate::first(took), |it| it.next(took)));
    }

    /// Numbered operation `number` leaves for the first time. It is timed unless one is.
    pub(crate) fn time_operation(&mut self, number: u32, now: Instant) {
        self.operation.get_or_insert((number, now));
    }

    /// Operations are repeated: a confirmation could be of either (Karn).
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

    /// Shortest round trip of the last 10 to 20 seconds, if any was measured.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.shortest.map(|it| it.now.min(it.before))
    }

    /// Mean deviation of the round trip.
    pub(crate) fn deviation(&self) -> Duration {
        self.smoothed.map_or(Duration::ZERO, |it| it.deviation)
    }

    /// Whether the round trip was measured often enough to rely on it.
    pub(crate) fn is_known(&self) -> bool {
        self.samples >= KNOWN_AFTER_SAMPLES
    }

    /// Smoothed round trip, if any was measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.smoothed.map(|it| it.mean)
    }

    /// How long a peer that has something to say may be silent: [`Recovery::control_timeout`] before
    /// any back-off.
    pub(crate) fn patience(&self) -> Duration {
        let path = self.smoothed.map_or(INITIAL_RTO, Estimate::bound);
        let confirmations = self.confirmations.map_or(Duration::ZERO, Estimate::bound);
        path.max(confirmations).max(MIN_RTO)
    }

    /// The path is another: nothing is known of it. A fixed wait stays.
    pub(crate) fn forget(&mut self) {
        *self = Recovery {
            fixed: self.fixed,
            ..Recovery::adaptive()
        };
    }

    /// How long without an answer to a control operation means it was lost. Back-off ends at
    /// [`MAX_RTO`], unless the round trip itself is longer.
    pub(crate) fn control_timeout(&self) -> Duration {
        let base = self.patience();
        base.saturating_mul(1 << self.backoff)
            .min(MAX_RTO.max(base))
    }

    /// How long without payload, or without an answer to it, means loss: within two round trips once
    /// they are known.
    pub(crate) fn data_timeout(&self) -> Duration {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let base = self.repair_timeout();
        base.saturating_mul(1 << self.backoff)
            .min(MAX_RTO.max(base))
    }

    /// How long after it was asked for a repair is overdue.
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

    /// How old a burst is that may still be in flight: the receiver, which asks for it, has waited
    /// long enough at its end.
    pub(crate) fn flight_time(&self) -> Duration {
        self.rtt().map_or(INITIAL_RTO, |mean| mean + mean / 8)
    }

    /// A timeout struck: wait longer next time.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(6);
    }

    /// Whether a timeout struck since something moved.
    pub(crate) fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// Something moved.
    pub(crate) fn progress(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
