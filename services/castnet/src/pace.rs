//! Limits a node's forwarding rate to slightly more than its receive rate.
//!
//! A chunk sent at full speed fills the queue of the host's own interface, and acknowledgements to the predecessor wait
//! behind it. The predecessor takes late acknowledgements for a queue on the path and slows down. Chunks from the store are
//! not paced, because they go to a peer that has fallen behind.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{PACE_PERCENT, PACED_CHUNKS};

/// Multiple of the mean time between two chunks after which earlier chunks are ignored.
const PAUSED: u32 = 8;

/// The chunks that came last.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    came: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// Records a received chunk of `bytes` bytes.
    pub(crate) fn note(&mut self, now: Duration, bytes: u64) {
        if let (true, Some(first), Some(last)) = (
            self.came.len() == PACED_CHUNKS,
            self.came.front(),
            self.came.back(),
        ) {
            let mean = last.0.saturating_sub(first.0) / (PACED_CHUNKS as u32 - 1);
            match now.saturating_sub(last.0) > mean * PAUSED {
                // After a pause, the rate may differ.
                true => self.came.clear(),
                false => drop(self.came.pop_front()),
            }
        }
        self.came.push_back((now, bytes));
    }

    /// Bytes a second at which they are passed on: the rate at which they came, and a part more to catch up. `None`: as fast
    /// as can be, for too few have come to tell.
    pub(crate) fn rate(&self) -> Option<u64> {
        let (first, last) = (self.came.front()?, self.came.back()?);
        if self.came.len() < PACED_CHUNKS {
            return None;
        }
        let bytes: u64 = self.came.iter().skip(1).map(|it| it.1).sum();
        let micros = last.0.saturating_sub(first.0).as_micros().max(1);
        let rate = u128::from(bytes) * 1_000_000 / micros;
        u64::try_from(rate * u128::from(PACE_PERCENT) / 100).ok()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn rate__a_part_more_than_that_of_the_last_chunks() {
        let mut pace = Pace::default();
        for chunk in 0..PACED_CHUNKS as u32 {
            assert_eq!(pace.rate(), None, "too few");
            pace.note(Duration::from_millis(10) * chunk, 1_000_000);
        }
        assert_eq!(pace.rate(), Some(100_000_000 * PACE_PERCENT / 100));
        // After a pause it is measured anew.
        let since = Duration::from_secs(1);
        for chunk in 0..PACED_CHUNKS as u32 {
            pace.note(since + Duration::from_millis(20) * chunk, 1_000_000);
            let measured = chunk + 1 == PACED_CHUNKS as u32;
            assert_eq!(pace.rate().is_some(), measured, "chunk {chunk}");
        }
        assert_eq!(pace.rate(), Some(50_000_000 * PACE_PERCENT / 100));
    }
}
