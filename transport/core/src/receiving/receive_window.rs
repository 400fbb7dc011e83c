//! Sizes the receive window from the arrival rate: how much the receiver grants ahead.
//!
//! The socket buffer holds the base even if it all arrives at once. A long path stores more by itself. There, the
//! window is several times the arrivals of a round trip, so that a sender that doubles its pace each round trip never
//! waits for grants. It shrinks again when less arrives.

use crate::time::Instant;
use core::time::Duration;

/// Shortest time over which the rate of arrival is measured.
const MIN_ROUND: Duration = Duration::from_millis(1);

/// A path is long from this round trip on. On a shorter one, all granted payload may arrive at once, and the lateness
/// of a busy machine may look like the path's.
const LONG_RTT: Duration = Duration::from_millis(3);

/// How long after an overflow of the socket buffer the window beyond the base is limited to the arrivals.
const OVERRUN_MEMORY: Duration = Duration::from_secs(1);

/// Round trips' worth granted on top of the base: one in flight, and the next one after it has doubled.
const PEAKS: u64 = 3;

/// Minimum lifetime of the highest rate, in rounds (twice that at most).
const MEMORY_ROUNDS: u32 = 32;

/// The window of a receiver.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWindow {
    base: u64,
    budget: u64,
    round_began: Instant,
    round_bytes: u64,
    rounds: u32,
    /// Highest bytes in a round trip: in the present period, and in the previous one.
    peak: u64,
    old_peak: u64,
    overrun_until: Instant,
    /// The socket buffer overflowed recently.
    overran: bool,
    /// Bytes of the last round trip.
    last: u64,
}

impl ReceiveWindow {
    /// A window of `base` bytes, or as many as the path needs, up to `budget`.
    pub(crate) fn new(base: u32, budget: u32) -> ReceiveWindow {
        ReceiveWindow {
            base: u64::from(base),
            budget: u64::from(budget.max(base)),
            round_began: Instant::ZERO,
            round_bytes: 0,
            rounds: 0,
            peak: 0,
            old_peak: 0,
            overrun_until: Instant::ZERO,
            overran: false,
            last: 0,
        }
    }

    /// `bytes` of payload arrived.
    pub(crate) fn arrived(&mut self, now: Instant, bytes: u32, min_rtt: Option<Duration>) {
        self.round_bytes += u64::from(bytes);
        let round = min_rtt.filter(|&it| it >= LONG_RTT).unwrap_or_default();
        let elapsed = now - self.round_began;
        if elapsed >= round.max(MIN_ROUND) {
            self.end_round(now, elapsed, round);
        }
    }

    /// The socket buffer overflowed. On a long path the reason is more often an end that was descheduled than one that
    /// is too slow. So payload may continue to arrive at the present rate, but not faster.
    pub(crate) fn overrun(&mut self, now: Instant) {
        (self.peak, self.old_peak) = (self.last, 0);
        (self.overran, self.overrun_until) = (true, now + OVERRUN_MEMORY);
    }

    fn end_round(&mut self, now: Instant, elapsed: Duration, round: Duration) {
        let (elapsed, round) = (elapsed.as_nanos().max(1), round.as_nanos());
        let bytes = u128::from(self.round_bytes) * round / elapsed;
        self.last = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.peak = self.peak.max(self.last);
        self.overran &= now < self.overrun_until;
        (self.round_began, self.round_bytes) = (now, 0);
        self.rounds += 1;
        if self.rounds >= MEMORY_ROUNDS {
            (self.rounds, self.old_peak, self.peak) = (0, self.peak, 0);
        }
    }

    /// Bytes that may be granted and not arrived.
    pub(crate) fn window(&self) -> u32 {
        let peaks = if self.overran { 1 } else { PEAKS };
        let path = self.peak.max(self.old_peak).saturating_mul(peaks);
        let wanted = self.base.saturating_add(path);
        u32::try_from(wanted.min(self.budget)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
#[path = "receive_window_tests.rs"]
mod tests;
