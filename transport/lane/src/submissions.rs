//! What many threads submit to the one that runs a worker.
//!
//! Kept apart from descriptors and from `std`'s locks, so that loom can try every order of its steps
//! (`tests/loom.rs`).

use super::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;

/// A queue with many producers and one consumer. In order for each producer.
#[derive(Debug)]
pub struct Submissions<T> {
    /// `None` when the consumer is gone.
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
    /// Puts `item` in. The consumer has to be woken afterwards.
    ///
    /// # Errors
    /// Gives it back if the consumer is gone.
    pub fn push(&self, item: T) -> Result<(), T> {
        match &mut *self.list() {
            Some(list) => {
                list.push_back(item);
                Ok(())
            }
            None => Err(item),
        }
    }

    /// All that is there, in exchange for `empty`, whose room is used again.
    pub fn take(&self, empty: VecDeque<T>) -> VecDeque<T> {
        match &mut *self.list() {
            Some(list) => std::mem::replace(list, empty),
            None => empty,
        }
    }

    /// The consumer goes: nothing more is taken in. Returns what it did not take.
    pub fn close(&self) -> VecDeque<T> {
        self.list().take().unwrap_or_default()
    }

    /// No code under the lock leaves the list inconsistent.
    fn list(&self) -> MutexGuard<'_, Option<VecDeque<T>>> {
        match self.list.lock() {
            Ok(list) => list,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}
