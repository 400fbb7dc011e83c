//! Runs a worker's loop: checks descriptors, fires timers, advances connections, sleeps.

use super::agenda::Due;
use super::{Key, Slot, Worker};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use zerolane_lane::{AnyLane, Lane as _, Step, Waited, spin};

/// Connections and endpoints advanced in one call of [`Worker::progress`]: some hundred microseconds.
const TURNS: usize = 64;
/// Submissions of handles started in one call of [`Worker::progress`]: posting that many takes about as long.
const SUBMISSIONS: usize = 256;
/// Calls of [`Worker::progress`] with ready connections between two checks of the descriptors.
const UNLOOKED: u32 = 8;
/// A longer gap between two polls of one spin means that the thread was preempted.
const PREEMPTED: Duration = Duration::from_micros(500);

/// The result of one pass of the loop.
struct Advance {
    /// Some connection or endpoint was advanced.
    moved: bool,
    /// A wake-up was taken.
    woken: bool,
}

impl Worker {
    /// Does a bounded amount of work and returns. True if there may be more to do at once.
    ///
    /// # Errors
    /// The system refused to check the descriptors; or [`Error::Forked`]. The failure of a connection or endpoint is an
    /// event.
    pub fn progress(&mut self) -> Result<bool> {
        self.advance()?;
        Ok(self.has_more())
    }

    /// Whether there is something to do at once.
    fn has_more(&self) -> bool {
        self.agenda.len(Due::Turn) > 0 || !self.taken.is_empty()
    }

    /// Does one pass of the loop, and takes the wake-up.
    fn advance(&mut self) -> Result<Advance> {
        self.check_process()?;
        self.inbox.waker.disarm();
        let woken = self.inbox.waker.take();
        if woken {
            self.take_submissions();
        }
        self.begin_submissions();
        if self.agenda.len(Due::Turn) == 0 || self.unlooked >= UNLOOKED {
            self.unlooked = 0;
            self.look()?;
        }
        self.unlooked += 1;
        self.look_at_polled();
        self.fire_timers();
        let turns = self.agenda.len(Due::Turn).min(TURNS);
        for _ in 0..turns {
            if let Some(key) = self.agenda.next(Due::Turn) {
                self.turn(key);
            }
        }
        let moved = turns > 0;
        Ok(Advance { moved, woken })
    }

    /// Makes progress until there is an event, or until a [`Waker`](crate::Waker) or a handle was used or the worker was
    /// stopped and is over (woken), or `timeout` passed. Polls for a while before it sleeps: see [`Worker::set_spin`].
    ///
    /// # Errors
    /// As for [`Worker::progress`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Waited<()>> {
        self.wait_with(timeout, true)
    }

    /// Like [`Worker::wait`], but sleeps as soon as there is nothing to do: for a program that waits for its own
    /// threads, which need the core.
    ///
    /// # Errors
    /// As for [`Worker::progress`].
    pub fn wait_asleep(&mut self, timeout: Option<Duration>) -> Result<Waited<()>> {
        self.wait_with(timeout, false)
    }

    fn wait_with(&mut self, timeout: Option<Duration>, spins: bool) -> Result<Waited<()>> {
        // A deadline that overflows the clock counts as no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut idle_since = None;
        let mut looked = Instant::now();
        loop {
            let Advance { moved, woken } = self.advance()?;
            if !self.events.is_empty() {
                return Ok(Waited::Got(()));
            }
            if woken || self.is_over() {
                return Ok(Waited::Woken);
            }
            let now = Instant::now();
            if deadline.is_some_and(|at| at <= now) {
                return Ok(Waited::TimedOut);
            }
            if moved || self.has_more() {
                // Something came while polling, even if it is already done: polling paid off.
                if idle_since.take().is_some() {
                    self.spin = self.spin.saturating_mul(2).min(self.max_spin);
                }
                looked = now;
                continue;
            }
            let spun = now - *idle_since.get_or_insert(now);
            // Other programs want the core.
            let preempted = now - std::mem::replace(&mut looked, now) > PREEMPTED;
            if spins && spun < self.spin && !preempted {
                std::hint::spin_loop();
                continue;
            }
            let arrived = !self.arm_until(deadline)? || self.poller.sleep()?;
            looked = Instant::now();
            let idle = looked - idle_since.take().unwrap_or(now);
            // A requested sleep does not show what polling would have found.
            if spins {
                self.spin = spin::after_sleep(self.spin, idle, self.max_spin, arrived);
            }
        }
    }

    /// Call this before the program itself sleeps on the descriptor ([`AsFd`](std::os::fd::AsFd)): it becomes readable
    /// when something arrives, a timer expires or a handle is used. False if there is something to do already: the
    /// program must then not sleep, but call [`Worker::progress`], which it must also call after every sleep.
    /// (`ucp_worker_arm`, `fi_trywait`.)
    ///
    /// # Errors
    /// The system refused to set the timer; or [`Error::Forked`].
    pub fn arm(&mut self) -> Result<bool> {
        self.check_process()?;
        self.arm_until(None)
    }

    fn arm_until(&mut self, deadline: Option<Instant>) -> Result<bool> {
        self.flush_before_sleep();
        self.arm_polled();
        // Packets sent before a sleep may close the last connection of a worker that was stopped.
        if self.has_more() || !self.events.is_empty() || self.is_over() {
            return Ok(false);
        }
        let now = Instant::now();
        self.set_timers(now);
        let next = self.agenda.next_timer().into_iter().chain(deadline).min();
        let timeout = next.map(|at| at.saturating_duration_since(now));
        if timeout == Some(Duration::ZERO) {
            return Ok(false);
        }
        self.poller.set_timer(timeout)?;
        Ok(self.inbox.waker.arm())
    }

    /// How long [`Worker::progress`] has nothing to do unless the descriptor becomes readable; `None`: no timer runs.
    /// After [`Worker::arm`] the descriptor covers timers too.
    pub fn next_timeout(&self) -> Option<Duration> {
        if self.has_more() || !self.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let unset = self.agenda.all(Due::Timer);
        let unset = unset.filter_map(|key| self.next_due(key, now));
        let next = self.agenda.next_timer().into_iter().chain(unset).min();
        next.map(|at| at.saturating_duration_since(now))
    }

    fn take_submissions(&mut self) {
        if self.taken.is_empty() {
            let empty = std::mem::take(&mut self.taken);
            self.taken = self.inbox.submissions.take(empty);
        } else {
            let mut more = self.inbox.submissions.take(VecDeque::new());
            self.taken.append(&mut more);
        }
    }

    fn begin_submissions(&mut self) {
        for _ in 0..SUBMISSIONS {
            let Some(submission) = self.taken.pop_front() else {
                return;
            };
            submission(self);
        }
    }

    fn look(&mut self) -> Result<()> {
        let Worker { poller, agenda, .. } = self;
        Ok(poller.look(|key| agenda.add_input(key))?)
    }

    /// Queues connections in shared memory that have input, without a system call.
    fn look_at_polled(&mut self) {
        self.find_arrived(|lane| (lane.has_arrived(), true));
    }

    /// Makes peers in shared memory wake this end from now on. Queues connections that have input already.
    fn arm_polled(&mut self) {
        self.find_arrived(|lane| {
            let arrived = lane.longest_sleep() == Some(Duration::ZERO);
            (arrived, arrived)
        });
    }

    /// Asks each polled lane whether something has arrived, and whether it stays polled.
    fn find_arrived(&mut self, ask: impl Fn(&AnyLane) -> (bool, bool)) {
        for _ in 0..self.agenda.len(Due::Poll) {
            let Some(key) = self.agenda.next(Due::Poll) else {
                return;
            };
            let Some(Slot::Connection(link)) = self.slots.get(key) else {
                continue;
            };
            let (arrived, stays) = ask(link.connection.driver.lane());
            if arrived {
                self.agenda.add_input(key);
            }
            if stays {
                self.agenda.add(key, Due::Poll);
            }
        }
    }

    /// When connection `key` must be advanced although nothing arrives.
    fn next_due(&self, key: Key, now: Instant) -> Option<Instant> {
        match self.slots.get(key)? {
            Slot::Connection(link) => link.next_due(now),
            Slot::Endpoint(_) => None,
        }
    }

    /// Sets the timers of connections that were advanced.
    fn set_timers(&mut self, now: Instant) {
        while let Some(key) = self.agenda.next(Due::Timer) {
            // It will be advanced anyway.
            if self.agenda.has(key, Due::Turn) {
                continue;
            }
            if let Some(at) = self.next_due(key, now) {
                self.agenda.set_timer(key, at);
            }
        }
    }

    fn fire_timers(&mut self) {
        if self.agenda.next_timer().is_none() && self.agenda.len(Due::Timer) == 0 {
            return;
        }
        let now = Instant::now();
        self.set_timers(now);
        while let Some(key) = self.agenda.expired(now) {
            match self.next_due(key, now) {
                Some(at) if at > now => self.agenda.set_timer(key, at),
                Some(_) => self.agenda.add(key, Due::Turn),
                None => {}
            }
        }
    }

    fn turn(&mut self, key: Key) {
        match self.slots.get(key) {
            Some(Slot::Connection(_)) => self.turn_connection(key),
            Some(Slot::Endpoint(_)) => self.accept(key),
            None => {}
        }
    }

    /// Sends packets that connections hold back to combine them with later ones, because this end is about to sleep.
    fn flush_before_sleep(&mut self) {
        while let Some(key) = self.agenda.next(Due::Flush) {
            let Some(Slot::Connection(link)) = self.slots.get_mut(key) else {
                continue;
            };
            let flushed = link.connection.driver.turn(Step::BeforeSleep);
            self.settle(key, flushed.err());
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
