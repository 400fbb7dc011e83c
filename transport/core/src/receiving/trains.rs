//! Decides whether the peer may send trains, from loss and arrivals.
//!
//! A lost datagram costs a whole train, so trains are for paths with rare loss, and for lanes whose kernel merges
//! datagrams. Losses fill a bucket; arrivals empty it. When it is full, the next grants tell the peer to send no
//! trains. When it is empty, and not before a pause that doubles each time, trains are allowed again: at first for one
//! Block at a time, and until the first loss. On a path as bad as before, a window of spoiled trains each time would
//! cost more than trains save.

use crate::limits::{
    MAX_TRAIN_LOSSES, MAX_TRAIN_PAUSE, MIN_TRAIN_PAUSE, TRAIN_LOSS_COST, TRAIN_PAUSE_FORGOTTEN,
};
use crate::time::Instant;
use core::time::Duration;

/// The state of that decision.
#[derive(Clone, Debug)]
pub(crate) struct Trains {
    /// The lane accepts trains.
    taken: bool,
    /// It accepts trains of operations, to see whether datagrams are merged.
    tried: bool,
    /// Datagrams that must arrive to make up for recent losses.
    losses: u32,
    /// Start of the present period, with trains or without.
    since: Instant,
    refused: bool,
    /// Length of the present or next pause.
    pause: Duration,
    /// Datagrams that must arrive in trains without loss before the trial ends.
    trial: u32,
}

impl Default for Trains {
    fn default() -> Trains {
        Trains {
            taken: false,
            tried: false,
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

    pub(crate) fn set_tried(&mut self, tried: bool) {
        self.tried = tried;
    }

    /// Whether operations may come as trains.
    pub(crate) fn are_offered_to_operations(&self) -> bool {
        (self.taken || self.tried) && !self.refused
    }

    /// Whether the lane accepts trains.
    pub(crate) fn are_taken(&self) -> bool {
        self.taken
    }

    /// Whether granted Blocks may come as trains.
    pub(crate) fn are_offered(&self) -> bool {
        self.taken && !self.refused
    }

    /// Whether trains are on trial after a pause: only one Block at a time may come as trains.
    pub(crate) fn are_on_trial(&self) -> bool {
        self.trial > 0
    }

    /// `datagrams` datagrams of payload arrived, alone or in a train.
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

    /// A train of `datagrams` datagrams arrived. Lone datagrams end the pause, but not the trial.
    pub(crate) fn on_train(&mut self, datagrams: u32) {
        self.trial = self.trial.saturating_sub(datagrams);
    }

    /// A contiguous loss: one datagram or more, or a train.
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

    /// Loses payload until no trains are allowed. Returns the number of losses.
    fn refuse(trains: &mut Trains, now: Instant) -> u32 {
        (1..=100)
            .find(|_| {
                trains.on_lost(now);
                !trains.are_offered()
            })
            .expect("refused at last")
    }

    /// Milliseconds from `from` until trains are allowed again, with 1,000 datagrams in each.
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
