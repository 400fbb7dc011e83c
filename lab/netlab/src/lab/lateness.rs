//! Measures how late frames leave.

use hdrhistogram::Histogram;
use std::time::Duration;

/// How late frames left, compared with the model: the jitter that the machine
/// adds. Taken when the system call that sent a frame, and up to a batch of
/// others, has returned, so it includes the receiver's part of the kernel's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Frames counted.
    pub frames: u64,
    /// Half of the frames were at most this late.
    pub median: Duration,
    /// 99 of 100 frames were at most this late.
    pub p99: Duration,
    /// No frame was later.
    pub max: Duration,
}

/// Counts delays; values keep two significant digits.
#[derive(Clone, Debug)]
pub(super) struct Delays(Histogram<u64>);

const SIGNIFICANT_DIGITS: u8 = 2;

/// Longer delays count as this long. It bounds the memory.
const LONGEST: Duration = Duration::from_secs(100);

impl Default for Delays {
    fn default() -> Self {
        let longest = LONGEST.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, longest, SIGNIFICANT_DIGITS);
        // Fails only for more than five digits and for bounds out of order.
        Self(histogram.expect("two digits, 1 ns to 100 s"))
    }
}

impl Delays {
    pub(super) fn record(&mut self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    pub(super) fn reset(&mut self) {
        self.0.reset();
    }

    pub(super) fn summary(&self) -> Lateness {
        Lateness {
            frames: self.0.len(),
            median: Duration::from_nanos(self.0.value_at_quantile(0.5)),
            p99: Duration::from_nanos(self.0.value_at_quantile(0.99)),
            max: Duration::from_nanos(self.0.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    #[test]
    fn summary__tells_the_middle_from_the_tail() {
        let mut delays = Delays::default();
        for micros in 1..=1000 {
            delays.record(Duration::from_micros(micros));
        }
        let Lateness {
            frames,
            median,
            p99,
            max,
        } = delays.summary();
        assert_eq!(frames, 1000);
        let near = |value: Duration, micros: u64| {
            let wanted = Duration::from_micros(micros);
            value.abs_diff(wanted) <= wanted / 50
        };
        assert!(near(median, 500), "{median:?}");
        assert!(near(p99, 990), "{p99:?}");
        assert!(near(max, 1000), "{max:?}");
    }

    #[test]
    fn reset__forgets() {
        let mut delays = Delays::default();
        delays.record(Duration::from_secs(1));
        delays.reset();
        assert_eq!(delays.summary(), Lateness::default());
    }
}
