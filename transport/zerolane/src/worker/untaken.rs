//! Holds the accepted connections of an endpoint that its program did not take yet.

use super::Key;
use crate::bell::Bell;
use std::collections::VecDeque;
use std::sync::Arc;

/// The backlog of an endpoint.
#[derive(Debug)]
pub(super) struct Untaken {
    /// Most connections in it.
    most: usize,
    keys: VecDeque<Key>,
    /// Rings while there is one.
    bell: Arc<Bell>,
    /// Whether the listener is not read. Clients repeat their requests meanwhile.
    pub(super) paused: bool,
}

impl Untaken {
    pub(super) fn new(most: u16, bell: Arc<Bell>) -> Untaken {
        Untaken {
            most: most.into(),
            keys: VecDeque::new(),
            bell,
            paused: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys.len() >= self.most
    }

    /// How many more connections may be accepted now.
    pub(super) fn room(&self) -> usize {
        match self.paused {
            true => 0,
            false => self.most.saturating_sub(self.keys.len()),
        }
    }

    pub(super) fn push(&mut self, key: Key) {
        self.keys.push_back(key);
        if self.keys.len() == 1 {
            self.bell.ring();
        }
    }

    pub(super) fn pop(&mut self) -> Option<Key> {
        let key = self.keys.pop_front()?;
        self.fall_silent();
        Some(key)
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(at) = self.keys.iter().position(|it| *it == key) {
            self.keys.remove(at);
            self.fall_silent();
        }
    }

    /// Stops the bell after the last connection left.
    fn fall_silent(&mut self) {
        if self.keys.is_empty() {
            self.bell.silence();
        }
    }
}
