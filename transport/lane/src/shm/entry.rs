//! The word by which both ends agree whether the Initiator is let in, or goes another way.

use std::sync::atomic::{AtomicU32, Ordering};

/// The listener looks at what the Initiator says.
const LET_IN: u32 = 1;
/// The Initiator goes another way.
const LEFT: u32 = 2;

/// Decided once, by whichever end is first: an Initiator that left is no connection of the listener's. 0 at first.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Entry(AtomicU32);

impl Entry {
    /// Lets the Initiator in. False if it left.
    pub(super) fn let_in(&self) -> bool {
        self.decide(LET_IN)
    }

    /// The Initiator leaves. False if it was let in.
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
