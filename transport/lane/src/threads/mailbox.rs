//! Passes items to a thread that sleeps on descriptors, without a system call if it looks by itself.
//!
//! Uses neither descriptors nor `std`'s atomics, so that loom can try every order of its steps (`tests/loom.rs`).

use super::submissions::Submissions;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;

/// Items in order, from one thread to another. The users bound its length.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    items: Submissions<T>,
    /// The reader was notified since it last found nothing.
    notified: AtomicBool,
    /// Notifications that were sent and not yet taken back. Only the reader accesses it.
    owed: AtomicU64,
}

/// Empty.
impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox {
            items: Submissions::default(),
            notified: AtomicBool::new(false),
            owed: AtomicU64::new(0),
        }
    }
}

impl<T> Mailbox<T> {
    /// Adds `item`. True if the caller must notify the reader, once, in a way that lasts until the reader takes it
    /// back.
    pub(crate) fn push(&self, item: T) -> bool {
        // Nothing closes the queue: both ends hold it.
        let _ = self.items.push(item);
        // A swap, because a reader that sees the flag must see the item.
        !self.notified.swap(true, Ordering::AcqRel)
    }

    /// Takes all items, in exchange for `empty`. A call that finds none takes back notifications: `take_back` returns
    /// how many arrived since its last call. The next such call takes back notifications that arrive late.
    pub(crate) fn take(&self, empty: VecDeque<T>, take_back: impl FnOnce() -> u64) -> VecDeque<T> {
        let items = self.items.take(empty);
        let owed = self.owed.load(Ordering::Relaxed);
        let notified = owed > 0 || self.notified.load(Ordering::Relaxed);
        if !items.is_empty() || !notified {
            return items;
        }
        let taken_back = take_back();
        // A writer that adds an item from now on notifies again; items added before are seen now.
        let notified = u64::from(self.notified.swap(false, Ordering::AcqRel));
        let owed = (owed + notified).saturating_sub(taken_back);
        self.owed.store(owed, Ordering::Relaxed);
        self.items.take(items)
    }
}
