//! Limits a controller further when the user sets a maximum rate.

use super::{Congestion, Sample, in_time};
use crate::time::Instant;
use alloc::boxed::Box;
use core::time::Duration;

/// The bytes of this time may leave at once: so few wake-ups cost next to nothing.
const BURST: Duration = Duration::from_millis(1);
const MIN_BURST: u64 = 3_000;
/// Bytes of one send with segmentation offload.
const MAX_BURST: u64 = 64 << 10;
/// Longest lateness of this end that is compensated. Longer than the system's scheduler causes; as a burst, at most a
/// queue of 10 ms at that rate.
const CATCH_UP: Duration = Duration::from_millis(10);
/// Time between two questions to the receiver: at a low rate an answer must not wait for megabytes.
const QUESTIONS: Duration = Duration::from_millis(20);

/// A controller with an upper limit to its rate.
#[derive(Debug)]
pub(crate) struct Limited {
    pub(crate) controller: Box<dyn Congestion>,
    /// Payload bytes per second; `None`: no limit.
    pub(crate) max_rate: Option<u64>,
}

impl Limited {
    /// Whether the limit, not the controller, decides.
    fn binds(&self) -> bool {
        let pace = self.controller.pace().unwrap_or(u64::MAX);
        self.max_rate.is_some_and(|rate| rate < pace)
    }
}

impl Congestion for Limited {
    fn name(&self) -> &'static str {
        self.controller.name()
    }
    fn window(&self) -> u64 {
        self.controller.window()
    }
    fn pace(&self) -> Option<u64> {
        let pace = self.controller.pace();
        match self.max_rate {
            Some(rate) => Some(pace.unwrap_or(u64::MAX).min(rate)),
            None => pace,
        }
    }
    fn quantum(&self) -> u64 {
        let quantum = self.controller.quantum();
        match self.max_rate {
            Some(rate) => quantum.min(in_time(rate, BURST).clamp(MIN_BURST, MAX_BURST)),
            None => quantum,
        }
    }
    fn catch_up(&self) -> Duration {
        match self.binds() {
            true => CATCH_UP,
            false => self.controller.catch_up(),
        }
    }
    fn ack_request_interval(&self) -> u64 {
        let interval = self.controller.ack_request_interval();
        match self.max_rate {
            Some(rate) => interval.min(in_time(rate, QUESTIONS)),
            None => interval,
        }
    }
    fn wants_marks(&self) -> bool {
        self.controller.wants_marks()
    }
    fn on_progress(&mut self, now: Instant, sample: &Sample) {
        // The sample did not test the path.
        let limited = sample.limited || self.binds();
        let sample = Sample { limited, ..*sample };
        self.controller.on_progress(now, &sample);
    }
    fn on_lost(&mut self, now: Instant, bytes: u64) {
        self.controller.on_lost(now, bytes);
    }
    fn on_silence(&mut self, now: Instant) {
        self.controller.on_silence(now);
    }
    fn on_new_path(&mut self, rtt: Option<Duration>) {
        self.controller.on_new_path(rtt);
    }
}
