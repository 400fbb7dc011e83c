//! When silence means loss: the round trip measured, and the timeout made of it.
//!
//! Everything else asks [`Recovery`] how long to wait; nothing else knows why.

use crate::limits::{INITIAL_RTO, MAX_RTO, MIN_DATA_TIMEOUT, MIN_RTO};
use crate::{Instant, TransferId};
use std::time::Duration;

/// A request whose answer tells the round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// Request_Connection, answered by Connection_Answer.
    Handshake,
    /// Request_To_Send, answered by a grant or a Request_Answer.
    Announcement(TransferId),
    /// Clear_To_Send, answered by Data.
    Grant(TransferId),
    /// Nop with this Sync, which no other has.
    Nop(u32),
}

/// Round-trip estimate (RFC 6298's smoothing) and back-off.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    smoothed: Option<(Duration, Duration)>,
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

    /// `request` was repeated, so that its answer could be to either (Karn), or it is void.
    pub(crate) fn untime(&mut self, request: Timed) {
        self.probe.take_if(|probe| probe.0 == request);
    }

    /// `request` was answered.
    pub(crate) fn answered(&mut self, request: Timed, now: Instant) {
        if let Some((_, sent)) = self.probe.take_if(|probe| probe.0 == request) {
            self.sample(now - sent);
        }
    }

    fn sample(&mut self, rtt: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2),
            Some((mean, deviation)) => (
                (mean * 7 + rtt) / 8,
                (deviation * 3 + mean.abs_diff(rtt)) / 4,
            ),
        });
    }

    /// Smoothed round trip, if any was measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.smoothed.map(|(mean, _)| mean)
    }

    /// How long without an answer to a control operation means it was lost. Back-off ends at
    /// [`MAX_RTO`], unless the round trip itself is longer.
    pub(crate) fn control_timeout(&self) -> Duration {
        let base = match self.smoothed {
            None => INITIAL_RTO,
            Some((mean, deviation)) => mean.saturating_add(deviation * 4),
        };
        let base = base.max(MIN_RTO);
        base.saturating_mul(1 << self.backoff)
            .min(MAX_RTO.max(base))
    }

    /// How long without payload means it was lost.
    pub(crate) fn data_timeout(&self) -> Duration {
        self.fixed.unwrap_or_else(|| self.control_timeout())
    }

    /// A timeout struck: wait longer next time.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(6);
    }

    /// Something moved.
    pub(crate) fn progress(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
