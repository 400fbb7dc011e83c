//! Decides, in one shared word, whether the listener admits the Initiator or the Initiator leaves.

use std::sync::atomic::{AtomicU32, Ordering};

/// The listener has admitted the Initiator.
const LET_IN: u32 = 1;
/// The Initiator has left for another lane.
const LEFT: u32 = 2;

/// Set once, by whichever end is first: an Initiator that left becomes no connection of the listener. Initially 0.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Entry(AtomicU32);

impl Entry {
    /// Admits the Initiator. False if it has left.
    pub(super) fn let_in(&self) -> bool {
        self.decide(LET_IN)
    }

    /// Leaves, for the Initiator. False if it has been admitted.
    pub(super) fn leave(&self) -> bool {
        self.decide(LEFT)
    }

    fn decide(&self, what: u32) -> bool {
        let decided = self
            .0
            .compare_exchange(0, what, Ordering::AcqRel, Ordering::Acquire);
        decided.is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn entry__is_decided_once_by_whichever_end_is_first() {
        let entry = Entry::default();
        assert!(entry.let_in());
        assert!(!entry.leave());
        let entry = Entry::default();
        assert!(entry.leave());
        assert!(!entry.let_in());
        assert!(!entry.let_in());
    }
}
