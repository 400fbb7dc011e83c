//! What one thread tells another that sleeps on descriptors, with no system call for what it finds when it looks.
//!
//! Kept apart from descriptors and from `std`'s atomics, so that loom can try every order of its steps
//! (`tests/loom.rs`).

use super::submissions::Submissions;
use super::sync::{AtomicBool, Ordering};
use std::collections::VecDeque;

/// Items in order, and whether their reader was told that there are some. Bounded by what its users have to put in.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    items: Submissions<T>,
    told: AtomicBool,
}

/// Empty.
impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox {
            items: Submissions::default(),
            told: AtomicBool::new(false),
        }
    }
}

impl<T> Mailbox<T> {
    /// Puts `item` in. True if the reader is to be told: it looked in vain since it was told last.
    pub(crate) fn push(&self, item: T) -> bool {
        // Nothing closes it: both ends have it as long as either does.
        let _ = self.items.push(item);
        // A swap, for the reader that sees it is to see the item.
        !self.told.swap(true, Ordering::AcqRel)
    }

    /// All that is there, in exchange for `empty`. `untell` is called before a look in vain ends: it takes back what
    /// the reader was told by.
    pub(crate) fn take(&self, empty: VecDeque<T>, untell: impl FnOnce()) -> VecDeque<T> {
        let items = self.items.take(empty);
        if !items.is_empty() || !self.told.load(Ordering::Relaxed) {
            return items;
        }
        untell();
        // Whoever puts something in from here on tells again; what was put in before is seen now.
        self.told.swap(false, Ordering::AcqRel);
        self.items.take(items)
    }
}
