//! What a driver does while nothing moves: spin, nap or sleep.

use super::{Driver, DriverError, Progress};
use crate::{Lane, Waker, spin};
use std::time::Duration;
use zerolane_core::{Instant, Life};

/// Spin hints between two looks while much is in flight: a microsecond or two, the time a burst of 8 KiB takes at 32 to
/// 64 Gb/s.
const PAUSE_LOOPS: u32 = 32;

/// Payload in flight above which a receiver naps instead of spinning, bytes.
const NAP_BYTES: u64 = 1 << 20;
/// Shortest nap; the kernel's timer slack adds about 50 us. And the longest: a sender takes it for no lateness.
const NAP: Duration = Duration::from_micros(5);
const MAX_NAP: Duration = Duration::from_micros(300);
/// What is to arrive during a nap, bytes: a thirty-second of the window, and enough to wake for.
const NAP_ARRIVALS: u64 = 64 << 10;

/// How long to nap, by what arrived during the naps before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nap {
    length: Duration,
    /// Bytes that had arrived before the last one.
    received: u64,
}

impl Default for Nap {
    fn default() -> Nap {
        Nap {
            length: NAP,
            received: 0,
        }
    }
}

impl Nap {
    /// The length of the next one, with so many bytes `received` in all. Where little comes, a nap for each packet
    /// would cost more than the packet.
    fn next(&mut self, received: u64) -> Duration {
        self.length = match received - self.received {
            0 => self.length,
            few if few < NAP_ARRIVALS / 2 => (self.length * 2).min(MAX_NAP),
            many if many > NAP_ARRIVALS => (self.length / 2).max(NAP),
            _ => self.length,
        };
        self.received = received;
        self.length
    }
}

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
        // Before the look at what is there: that is the parent's to take.
        self.check_process()?;
        let mut over = |driver: &Driver<L>| {
            done(driver) || driver.closed.is_some() && driver.core.life() == Life::Closed
        };
        if over(self) {
            return self.flush_owed();
        }
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        let mut idle_since = None;
        loop {
            let progress = self.turn()?;
            // Checked before the waker, so that a wake at the same time ends the next wait.
            if over(self) {
                return self.flush_owed();
            }
            // After each turn, for a peer can prevent idle turns. By the turn's time: a look at the clock takes
            // as long as a fifth of the look at the socket.
            let now = self.turned;
            if deadline.is_some_and(|at| at <= now) || woken(&self.waker) {
                return Ok(());
            }
            if progress == Progress::Moved {
                if idle_since.take().is_some() {
                    self.spin = self.spin.saturating_mul(2).min(self.max_spin);
                }
                continue;
            }
            if now - *idle_since.get_or_insert(now) < self.spin {
                self.pause();
                continue;
            }
            let since = idle_since.take().unwrap_or(now);
            // So the peer does not wait for our wake-up to learn what was done.
            self.rest()?;
            // What is sent may fail, and end a request or the connection.
            if over(self) {
                return self.flush_owed();
            }
            let arrived = self.sleep(deadline)?;
            let idle = self.clock.now() - since;
            self.spin = spin::after_sleep(self.spin, idle, self.max_spin, arrived);
        }
    }

    /// Sends what is still owed, if anything is.
    fn flush_owed(&mut self) -> Result<(), DriverError> {
        match self.core.is_quiet() {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// A pause between two looks at an empty socket: every look takes the socket's cache lines from
    /// the core that is about to fill it. While much is in flight, a nap costs no latency that
    /// matters and leaves the core to others; the window covers it many times (P0.4). What answers a small
    /// operation would wait for half of a pause, which is the longer part of its way.
    fn pause(&mut self) {
        if self.core.expected_payload() >= NAP_BYTES {
            self.account.naps += 1;
            std::thread::sleep(self.nap.next(self.core.counters().bytes_received));
            return;
        }
        let loops = match self.core.is_bulk_in_flight() {
            true => PAUSE_LOOPS,
            false => 1,
        };
        for _ in 0..loops {
            std::hint::spin_loop();
        }
    }

    /// Whether something arrived.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<bool, DriverError> {
        let until = [self.core.next_timeout(), deadline]
            .into_iter()
            .flatten()
            .min();
        let timeout = until.map(|at| at - self.clock.now());
        let woken = self.lane.wait(&self.waker, timeout)?;
        if woken {
            self.account.wakeups += 1;
        } else {
            self.account.sleeps += 1;
        }
        Ok(woken)
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod lane_tests;

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    /// The length of a nap after many in which so many bytes came each.
    fn after(bytes: u64) -> Duration {
        let mut nap = Nap::default();
        (1..100).map(|n| nap.next(n * bytes)).last().unwrap()
    }

    #[test]
    fn nap__is_longer_where_little_comes_and_short_where_much_does() {
        assert_eq!(after(6_000), MAX_NAP);
        assert_eq!(after(200_000), NAP);
        let mut nap = Nap::default();
        let mut received = 0;
        // 250 bytes a microsecond: 2 Gb/s.
        let mut take = |nap: &mut Nap| {
            received += 250 * (50 + nap.length.as_micros() as u64);
            nap.next(received)
        };
        for _ in 0..10 {
            take(&mut nap);
        }
        let length = take(&mut nap);
        assert!(length > NAP && length < MAX_NAP, "{length:?}");
        assert_eq!(
            nap.next(nap.received),
            length,
            "nothing came, nothing is learned"
        );
    }
}
