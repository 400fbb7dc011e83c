//! Tracks the progress of a copy over all of its connections.

use crate::message::Totals;
use crate::position::Position;

/// The progress of a copy over all of its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// All steps before it are done, or were reported as failed.
    pub(crate) position: Position,
    /// The totals of these steps.
    pub(crate) totals: Totals,
    /// Steps that the sender has begun: those between `position` and there may be done, too.
    pub(crate) started: u64,
    /// Units of the file in transit.
    pub(crate) units: u64,
    /// How often the copy was restarted because the walk differed.
    pub(crate) restarts: u64,
}

impl Reached {
    /// Discards the progress, although many files may be in place.
    pub(crate) fn restart(&mut self) {
        *self = Reached {
            started: u64::MAX,
            restarts: self.restarts + 1,
            ..Reached::default()
        };
    }

    /// A measure that grows with the progress.
    pub(crate) fn mark(&self) -> (u64, u64, u64) {
        (self.restarts, self.position.steps, self.units)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::position::Step;

    #[test]
    fn mark__grows_with_restarts_steps_and_units() {
        let mut reached = Reached {
            units: 7,
            ..Reached::default()
        };
        let mut last = reached.mark();
        reached.position.pass(Step::Entry, b"a");
        reached.units = 0;
        assert!(reached.mark() > last);
        last = reached.mark();
        reached.restart();
        assert!(reached.mark() > last);
        assert_eq!(reached.position, Position::default());
    }
}
