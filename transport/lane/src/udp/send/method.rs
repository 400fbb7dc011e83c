//! Whether trains are given to the kernel or copied by it: what costs less here, by measurement.
//!
//! Which that is depends on the machine, and on the payload. A copy of what lies in the cache costs little; the kernel's
//! references to pages, which the peer's core drops, cost most where both ends share a machine. So either is
//! tried for some trains now and then, and what took the calling thread less time for each byte is used in between.

use std::time::Duration;

/// Trains of a trial.
const TRIAL: usize = 48;
/// Of those, the ones at its beginning that are not counted: they pay for what was sent before.
const SETTLING: usize = 12;
/// Of those counted, the ones that took longest for each byte and count no more: the thread was off its core.
const OUTLIERS: usize = 6;
/// Shorter trains are not counted: what a call costs counts for more there.
const LEAST: usize = 16 << 10;
/// Trains between two trials.
const STAY: usize = 2048;
/// The other method is chosen if it costs less than so many hundredths of this one's.
const WORTHWHILE: u64 = 97;

/// How trains come to the kernel.
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

/// What is done at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The method in use is timed, to be compared with the other.
    TimesUsed,
    /// The other one is, of which the one in use took so many picoseconds a byte.
    TimesOther(u64),
    /// Nothing, for so many trains.
    Stays(usize),
}

/// The choice of one connection.
#[derive(Debug)]
pub(super) struct Chooser {
    used: Method,
    phase: Phase,
    /// Trains of this trial.
    tried: usize,
    /// What those that count took, picoseconds a byte.
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
    /// How the next train is to leave.
    pub(super) fn method(&self) -> Method {
        #[cfg(test)]
        if crate::udp::system::seam::always_gives() {
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

    /// Whether the next train is to be timed.
    pub(super) fn is_timing(&self) -> bool {
        !matches!(self.phase, Phase::Stays(_))
    }

    /// A train of `len` bytes left by `method`, and took so long if it was timed.
    pub(super) fn note(&mut self, method: Method, len: usize, took: Duration) {
        if let Phase::Stays(left) = &mut self.phase {
            *left -= 1;
            if *left == 0 {
                self.begin(Phase::TimesUsed);
            }
            return;
        }
        // One that could not leave as it was to says nothing; but it counts, so that every trial ends.
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

    /// Mean cost of those that count; `None` if they are too few.
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

    /// Sends `trains`, of which each takes what `cost` says of its method, nanoseconds; those given.
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
            // Whatever it is to be, it is copied.
            chooser.note(Method::Copied, LEN, Duration::from_micros(9));
        }
        for _ in 0..10 * (2 * TRIAL + STAY) {
            chooser.note(chooser.measured(), 100, Duration::from_micros(9));
        }
        assert_eq!(chooser.used, Method::Copied);
    }
}
