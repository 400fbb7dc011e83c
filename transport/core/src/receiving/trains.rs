//! Whether the peer may send trains.
//!
//! A lost datagram costs a whole train, so trains are for paths on which loss is rare, and for lanes that get
//! datagrams merged. What was lost fills a bucket, and what arrives empties it. When it is full, the peer is told
//! by the next grants to send none; when it is empty, and not before a pause that doubles each time, it may again. At
//! first Block by Block, and until the first loss: on a path as bad as before, a window of spoiled trains each time would
//! cost more than they save.

use crate::Instant;
use crate::limits::{
    MAX_TRAIN_LOSSES, MAX_TRAIN_PAUSE, MIN_TRAIN_PAUSE, TRAIN_LOSS_COST, TRAIN_PAUSE_FORGOTTEN,
};
use core::time::Duration;

/// What decides whether trains are offered.
#[derive(Clone, Debug)]
pub(crate) struct Trains {
    /// The lane takes them.
    taken: bool,
    /// Datagrams that have to arrive until what was lost lately is made up for.
    losses: u32,
    /// Since when they are offered, or not.
    since: Instant,
    refused: bool,
    /// How long they are not offered: now, or the next time.
    pause: Duration,
    /// Datagrams that have to arrive in trains, none lost meanwhile, until they are offered as before the last pause.
    trial: u32,
}

impl Default for Trains {
    fn default() -> Trains {
        Trains {
            taken: false,
            losses: 0,
            since: Instant::ZERO,
            refused: false,
            pause: MIN_TRAIN_PAUSE,
            trial: 0,
        }
    }
}

impl Trains {
    pub(crate) fn set_taken(&mut self, taken: bool) {
        self.taken = taken;
    }

    /// Whether Blocks are granted so that they may come as trains.
    pub(crate) fn are_offered(&self) -> bool {
        self.taken && !self.refused
    }

    /// Whether they are tried again after a pause: no more than one Block is granted then that may come as trains.
    pub(crate) fn are_on_trial(&self) -> bool {
        self.trial > 0
    }

    /// So many datagrams of payload arrived, alone or in a train.
    pub(crate) fn on_arrived(&mut self, now: Instant, datagrams: u32) {
        self.losses = self.losses.saturating_sub(datagrams);
        let past = now - self.since;
        if self.refused && self.losses == 0 && past >= self.pause {
            (self.refused, self.since) = (false, now);
            self.pause = (self.pause * 2).min(MAX_TRAIN_PAUSE);
            self.trial = TRAIN_LOSS_COST;
        } else if !self.refused && past >= TRAIN_PAUSE_FORGOTTEN {
            self.pause = MIN_TRAIN_PAUSE;
        }
    }

    /// A train of so many datagrams arrived. What arrives alone passes no trial: it ended the pause.
    pub(crate) fn on_train(&mut self, datagrams: u32) {
        self.trial = self.trial.saturating_sub(datagrams);
    }

    /// A stretch of payload was lost: one datagram or more, or a train.
    pub(crate) fn on_lost(&mut self, now: Instant) {
        self.losses = (self.losses + TRAIN_LOSS_COST).min(2 * MAX_TRAIN_LOSSES);
        if !self.refused && (self.are_on_trial() || self.losses > MAX_TRAIN_LOSSES) {
            (self.refused, self.since, self.trial) = (true, now, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn offered() -> Trains {
        let mut trains = Trains::default();
        trains.set_taken(true);
        assert!(trains.are_offered());
        trains
    }

    /// Loses until none are offered. How many it takes.
    fn refuse(trains: &mut Trains, now: Instant) -> u32 {
        (1..=100)
            .find(|_| {
                trains.on_lost(now);
                !trains.are_offered()
            })
            .expect("refused at last")
    }

    /// Milliseconds from `from` until they are offered again, with 1,000 datagrams in each.
    fn pause(trains: &mut Trains, from: u64) -> u64 {
        let offered = (0..100_000).find(|ms| {
            trains.on_arrived(at(from + ms), 1_000);
            trains.are_offered()
        });
        offered.expect("offered again")
    }

    #[test]
    fn offered__only_where_the_lane_takes_them() {
        let mut trains = Trains::default();
        assert!(!trains.are_offered());
        trains.set_taken(true);
        assert!(trains.are_offered());
        trains.set_taken(false);
        assert!(!trains.are_offered());
    }

    #[test]
    fn offered__though_little_is_lost() {
        let mut trains = offered();
        for n in 0..10_000 {
            trains.on_lost(at(n));
            // One in 4,000 datagrams: 0.025 %.
            trains.on_arrived(at(n), 4_000);
            assert!(trains.are_offered());
        }
    }

    #[test]
    fn refused__after_a_few_losses() {
        let mut trains = offered();
        assert_eq!(refuse(&mut trains, at(0)), 4);
    }

    #[test]
    fn refused__for_twice_as_long_each_time() {
        let mut trains = offered();
        let mut now = 0;
        let mut pauses = vec![];
        for _ in 0..9 {
            refuse(&mut trains, at(now));
            let lasted = pause(&mut trains, now);
            pauses.push(lasted);
            now += lasted;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn refused__until_what_was_lost_is_made_up_for() {
        let mut trains = offered();
        refuse(&mut trains, at(0));
        trains.on_arrived(at(1_000), 4 * TRAIN_LOSS_COST - 1);
        assert!(!trains.are_offered());
        trains.on_arrived(at(1_000), 1);
        assert!(trains.are_offered());
    }

    #[test]
    fn trial__after_each_pause_and_over_with_the_first_loss() {
        let mut trains = offered();
        trains.on_lost(at(0));
        assert!(!trains.are_on_trial(), "no pause yet");
        let mut now = 0;
        for _ in 0..3 {
            refuse(&mut trains, at(now));
            now += pause(&mut trains, now);
            assert!(trains.are_on_trial());
            trains.on_train(TRAIN_LOSS_COST - 1);
            assert!(trains.are_on_trial());
            trains.on_lost(at(now));
            assert!(!trains.are_offered() && !trains.are_on_trial());
        }
    }

    #[test]
    fn trial__is_not_passed_by_what_arrives_alone() {
        let mut trains = offered();
        refuse(&mut trains, at(0));
        let now = pause(&mut trains, 0);
        trains.on_arrived(at(now), 10 * TRAIN_LOSS_COST);
        assert!(trains.are_on_trial());
    }

    #[test]
    fn trial__is_passed_when_enough_came_without_loss() {
        let mut trains = offered();
        refuse(&mut trains, at(0));
        let now = pause(&mut trains, 0);
        trains.on_train(TRAIN_LOSS_COST);
        assert!(trains.are_offered() && !trains.are_on_trial());
        assert_eq!(refuse(&mut trains, at(now)), 4);
    }

    #[test]
    fn pause__is_forgotten_in_time() {
        let mut trains = offered();
        for now in [0, 1_000, 2_000] {
            refuse(&mut trains, at(now));
            pause(&mut trains, now);
        }
        trains.on_arrived(at(60_000), 1);
        refuse(&mut trains, at(60_000));
        assert_eq!(pause(&mut trains, 60_000), 100);
    }
}
