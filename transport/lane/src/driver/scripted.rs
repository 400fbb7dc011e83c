//! A lane for tests that carries nothing, and answers the driver's calls as a script says.

use super::Driver;
use crate::{Account, Lane, LaneError, Options, Turn, Waker};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use zerolane_core::{Config, Connection, Entropy, RegionId};

/// What a call to [`Lane::receive`] or [`Lane::transmit`] comes to.
pub(super) type Answer = Result<bool, LaneError>;

/// Without a script nothing arrives, nothing is sent, and a sleep ends with its time.
#[derive(Debug, Default)]
pub(super) struct ScriptedLane {
    pub(super) receives: VecDeque<Answer>,
    pub(super) transmits: VecDeque<Answer>,
    /// Sleeps that the driver began.
    pub(super) sleeps: usize,
    /// Regions that were recalled.
    pub(super) recalled: Vec<RegionId>,
    /// Regions that are in use below.
    pub(super) held: Vec<RegionId>,
}

impl ScriptedLane {
    /// A driver that begins to connect by it, and sleeps as soon as there is nothing to do.
    pub(super) fn driver(self) -> Driver<ScriptedLane> {
        let entropy = Entropy {
            key: 1,
            port: 2,
            sync: 3,
        };
        let options = Options {
            spin: Duration::ZERO,
            ..Options::default()
        };
        Driver::new(self, &options, |now| {
            Connection::connect(now, Config::default(), entropy)
        })
    }
}

impl Lane for ScriptedLane {
    fn receive(&mut self, _turn: &mut Turn<'_>) -> Answer {
        self.receives.pop_front().unwrap_or(Ok(false))
    }

    fn transmit(&mut self, _turn: &mut Turn<'_>) -> Answer {
        self.transmits.pop_front().unwrap_or(Ok(false))
    }

    fn wait(&mut self, _waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        self.sleeps += 1;
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
