//! What the model is about, and when it turns to something else.
//!
//! It observes the rate's growth, the round trip and what is under way. It decides the mode: Startup until the rate
//! stops growing or a queue grows, Drain until that is gone, then turns of Cruise, Up and Down; ProbeRtt when the
//! shortest round trip is stale; Compete where others fill the queue. Congestion ends Startup and Up, sets a ceiling,
//! and holds Cruise still for 63 rounds or 2 s.

use super::delay::has_no_queue;
use super::{INITIAL_WINDOW, Model, Sample, UNIT};
use crate::Instant;
use core::time::Duration;

/// Round trips of cruising between two probes for more: with Up and Down the eight of BBR's cycle.
const CRUISE_ROUNDS: u64 = 6;
/// Rounds without growth after which the pipe is full, as in BBR: one or two may be a grant that was late.
const FULL_ROUNDS: u32 = 3;
/// The part by which the rate has to grow in a round for the next one to try for still more: half of what was tried.
const GROWTH_PART: u64 = 8;
/// Rounds after congestion, and time, in which nothing more is tried: what a competing Reno or CUBIC
/// flow takes to come back.
const HOLD_ROUNDS: u64 = 63;
const HOLD: Duration = Duration::from_secs(2);
/// What may be under way after congestion, as 256ths of what was: BBR version 3 leaves as much headroom (0.85).
const BACKOFF: u64 = 218;
/// For how long half the pipe is empty: a round without a queue of ours is seen, at half of BBR's 200 ms.
const PROBE_RTT_TIME: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Doubling until the pipe is full.
    #[default]
    Startup,
    /// Letting go the queue that made.
    Drain,
    /// A little more for a round trip, and again while that brings more.
    Up,
    /// Until the queue that made is gone.
    Down,
    /// As much as the path carries.
    Cruise,
    /// Half the pipe, to see the round trip without a queue of ours.
    ProbeRtt,
    /// As those do that fill the queue and leave no room to who keeps to the pipe.
    Compete,
}

impl Model {
    pub(super) fn enter(&mut self, now: Instant, mode: Mode) {
        (self.mode, self.since, self.mode_round) = (mode, now, self.rounds);
        if mode == Mode::Up {
            self.best = self.rate().unwrap_or(0);
        }
    }

    /// Whether the rate is clearly more than it was when this was begun.
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

    /// Holds still after congestion with that much `under_way`.
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

    /// Goes on after a trial that cleared us of what is lost.
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
            // What a late end has not told of yet is no queue.
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
                // What is not needed any more limits nothing.
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
                // Who competed goes on: that the queue is there says that others are, too.
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
