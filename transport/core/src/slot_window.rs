//! Numbers requests while the peer has free slots for unresolved ones.

use alloc::collections::VecDeque;

/// Numbers requests from 0. The peer may forget a number once it and all before it are resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotWindow {
    base: u32,
    /// For each number from `base` on: whether it is resolved.
    resolved: VecDeque<bool>,
}

impl SlotWindow {
    /// The next number, unless the oldest unresolved one is `limit` numbers back.
    pub(crate) fn open(&mut self, limit: u16) -> Option<u32> {
        if self.resolved.len() >= usize::from(limit) {
            return None;
        }
        let number = self.next();
        self.resolved.push_back(false);
        Some(number)
    }

    /// The number assigned next.
    pub(crate) fn next(&self) -> u32 {
        self.base.wrapping_add(self.resolved.len() as u32)
    }

    /// The peer is done with `number`.
    pub(crate) fn resolve(&mut self, number: u32) {
        let index = number.wrapping_sub(self.base) as usize;
        if let Some(resolved) = self.resolved.get_mut(index) {
            *resolved = true;
        }
        while self.resolved.front() == Some(&true) {
            self.resolved.pop_front();
            self.base = self.base.wrapping_add(1);
        }
    }

    /// Continues as if `number` requests had been resolved before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.base = number;
    }
}

#[cfg(test)]
#[path = "slot_window_tests.rs"]
mod tests;
