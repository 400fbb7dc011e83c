//! Reads the network's clock, and converts the kernel's time stamps to it.

use std::time::{Duration, Instant, SystemTime};

/// Time since the network started. The kernel stamps frames with the wall
/// clock, which may be set while we run; so each stamp is taken as so much
/// before a moment at which both clocks were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Since the network started.
    pub(super) now: Duration,
    wall: SystemTime,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    pub(super) fn now(self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn moment(self) -> Moment {
        Moment {
            now: self.now(),
            wall: SystemTime::now(),
        }
    }
}

impl Moment {
    /// When a frame was stamped that had been read by this moment: never
    /// later than the moment. A stamp that the wall clock's setting made
    /// implausibly old counts as the moment itself.
    pub(super) fn time_of(self, stamp: SystemTime) -> Duration {
        /// Longer than the thread is ever off its core.
        const OLDEST: Duration = Duration::from_secs(1);
        let age = self.wall.duration_since(stamp).unwrap_or_default();
        if age > OLDEST {
            return self.now;
        }
        self.now.saturating_sub(age)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    const MOMENT: Moment = Moment {
        now: Duration::from_secs(10),
        wall: SystemTime::UNIX_EPOCH,
    };

    #[test]
    fn time_of__is_as_long_ago_as_the_stamp() {
        let stamp = MOMENT.wall - Duration::from_millis(3);
        assert_eq!(MOMENT.time_of(stamp), Duration::from_millis(9997));
    }

    #[test]
    fn time_of__wall_clock_set_either_way_is_now() {
        for stamp in [
            MOMENT.wall + Duration::from_secs(3600),
            MOMENT.wall - Duration::from_secs(3600),
        ] {
            assert_eq!(MOMENT.time_of(stamp), MOMENT.now);
        }
    }
}
