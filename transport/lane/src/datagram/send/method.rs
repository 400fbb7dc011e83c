//! Chooses by measurement whether trains are given to the kernel or copied by it.
//!
//! The cheaper method depends on the machine and on the payload. A copy of cached bytes costs little; the kernel's
//! references to pages, which the peer's core drops, cost most if both ends share a machine. So each method is tried
//! for some trains now and then. In between, the one that took the calling thread less time for each byte is used.

use std::time::Duration;

/// Trains in a trial.
const TRIAL: usize = 48;
/// Trains at the start of a trial that are not counted, because they pay for earlier sends.
const SETTLING: usize = 12;
/// Counted trains with the highest time for each byte that are discarded: the thread was preempted.
const OUTLIERS: usize = 6;
/// Shorter trains are not counted, because the cost of the call dominates.
const LEAST: usize = 16 << 10;
/// Trains between two trials.
const STAY: usize = 2048;
/// The other method is chosen if its cost is below this percentage of the present one's.
const WORTHWHILE: u64 = 97;

/// How trains reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Copied,
    Given,
}

impl Method {
    fn other(self) -> Method {
        match self {
            Method::Copied => Method::Given,
            Method::Given => Method::Copied,
        }
    }
}

/// The present activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The method in use is timed, for comparison.
    TimesUsed,
    /// The other method is timed; the one in use took this many picoseconds a byte.
    TimesOther(u64),
    /// No trial for this many trains.
    Stays(usize),
}

/// The choice of one connection.
#[derive(Debug)]
pub(super) struct Chooser {
    used: Method,
    phase: Phase,
    /// Trains in this trial so far.
    tried: usize,
    /// Costs of the counted trains, in picoseconds a byte.
    costs: Vec<u64>,
}

impl Default for Chooser {
    fn default() -> Chooser {
        Chooser {
            used: Method::Copied,
            phase: Phase::TimesUsed,
            tried: 0,
            costs: Vec::new(),
        }
    }
}

impl Chooser {
    /// The method for the next train.
    pub(super) fn method(&self) -> Method {
        #[cfg(test)]
        if crate::socket::system::seam::always_gives() {
            return Method::Given;
        }
        self.measured()
    }

    fn measured(&self) -> Method {
        match self.phase {
            Phase::TimesOther(_) => self.used.other(),
            Phase::TimesUsed | Phase::Stays(_) => self.used,
        }
    }

    /// Whether to time the next train.
    pub(super) fn is_timing(&self) -> bool {
        !matches!(self.phase, Phase::Stays(_))
    }

    /// Records that a train of `len` bytes left by `method`, and took `took` if it was timed.
    pub(super) fn note(&mut self, method: Method, len: usize, took: Duration) {
        if let Phase::Stays(left) = &mut self.phase {
            *left -= 1;
            if *left == 0 {
                self.begin(Phase::TimesUsed);
            }
            return;
        }
        // A train that could not leave by the chosen method tells nothing, but counts, so that each trial ends.
        self.tried += 1;
        if self.tried > SETTLING && method == self.measured() && len >= LEAST {
            let picoseconds = u64::try_from(took.as_nanos() * 1000).unwrap_or(u64::MAX);
            self.costs.push(picoseconds / len as u64);
        }
        if self.tried >= TRIAL {
            self.conclude();
        }
    }

    fn conclude(&mut self) {
        let cost = self.cost();
        match (self.phase, cost) {
            (Phase::TimesUsed, Some(cost)) => self.begin(Phase::TimesOther(cost)),
            (Phase::TimesOther(used), Some(cost)) if cost < used / 100 * WORTHWHILE => {
                self.used = self.used.other();
                self.begin(Phase::Stays(STAY));
            }
            _ => self.begin(Phase::Stays(STAY)),
        }
    }

    /// Mean cost of the counted trains; `None` if there are too few.
    fn cost(&mut self) -> Option<u64> {
        self.costs.sort_unstable();
        let counted = self
            .costs
            .len()
            .checked_sub(OUTLIERS)
            .filter(|&it| it > 0)?;
        Some(self.costs[..counted].iter().sum::<u64>() / counted as u64)
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.tried = 0;
        self.costs.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const LEN: usize = 60_000;

    /// Sends `trains`, whose costs in nanoseconds `cost` gives for each method; returns how many were given.
    fn run(chooser: &mut Chooser, trains: usize, cost: impl Fn(Method, usize) -> u64) -> usize {
        let given = (0..trains).filter(|&n| {
            let method = chooser.measured();
            let took = Duration::from_nanos(cost(method, n));
            chooser.note(method, LEN, took);
            method == Method::Given
        });
        given.count()
    }

    fn costs(copied: u64, given: u64) -> impl Fn(Method, usize) -> u64 {
        move |method, _| match method {
            Method::Copied => copied,
            Method::Given => given,
        }
    }

    #[test]
    fn method__is_the_one_that_costs_less() {
        for (copied, given, is_given) in [(9000, 5000, true), (5000, 9000, false)] {
            let mut chooser = Chooser::default();
            run(&mut chooser, 2 * TRIAL, costs(copied, given));
            let given = run(&mut chooser, STAY, costs(copied, given));
            assert_eq!(given, if is_given { STAY } else { 0 });
        }
    }

    #[test]
    fn method__follows_what_changes() {
        let mut chooser = Chooser::default();
        run(&mut chooser, 2 * TRIAL + STAY, costs(9000, 5000));
        run(&mut chooser, 2 * TRIAL, costs(5000, 9000));
        assert_eq!(chooser.measured(), Method::Copied);
    }

    #[test]
    fn method__stays_where_the_other_is_hardly_cheaper() {
        let mut chooser = Chooser::default();
        run(&mut chooser, 5 * (2 * TRIAL + STAY), costs(9000, 8900));
        assert_eq!(chooser.measured(), Method::Copied);
    }

    #[test]
    fn method__is_not_changed_by_a_thread_off_its_core() {
        let mut chooser = Chooser::default();
        let cost = |method, n| match (method, n % 16) {
            (Method::Copied, 5) => 5_000_000,
            (Method::Copied, _) => 5000,
            (Method::Given, _) => 6000,
        };
        run(&mut chooser, 4 * (2 * TRIAL + STAY), cost);
        assert_eq!(chooser.measured(), Method::Copied);
    }

    #[test]
    fn method__refused_or_short_trains_end_every_trial() {
        let mut chooser = Chooser::default();
        for _ in 0..10 * (2 * TRIAL + STAY) {
            // Copied, whatever method was chosen.
            chooser.note(Method::Copied, LEN, Duration::from_micros(9));
        }
        for _ in 0..10 * (2 * TRIAL + STAY) {
            chooser.note(chooser.measured(), 100, Duration::from_micros(9));
        }
        assert_eq!(chooser.used, Method::Copied);
    }
}
