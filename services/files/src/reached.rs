//! What a copy has reached over all of its connections.

use crate::message::Totals;
use crate::position::Position;

/// What a copy has reached, over all of its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// All before it is in its place, or was reported as failed.
    pub(crate) position: Position,
    /// The totals of that.
    pub(crate) totals: Totals,
    /// Steps that the sender has begun: what follows `position` up to there may be in its place, too.
    pub(crate) begun: u64,
    /// Units of the file that is on its way.
    pub(crate) units: u64,
    /// How often all was begun anew, because the walk was not the same.
    pub(crate) restarts: u64,
}

impl Reached {
    /// Nothing of it counts any more, though much may be there.
    pub(crate) fn restart(&mut self) {
        *self = Reached {
            begun: u64::MAX,
            restarts: self.restarts + 1,
            ..Reached::default()
        };
    }

    /// Grows with what was done.
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
