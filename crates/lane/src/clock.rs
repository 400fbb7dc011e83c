//! The clock that the core is not allowed to have.

use zerolane_core::Instant;

/// A monotonic clock whose epoch is its making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            epoch: std::time::Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }
}
