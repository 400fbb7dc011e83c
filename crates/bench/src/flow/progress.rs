//! Bytes over time.

use std::time::{Duration, Instant};

/// How many bytes came in each part of a flow's time.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
    part: Duration,
    /// Bytes at the end of each part that is over.
    totals: Vec<u64>,
}

impl Progress {
    pub(super) fn start(part: Duration) -> Progress {
        Progress {
            start: Instant::now(),
            part,
            totals: Vec::new(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// `total` bytes are there by now.
    pub(super) fn reached(&mut self, total: u64) {
        self.note(self.elapsed(), total);
    }

    /// When the part that runs will be over, from now.
    pub(super) fn until_next(&self) -> Duration {
        self.end_of_part().saturating_sub(self.elapsed())
    }

    /// Bytes of each part.
    pub(super) fn samples(&self) -> Vec<u64> {
        let before = std::iter::once(&0).chain(&self.totals);
        let pairs = self.totals.iter().zip(before);
        pairs.map(|(total, before)| total - before).collect()
    }

    fn end_of_part(&self) -> Duration {
        let parts = u32::try_from(self.totals.len() + 1).unwrap_or(u32::MAX);
        self.part.saturating_mul(parts)
    }

    fn note(&mut self, elapsed: Duration, total: u64) {
        while self.end_of_part() <= elapsed {
            self.totals.push(total);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn samples__are_the_bytes_of_each_part() {
        let mut progress = Progress::start(Duration::from_secs(10));
        for (second, total) in [(1, 5), (10, 7), (35, 20), (40, 21)] {
            progress.note(Duration::from_secs(second), total);
        }
        assert_eq!(progress.samples(), [7, 13, 0, 1]);
    }
}
