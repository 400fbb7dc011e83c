//! What one thread tells another that sleeps on descriptors, with no system call for what it finds when it looks.
//!
//! Kept apart from descriptors and from `std`'s atomics, so that loom can try every order of its steps
//! (`tests/loom.rs`).

use super::submissions::Submissions;
use super::sync::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;

/// Items in order, from one thread to another. Bounded by what its users have to put in.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    items: Submissions<T>,
    /// The reader was told since it looked in vain.
    told: AtomicBool,
    /// How often it was told, less what it has taken back of that: the reader's own.
    owed: AtomicU64,
}

/// Empty.
impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox {
            items: Submissions::default(),
            told: AtomicBool::new(false),
            owed: AtomicU64::new(0),
        }
    }
}

impl<T> Mailbox<T> {
    /// Puts `item` in. True if the reader is to be told, once, in a way that lasts until it is taken back.
    pub(crate) fn push(&self, item: T) -> bool {
        // Nothing closes it: both ends have it as long as either does.
        let _ = self.items.push(item);
        // A swap, for the reader that sees it is to see the item.
        !self.told.swap(true, Ordering::AcqRel)
    }

    /// All that is there, in exchange for `empty`. A look in vain takes back what the reader was told by: `untell` says how
    /// often that was since it was called last. What was told late is taken back by the next look in vain.
    pub(crate) fn take(&self, empty: VecDeque<T>, untell: impl FnOnce() -> u64) -> VecDeque<T> {
        let items = self.items.take(empty);
        let owed = self.owed.load(Ordering::Relaxed);
        let told = owed > 0 || self.told.load(Ordering::Relaxed);
        if !items.is_empty() || !told {
            return items;
        }
        let untold = untell();
        // Whoever puts something in from here on tells again; what was put in before is seen now.
        let told = u64::from(self.told.swap(false, Ordering::AcqRel));
        let owed = (owed + told).saturating_sub(untold);
        self.owed.store(owed, Ordering::Relaxed);
        self.items.take(items)
    }
}
