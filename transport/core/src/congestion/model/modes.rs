//! Switches the model between its modes, when rate, round trip or loss require it.
//!
//! It observes the rate's growth, the round trip and the bytes in flight. Startup lasts until the rate stops growing or
//! a queue grows, Drain until that queue is gone; then Cruise, Up and Down take turns. ProbeRtt starts when the
//! shortest round trip is stale, Compete where others fill the queue. Congestion ends Startup and Up, sets a ceiling,
//! and keeps the model in Cruise for 63 rounds or 2 s.

use super::delay::has_no_queue;
use super::{INITIAL_WINDOW, Model, Sample, UNIT};
use crate::time::Instant;
use core::time::Duration;

/// Round trips of Cruise between two probes for more: with Up and Down the eight of BBR's cycle.
const CRUISE_ROUNDS: u64 = 6;
/// Rounds without growth after which the pipe is full, as in BBR: a late grant may explain one or two.
const FULL_ROUNDS: u32 = 3;
/// The part by which the rate must grow in a round for the next one to probe for more: half of the increase tried.
const GROWTH_PART: u64 = 8;
/// Rounds after congestion, and time, without probes for more: what a competing Reno or CUBIC flow takes to recover.
const HOLD_ROUNDS: u64 = 63;
const HOLD: Duration = Duration::from_secs(2);
/// Bytes in flight after congestion, as 256ths of the former: BBR version 3 leaves as much headroom (0.85).
const BACKOFF: u64 = 218;
/// How long half the pipe stays empty: long enough for a round without our queue, at half of BBR's 200 ms.
const PROBE_RTT_TIME: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Doubling until the pipe is full.
    #[default]
    Startup,
    /// Draining the queue of Startup.
    Drain,
    /// Slightly more for a round trip, and again while that raises the rate.
    Up,
    /// Draining the queue of Up.
    Down,
    /// At the path's rate.
    Cruise,
    /// Half the pipe, to measure the round trip without our queue.
    ProbeRtt,
    /// Filling the queue as the competing flows do, which leave no room to a flow that keeps to the pipe.
    Compete,
}

impl Model {
    pub(super) fn enter(&mut self, now: Instant, mode: Mode) {
        (self.mode, self.since, self.mode_round) = (mode, now, self.rounds);
        if mode == Mode::Up {
            self.best = self.rate().unwrap_or(0);
        }
    }

    /// Whether the rate has clearly grown since this mode began.
    fn has_grown(&self) -> bool {
        self.rate().unwrap_or(0) >= self.best + self.best / GROWTH_PART
    }

    pub(super) fn note_growth(&mut self) {
        let rate = self.rate().unwrap_or(0);
        if rate >= self.best + self.best / 4 {
            (self.best, self.flat_rounds) = (rate, 0);
        } else {
            self.flat_rounds += 1;
        }
    }

    fn is_held(&self, now: Instant) -> bool {
        self.ceiling.is_some() && self.rounds < self.held_until.0 && now < self.held_until.1
    }

    /// Stops probing after congestion with `under_way` bytes in flight.
    pub(super) fn back_off(&mut self, now: Instant, under_way: u64) {
        let had = self.ceiling.unwrap_or(u64::MAX).min(under_way);
        let most = (had * BACKOFF / UNIT).max(self.pipe().unwrap_or(0) * BACKOFF / UNIT);
        self.ceiling = Some(most.max(self.least()));
        self.held_until = (self.rounds + HOLD_ROUNDS, now + HOLD);
        self.answered = self.rounds;
        self.interrupted |= self.mode == Mode::Startup && self.losses.is_trying();
        match self.mode {
            Mode::Startup => self.enter(now, Mode::Drain),
            Mode::Up => self.enter(now, Mode::Down),
            Mode::Drain | Mode::Down | Mode::Cruise | Mode::ProbeRtt | Mode::Compete => {}
        }
    }

    /// Continues after a trial that showed the loss to be the path's own.
    pub(super) fn resume(&mut self, now: Instant) {
        self.ceiling = None;
        if core::mem::take(&mut self.interrupted) {
            self.flat_rounds = 0;
            self.enter(now, Mode::Startup);
        }
    }

    pub(super) fn change_mode(&mut self, now: Instant, sample: &Sample) {
        let pipe = self.pipe().unwrap_or(INITIAL_WINDOW);
        let rounds = self.rounds - self.mode_round;
        match self.mode {
            Mode::Startup if self.delay.is_queuing() => {
                self.ceiling = Some(sample.under_way.max(pipe));
                self.enter(now, Mode::Drain);
            }
            Mode::Startup if self.flat_rounds >= FULL_ROUNDS => self.enter(now, Mode::Drain),
            Mode::Startup => {}
            // Payload that a late end has not yet reported is no queue.
            Mode::Drain | Mode::Down
                if sample.under_way <= pipe + self.unanswered() || rounds >= 4 =>
            {
                self.enter(now, Mode::Cruise);
            }
            Mode::Drain | Mode::Down => {}
            Mode::Up if rounds >= 1 && self.has_grown() && !self.delay.is_late() => {
                self.enter(now, Mode::Up);
            }
            Mode::Up if rounds >= 1 => {
                // A ceiling of twice the pipe limits nothing.
                self.ceiling = self.ceiling.filter(|&it| it < 2 * pipe);
                self.enter(now, Mode::Down);
            }
            Mode::Up => {}
            Mode::Compete if has_no_queue(sample) => {
                self.delay.cleared();
                self.enter(now, Mode::Cruise);
            }
            Mode::Cruise | Mode::Compete if self.delay.is_stale(now) => {
                self.enter(now, Mode::ProbeRtt);
            }
            Mode::Compete => {}
            Mode::Cruise if self.delay.is_crowded() => self.begin_competing(now),
            Mode::Cruise if self.losses.is_trying() => {}
            Mode::Cruise if rounds >= CRUISE_ROUNDS && !self.is_held(now) => {
                self.enter(now, Mode::Up);
            }
            Mode::Cruise => {}
            Mode::ProbeRtt if now - self.since > PROBE_RTT_TIME && rounds >= 2 => {
                self.delay.probed(now);
                // Compete continues: the queue shows that the competing flows do, too.
                let next = match self.delay.is_crowded() {
                    true => Mode::Compete,
                    false => Mode::Up,
                };
                self.answered = self.rounds;
                self.enter(now, next);
            }
            Mode::ProbeRtt => {}
        }
    }

    fn begin_competing(&mut self, now: Instant) {
        self.competition.enter(self.allowed());
        self.losses.abandon();
        (self.ceiling, self.answered) = (None, self.rounds);
        self.enter(now, Mode::Compete);
    }
}

#[cfg(test)]
#[path = "modes_tests.rs"]
mod tests;
