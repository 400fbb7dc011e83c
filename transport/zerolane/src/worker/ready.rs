//! Slots that have something to do, each once.

use super::poller::Key;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Ready {
    keys: VecDeque<Key>,
}

impl Ready {
    /// Puts `key` in, unless it is there. `queued` is what its slot remembers of that.
    pub(super) fn push(&mut self, key: Key, queued: &mut bool) {
        if !std::mem::replace(queued, true) {
            self.keys.push_back(key);
        }
    }

    /// The next one. Its slot has to forget that it is here.
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
