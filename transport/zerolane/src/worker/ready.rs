//! Queues the slots that have something to do, each once.

use super::poller::Key;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Ready {
    keys: VecDeque<Key>,
}

impl Ready {
    /// Appends `key`, unless it is queued already. The slot stores `queued`.
    pub(super) fn push(&mut self, key: Key, queued: &mut bool) {
        if !std::mem::replace(queued, true) {
            self.keys.push_back(key);
        }
    }

    /// Removes the next key. The caller must clear its slot's `queued`.
    pub(super) fn pop(&mut self) -> Option<Key> {
        self.keys.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
