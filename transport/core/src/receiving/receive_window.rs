//! How much the receiver grants ahead.
//!
//! The socket buffer holds the base, whatever comes at once. A long path holds more by itself: there
//! the credit follows what arrives in a round trip, several times over, so that a sender that doubles
//! its pace each round trip never waits for grants; and it shrinks again when less comes.

use crate::Instant;
use core::time::Duration;

/// Shortest time over which the rate of arrival is measured.
const MIN_ROUND: Duration = Duration::from_millis(1);

/// A path is long from this round trip on. On a shorter one, whatever is granted may come at once,
/// and the time of a busy machine may look like the path's.
const LONG_RTT: Duration = Duration::from_millis(3);

/// How long no more than what arrives is granted on top of the base, after the socket buffer overflowed.
const OVERRUN_MEMORY: Duration = Duration::from_secs(1);

/// Round trips' worth granted on top of the base: one in flight, and what the next one is once it
/// has doubled.
const PEAKS: u64 = 3;

/// How long, in rounds, the highest rate is remembered at least (twice that at most).
const MEMORY_ROUNDS: u32 = 32;

/// The window of a receiver.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWindow {
    base: u64,
    budget: u64,
    round_began: Instant,
    round_bytes: u64,
    rounds: u32,
    /// Highest bytes in a round trip: of the present memory, and of the one before.
    peak: u64,
    old_peak: u64,
    overrun_until: Instant,
    /// It overflowed lately.
    overran: bool,
    /// Bytes of the last round trip.
    last: u64,
}

impl ReceiveWindow {
    /// `base` bytes, or as many as the path needs up to `budget`.
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

    /// More came at once than the socket buffer held. On a long path that is an end which was off its
    /// core more often than one that is too slow, so what arrives may go on arriving, but not faster.
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
