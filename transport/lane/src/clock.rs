//! The clock that the core is not allowed to have.

use nix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use zerolane_core::Instant;

/// When the first clock of the process was made, by the system's. All share it, for connections that share a
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

/// What `std::time::Instant` reads. That gives differences alone, each of which takes as long as the reading.
fn system_nanos() -> u64 {
    // It is in every kernel.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a monotonic clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
