//! Numbers given to requests, of which the peer holds only so many unresolved.

use alloc::collections::VecDeque;

/// Numbers requests from 0; a number is free for the peer to forget once it and all before it are
/// resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotWindow {
    base: u32,
    /// From `base` on: is it resolved?
    resolved: VecDeque<bool>,
}

impl SlotWindow {
    /// The next number, unless `limit` of them reach back to an unresolved one.
    pub(crate) fn open(&mut self, limit: u16) -> Option<u32> {
        if self.resolved.len() >= usize::from(limit) {
            return None;
        }
        let number = self.next();
        self.resolved.push_back(false);
        Some(number)
    }

    /// The number that is given next.
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

    /// As if `number` requests had been resolved before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.base = number;
    }
}

#[cfg(test)]
#[path = "slot_window_tests.rs"]
mod tests;
