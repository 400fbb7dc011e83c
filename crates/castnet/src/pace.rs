//! How fast a node passes on what comes to it: hardly faster than it comes.
//!
//! A chunk that leaves as fast as the sender can stands in the queue of the host's own interface until the last of it is
//! out, and what this host has to answer to its predecessor stands behind it. The predecessor then sees an answer that
//! comes late, takes that for a queue on the way, and sends less. What comes from the store has no such measure: it goes to
//! one that is behind.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{PACE_PERCENT, PACED_CHUNKS};

/// Times the mean time between two chunks, after which nothing is made of those before.
const PAUSED: u32 = 8;

/// The chunks that came last.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    came: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// A chunk of so many bytes has come.
    pub(crate) fn note(&mut self, now: Duration, bytes: u64) {
        if let (true, Some(first), Some(last)) = (
            self.came.len() == PACED_CHUNKS,
            self.came.front(),
            self.came.back(),
        ) {
            let mean = last.0.saturating_sub(first.0) / (PACED_CHUNKS as u32 - 1);
            match now.saturating_sub(last.0) > mean * PAUSED {
                // What comes now may come at another rate.
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
