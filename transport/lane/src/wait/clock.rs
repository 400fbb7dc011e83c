//! Reads the monotonic clock for the core, which takes time as an input.

use nix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use zerolane_core::Instant;

/// The system clock's time when the process made its first clock. All clocks share it, because connections of one
/// scheduler compare their times.
static EPOCH: OnceLock<u64> = OnceLock::new();

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: u64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            epoch: *EPOCH.get_or_init(system_nanos),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(system_nanos() - self.epoch)
    }
}

/// The clock behind `std::time::Instant`. `Instant` yields only differences, each of which costs as much as the
/// reading.
fn system_nanos() -> u64 {
    // Every kernel has it.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a monotonic clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
