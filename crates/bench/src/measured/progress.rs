//! Bytes over time.

use std::time::{Duration, Instant};

use super::Measured;

/// How many bytes came in each part of a flow's time.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    time: Duration,
    part: Duration,
    /// Bytes at the end of each part that is over.
    totals: Vec<u64>,
}

impl Progress {
    /// A flow of `time` begins.
    pub(crate) fn start(time: Duration, part: Duration) -> Progress {
        Progress {
            start: Instant::now(),
            time,
            part,
            totals: Vec::new(),
        }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// `total` bytes are there by now.
    pub(crate) fn reached(&mut self, total: u64) {
        self.note(self.elapsed(), total);
    }

    /// How long to wait at most, from now; `None` when the time is over.
    pub(crate) fn left(&self) -> Option<Duration> {
        let elapsed = self.elapsed();
        let left = self.time.checked_sub(elapsed)?;
        let of_part = self.end_of_part().saturating_sub(elapsed);
        (!left.is_zero()).then_some(left.min(of_part))
    }

    /// What was measured of the flow.
    pub(crate) fn measured(&self, bytes: u64) -> Measured {
        Measured {
            samples: self.samples(),
            ..Measured::stream(bytes, self.elapsed().as_secs_f64())
        }
    }

    /// Bytes of each part.
    fn samples(&self) -> Vec<u64> {
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
        let mut progress = Progress::start(Duration::from_secs(60), Duration::from_secs(10));
        for (second, total) in [(1, 5), (10, 7), (35, 20), (40, 21)] {
            progress.note(Duration::from_secs(second), total);
        }
        assert_eq!(progress.samples(), [7, 13, 0, 1]);
    }
}
