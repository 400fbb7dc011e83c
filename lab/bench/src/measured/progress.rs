//! Records bytes over time.

use std::time::{Duration, Instant};

use super::Measured;

/// How many bytes came in each part of a flow's time.
pub(crate) struct Progress<'a> {
    start: Instant,
    time: Duration,
    part: Duration,
    /// Bytes of each part that is over.
    samples: Vec<u64>,
    /// Bytes of all of those.
    sum: u64,
    /// Told the bytes of each part when it is over.
    tell: &'a dyn Fn(u64),
}

impl Progress<'_> {
    /// A flow of `time` begins.
    pub(crate) fn start(time: Duration, part: Duration, tell: &dyn Fn(u64)) -> Progress<'_> {
        Progress {
            start: Instant::now(),
            time,
            part,
            samples: Vec::new(),
            sum: 0,
            tell,
        }
    }

    /// `total` bytes are there by now.
    pub(crate) fn reached(&mut self, total: u64) {
        self.note(self.start.elapsed(), total);
    }

    /// How long to wait at most, from now; `None` when the time is over.
    pub(crate) fn left(&self) -> Option<Duration> {
        let elapsed = self.start.elapsed();
        let left = self.time.checked_sub(elapsed)?;
        let of_part = self.end_of_part().saturating_sub(elapsed);
        (!left.is_zero()).then_some(left.min(of_part))
    }

    /// What was measured of the flow, which is over with `total` bytes.
    pub(crate) fn measured(self, total: u64) -> Measured {
        let elapsed = self.start.elapsed();
        self.ended(elapsed, total)
    }

    /// The last part ends with the flow, whenever that was noticed: the parts are as many as were asked for, and their
    /// sum is all.
    fn ended(mut self, elapsed: Duration, total: u64) -> Measured {
        self.note(self.time, total);
        self.close(total);
        Measured {
            samples: self.samples,
            ..Measured::stream(total, elapsed.as_secs_f64())
        }
    }

    fn end_of_part(&self) -> Duration {
        let parts = u32::try_from(self.samples.len() + 1).unwrap_or(u32::MAX);
        self.part.saturating_mul(parts)
    }

    fn note(&mut self, elapsed: Duration, total: u64) {
        while self.end_of_part() < self.time && self.end_of_part() <= elapsed {
            self.close(total);
        }
    }

    fn close(&mut self, total: u64) {
        let bytes = total - self.sum;
        self.samples.push(bytes);
        self.sum = total;
        (self.tell)(bytes);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const PART: Duration = Duration::from_secs(10);

    /// A flow of so many seconds, of which it is noted what was there after which; what was told, and measured.
    fn flow(seconds: u64, noted: &[(u64, u64)], end: (u64, u64)) -> (Vec<u64>, Measured) {
        let told = RefCell::new(Vec::new());
        let tell = |bytes| told.borrow_mut().push(bytes);
        let mut progress = Progress::start(Duration::from_secs(seconds), PART, &tell);
        for &(second, total) in noted {
            progress.note(Duration::from_secs(second), total);
        }
        let measured = progress.ended(Duration::from_secs(end.0), end.1);
        (told.into_inner(), measured)
    }

    #[test]
    fn samples__are_the_bytes_of_each_part() {
        let (told, measured) = flow(60, &[(1, 5), (10, 7), (35, 20), (40, 21)], (60, 22));
        assert_eq!(measured.samples, [7, 13, 0, 1, 1, 0]);
        assert_eq!(told, measured.samples);
    }

    #[test]
    fn samples__end_with_the_flow_and_add_up_to_all() {
        for (seconds, end, samples) in [
            // The time is no whole number of parts.
            (25, 25, &[3, 1, 5][..]),
            // The end was noticed late, when other parts would have been over.
            (20, 47, &[3, 6]),
            (5, 5, &[9]),
        ] {
            let noted = [(10, 3), (20, 4)].into_iter();
            let noted: Vec<_> = noted.filter(|it| it.0 < seconds).collect();
            let (told, measured) = flow(seconds, &noted, (end, 9));
            assert_eq!((measured.bytes, &measured.samples[..]), (9, samples));
            assert_eq!(told, samples);
        }
    }
}
