//! Answers the driver's calls by a script, as a lane for tests that carries nothing.

use super::Driver;
use crate::account::Account;
use crate::error::LaneError;
use crate::lane::{Lane, Turn};
use crate::options::Options;
use crate::wait::Waker;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use zerolane_core::{Config, Connection, Entropy, RegionId};

/// The result of a call to [`Lane::receive`] or [`Lane::transmit`].
pub(super) type Answer = Result<bool, LaneError>;

/// Without a script nothing arrives, nothing is sent, and a sleep lasts until its timeout.
#[derive(Debug, Default)]
pub(super) struct ScriptedLane {
    pub(super) receives: VecDeque<Answer>,
    pub(super) transmits: VecDeque<Answer>,
    /// Called in each sleep with its number, from 1 on; returns its outcome.
    pub(super) in_sleep: Option<fn(usize, &Waker) -> io::Result<bool>>,
    /// Whether it always has more than a turn takes.
    pub(super) has_more: bool,
    /// Number of turns that read it.
    pub(super) reads: usize,
    /// Number of sleeps that the driver began.
    pub(super) sleeps: usize,
    /// Regions that were recalled.
    pub(super) recalled: Vec<RegionId>,
    /// Regions that the lane says are in use.
    pub(super) held: Vec<RegionId>,
}

impl ScriptedLane {
    /// A driver over this lane that begins to connect, and sleeps as soon as there is nothing to do.
    pub(super) fn driver(self) -> Driver<ScriptedLane> {
        let entropy = Entropy {
            key: 1,
            port: 2,
            sync: 3,
        };
        let options = Options::default().with(|it| it.times.spin = Duration::ZERO);
        Driver::new(self, &options, |now| {
            Connection::connect(now, Config::default(), entropy)
        })
    }
}

impl Lane for ScriptedLane {
    fn receive(&mut self, turn: &mut Turn<'_>) -> Answer {
        self.reads += 1;
        turn.more = self.has_more;
        self.receives.pop_front().unwrap_or(Ok(false))
    }

    fn transmit(&mut self, _turn: &mut Turn<'_>) -> Answer {
        self.transmits.pop_front().unwrap_or(Ok(false))
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        self.sleeps += 1;
        if let Some(in_sleep) = self.in_sleep {
            return in_sleep(self.sleeps, waker);
        }
        std::thread::sleep(timeout.unwrap_or(Duration::ZERO));
        Ok(false)
    }

    fn wants_write(&self) -> bool {
        false
    }

    fn longest_sleep(&self) -> Option<Duration> {
        None
    }

    fn holds(&self, region: RegionId) -> bool {
        self.held.contains(&region)
    }

    fn recall(&mut self, region: RegionId) {
        self.recalled.push(region);
    }

    fn describe(&self, _account: &mut Account) {}
}
