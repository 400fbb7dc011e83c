//! The clock that the core is not allowed to have.

use std::sync::OnceLock;
use zerolane_core::Instant;

/// When the first clock of the process was made. All share it, for connections that share a
/// scheduler compare their times.
static EPOCH: OnceLock<std::time::Instant> = OnceLock::new();

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            epoch: *EPOCH.get_or_init(std::time::Instant::now),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }
}
