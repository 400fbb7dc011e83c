//! When silence means loss: the round trip measured, and the timeout made of it.
//!
//! Everything else asks [`Recovery`] how long to wait; nothing else knows why.

use crate::Instant;
use crate::limits::{INITIAL_RTO, MAX_RTO, MIN_RTO};
use std::time::Duration;

/// Round-trip estimate (RFC 6298's smoothing) and back-off.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    smoothed: Option<(Duration, Duration)>,
    backoff: u32,
    /// Classic profile: a fixed wait, as the thesis's implementation had.
    fixed: Option<Duration>,
    /// The one request being timed: Sync or Transfer id, and when it left.
    probe: Option<(u32, Instant)>,
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

    pub(crate) fn fixed(wait: Duration) -> Recovery {
        Recovery {
            fixed: Some(wait),
            ..Recovery::adaptive()
        }
    }

    /// Starts timing request `tag`, unless one is being timed.
    pub(crate) fn time(&mut self, tag: u32, now: Instant) {
        self.probe.get_or_insert((tag, now));
    }

    /// Request `tag` was repeated: its answer could be to either (Karn).
    pub(crate) fn untime(&mut self, tag: u32) {
        self.probe.take_if(|probe| probe.0 == tag);
    }

    /// Request `tag` was answered.
    pub(crate) fn answered(&mut self, tag: u32, now: Instant) {
        if let Some((_, sent)) = self.probe.take_if(|probe| probe.0 == tag) {
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

    /// How long without an answer to a control operation means it was lost.
    pub(crate) fn control_timeout(&self) -> Duration {
        let base = match self.smoothed {
            None => INITIAL_RTO,
            Some((mean, deviation)) => mean + deviation * 4,
        };
        (base.max(MIN_RTO) * (1 << self.backoff.min(6))).min(MAX_RTO)
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
