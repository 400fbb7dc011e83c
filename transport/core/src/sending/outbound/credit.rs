//! The credit for eager Transfers: what the peer may have to hold of them.
//!
//! No operation carries it. An eager Transfer takes its length from the credit that the peer told at the
//! beginning, and gives it back when both ends know that it is over. What finds none left is announced and
//! granted: so nothing ever waits for credit.

use alloc::vec::Vec;

/// Eager Transfers of this end that are not resolved.
#[derive(Clone, Debug, Default)]
pub(super) struct Credit {
    /// Number of the announcement, and length in bytes.
    taken: Vec<(u32, u32)>,
    /// All of it, bytes.
    bytes: u64,
}

impl Credit {
    /// Takes `len` bytes of `credit` for announcement `sequence`. False if less is left.
    pub(super) fn take(&mut self, sequence: u32, len: u32, credit: u32) -> bool {
        if self.bytes + u64::from(len) > u64::from(credit) {
            return false;
        }
        self.bytes += u64::from(len);
        self.taken.push((sequence, len));
        true
    }

    /// Announcement `sequence` is over.
    pub(super) fn give_back(&mut self, sequence: u32) {
        if let Some(index) = self.taken.iter().position(|it| it.0 == sequence) {
            self.bytes -= u64::from(self.taken.swap_remove(index).1);
        }
    }
}

#[cfg(test)]
#[path = "../credit_tests.rs"]
mod tests;
