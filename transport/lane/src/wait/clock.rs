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
    #[cfg(test)]
    is_of_thread: bool,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            epoch: *EPOCH.get_or_init(system_nanos),
            #[cfg(test)]
            is_of_thread: false,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        #[cfg(test)]
        if self.is_of_thread {
            return Instant::from_nanos(thread_nanos().wrapping_sub(self.epoch));
        }
        Instant::from_nanos(system_nanos() - self.epoch)
    }
}

/// A clock that stands still while its thread does not run, so that results do not depend on how busy a machine is.
#[cfg(test)]
impl Clock {
    /// Continues from `now` with the CPU time of the calling thread, which alone may read it, and must not sleep.
    pub(crate) fn of_this_thread(now: Instant) -> Clock {
        Clock {
            epoch: thread_nanos().wrapping_sub(now.as_nanos()),
            is_of_thread: true,
        }
    }

    pub(crate) fn is_of_thread(&self) -> bool {
        self.is_of_thread
    }
}

#[cfg(test)]
fn thread_nanos() -> u64 {
    nanos(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The clock behind `std::time::Instant`. `Instant` yields only differences, each of which costs as much as the
/// reading.
fn system_nanos() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC)
}

fn nanos(clock: ClockId) -> u64 {
    // Every kernel has it.
    let time = clock_gettime(clock).expect("a clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
