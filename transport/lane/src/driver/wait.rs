//! Spins, naps or sleeps while nothing moves.

use super::{Driver, DriverError, Progress, Step};
use crate::lane::Lane;
use crate::wait::{Waited, spin};
use std::time::Duration;
use zerolane_core::{Instant, Life};

/// Spin hints between two polls while much is in flight: a microsecond or two, the time of a burst of 8 KiB at 32 to 64
/// Gb/s.
const PAUSE_LOOPS: u32 = 32;

/// Payload in flight above which a receiver naps instead of spinning, bytes.
const NAP_BYTES: u64 = 1 << 20;
/// Shortest nap; the kernel's timer slack adds about 50 us. The longest is too short for a sender to count it as
/// lateness.
const NAP: Duration = Duration::from_micros(5);
const MAX_NAP: Duration = Duration::from_micros(300);
/// Bytes that should arrive during a nap: a thirty-second of the window, and enough to wake for.
const NAP_ARRIVALS: u64 = 64 << 10;

/// Adapts the length of naps to the bytes that arrived during earlier ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nap {
    length: Duration,
    /// Bytes that had arrived before the last nap.
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
    /// The length of the next nap, after `received` bytes in total. If little arrives, a nap for each packet would cost
    /// more than the packet.
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

/// What a [`Waker`](crate::wait::Waker) does to a [`Driver::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnWake {
    /// It ends the wait.
    Return,
    /// It ends the next wait instead: the caller waits for the end of a request.
    GoOn,
}

impl<L: Lane> Driver<L> {
    /// Turns until `done` or the connection's end (got), `timeout`, or a [`Waker`](crate::wait::Waker) if `on_wake` says
    /// so. If there is nothing to do, it spins and then sleeps; the spin adapts to its success. A timeout of zero is one
    /// turn.
    ///
    /// # Errors
    /// As [`Driver::turn`].
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        on_wake: OnWake,
        done: impl FnMut(&Driver<L>) -> bool,
    ) -> Result<Waited<()>, DriverError> {
        let mut woken = false;
        let waited = self.wait_counting_wakes(timeout, on_wake, done, &mut woken);
        if woken {
            self.waker.wake();
        }
        waited
    }

    /// Sets `woken` if a wake came that did not end the wait.
    fn wait_counting_wakes(
        &mut self,
        timeout: Option<Duration>,
        on_wake: OnWake,
        mut done: impl FnMut(&Driver<L>) -> bool,
        woken: &mut bool,
    ) -> Result<Waited<()>, DriverError> {
        // Before `done` looks at completions, which belong to the parent.
        self.check_process()?;
        let mut over = |driver: &Driver<L>| {
            done(driver) || driver.closed.is_some() && driver.core.life() == Life::Closed
        };
        if over(self) {
            return self.send_owed().map(Waited::Got);
        }
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        let mut idle_since = None;
        loop {
            let progress = self.turn(Step::Whole)?;
            // Before the waker, so that a simultaneous wake ends the next wait.
            if over(self) {
                return self.send_owed().map(Waited::Got);
            }
            // After each turn, because a peer can prevent idle turns. Uses the turn's time: reading the clock takes a
            // fifth of the time of polling the socket.
            let now = self.turned;
            if deadline.is_some_and(|at| at <= now) {
                return Ok(Waited::TimedOut);
            }
            // Taken in any case, because a wake that is left prevents sleep.
            if self.waker.take() {
                match on_wake {
                    OnWake::Return => return Ok(Waited::Woken),
                    OnWake::GoOn => *woken = true,
                }
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
            // So the peer learns of completed work without waiting for this end to wake up.
            self.turn(Step::BeforeSleep)?;
            // Sending may fail, and end a request or the connection.
            if over(self) {
                return self.send_owed().map(Waited::Got);
            }
            let arrived = self.sleep(deadline)?;
            let idle = self.clock.now() - since;
            self.spin = spin::after_sleep(self.spin, idle, self.max_spin, arrived);
        }
    }

    /// Sends what the connection still owes, if anything.
    fn send_owed(&mut self) -> Result<(), DriverError> {
        match self.core.is_quiet() {
            true => Ok(()),
            false => self.turn(Step::Send).map(drop),
        }
    }

    /// Pauses between two polls of an empty socket: each poll takes the socket's cache lines from the core that is
    /// about to fill it. While much is in flight, a nap adds no significant latency and leaves the core to others; the
    /// window covers it many times (P0.4). Without bulk in flight the pause is one spin hint: a longer pause would add
    /// half its length to the latency of small operations.
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

    /// Sleeps until `deadline` or a timer. True if something arrived.
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

    /// The length of the nap after many naps in each of which `bytes` arrived.
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
