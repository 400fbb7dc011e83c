//! Queues submissions of many threads for the thread that runs a worker.
//!
//! Uses neither descriptors nor `std`'s locks, so that loom can try every order of its steps (`tests/loom.rs`).

use crate::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;

/// A queue with many producers and one consumer. Keeps the order of each producer.
#[derive(Debug)]
pub struct Submissions<T> {
    /// `None` after the consumer has closed it.
    list: Mutex<Option<VecDeque<T>>>,
}

/// Open and empty.
impl<T> Default for Submissions<T> {
    fn default() -> Submissions<T> {
        Submissions {
            list: Mutex::new(Some(VecDeque::new())),
        }
    }
}

impl<T> Submissions<T> {
    /// Adds `item`. The caller must wake the consumer afterwards.
    ///
    /// # Errors
    /// Returns `item` if the consumer is gone.
    pub fn push(&self, item: T) -> Result<(), T> {
        match &mut *self.list() {
            Some(list) => {
                list.push_back(item);
                Ok(())
            }
            None => Err(item),
        }
    }

    /// Takes all items, in exchange for `empty`, whose capacity is reused.
    pub fn take(&self, empty: VecDeque<T>) -> VecDeque<T> {
        match &mut *self.list() {
            Some(list) => std::mem::replace(list, empty),
            None => empty,
        }
    }

    /// Closes the queue for the consumer: it accepts no more items. Returns the items that the consumer did not take.
    pub fn close(&self) -> VecDeque<T> {
        self.list().take().unwrap_or_default()
    }

    /// Ignores poison: no code under the lock leaves the list inconsistent.
    fn list(&self) -> MutexGuard<'_, Option<VecDeque<T>>> {
        match self.list.lock() {
            Ok(list) => list,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}
