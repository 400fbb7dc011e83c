//! What a driver does while nothing moves: spin, nap or sleep.

use super::{Driver, DriverError, Progress};
use crate::{Lane, Waker};
use std::time::Duration;
use zerolane_core::{Instant, Life};

/// Shortest spin, as a part of the longest: a shorter one finds nothing.
const MIN_SPIN_PART: u32 = 16;

/// Spin hints between two looks: about a microsecond, the time a burst of 8 KiB takes at 64 Gb/s.
const PAUSE_LOOPS: u32 = 32;

/// Payload in flight above which a receiver naps instead of spinning, bytes.
const NAP_BYTES: u64 = 1 << 20;
/// Length of a nap; the kernel's timer slack adds about 50 us.
const NAP: Duration = Duration::from_micros(5);

impl<L: Lane> Driver<L> {
    /// Turns until `done`, the connection's end, a [`Waker`], or `timeout`; sleeps when there is nothing
    /// to do, after spinning for a time that adapts to the success of spinning. A timeout of zero is one turn.
    ///
    /// # Errors
    /// As [`Driver::turn`].
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        done: impl FnMut(&Driver<L>) -> bool,
    ) -> Result<(), DriverError> {
        self.wait_unless(timeout, done, Waker::take)
    }

    /// As [`Driver::wait`], for the end of a request. A [`Waker`] does not end it: a wake meanwhile
    /// ends the next wait instead.
    ///
    /// # Errors
    /// As [`Driver::turn`].
    pub fn wait_through(
        &mut self,
        timeout: Option<Duration>,
        done: impl FnMut(&Driver<L>) -> bool,
    ) -> Result<(), DriverError> {
        let mut woken = false;
        let waited = self.wait_unless(timeout, done, |waker| {
            // Taken, for a wake that is not taken prevents sleeping.
            woken |= waker.take();
            false
        });
        if woken {
            self.waker.wake();
        }
        waited
    }

    fn wait_unless(
        &mut self,
        timeout: Option<Duration>,
        mut done: impl FnMut(&Driver<L>) -> bool,
        mut woken: impl FnMut(&Waker) -> bool,
    ) -> Result<(), DriverError> {
        let mut over = |driver: &Driver<L>| {
            done(driver) || driver.closed.is_some() && driver.core.life() == Life::Closed
        };
        if over(self) {
            return self.flush();
        }
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        let mut idle_since = None;
        loop {
            let progress = self.turn()?;
            // Checked before the waker, so that a wake at the same time ends the next wait.
            if over(self) {
                return self.flush();
            }
            // After each turn, for a peer can prevent idle turns. A load and a reading of the
            // clock cost nothing beside a turn's system call.
            let now = self.clock.now();
            if deadline.is_some_and(|at| at <= now) || woken(&self.waker) {
                return Ok(());
            }
            if progress == Progress::Moved {
                if idle_since.take().is_some() {
                    self.spin = (self.spin * 2).min(self.max_spin);
                }
                continue;
            }
            if now - *idle_since.get_or_insert(now) < self.spin {
                self.pause();
                continue;
            }
            self.spin = (self.spin / 2).max(self.max_spin / MIN_SPIN_PART);
            self.sleep(now, deadline)?;
            idle_since = None;
        }
    }

    /// A pause between two looks at an empty socket: every look takes the socket's cache lines from
    /// the core that is about to fill it. While much is in flight, a nap costs no latency that
    /// matters and leaves the core to others; the window covers it many times (P0.4).
    fn pause(&mut self) {
        if self.core.expected_payload() >= NAP_BYTES {
            self.account.naps += 1;
            std::thread::sleep(NAP);
        } else {
            for _ in 0..PAUSE_LOOPS {
                std::hint::spin_loop();
            }
        }
    }

    fn sleep(&mut self, now: Instant, deadline: Option<Instant>) -> Result<(), DriverError> {
        // So the peer does not wait for our wake-up to learn what was done.
        self.rest()?;
        let until = [self.core.next_timeout(), deadline]
            .into_iter()
            .flatten()
            .min();
        let woken = self.lane.wait(&self.waker, until.map(|at| at - now))?;
        if woken {
            self.account.wakeups += 1;
        } else {
            self.account.sleeps += 1;
        }
        Ok(())
    }
}
