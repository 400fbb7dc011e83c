//! Counts the credit for eager Transfers: bytes that the peer may have to hold.
//!
//! No operation carries credit. An eager Transfer takes its length from the credit that the peer stated at connection
//! set-up, and returns it when both ends know that the Transfer is over. Without enough credit, a Transfer is announced
//! and granted, so nothing ever waits for credit.

use alloc::vec::Vec;

/// Unresolved eager Transfers of this end.
#[derive(Clone, Debug, Default)]
pub(super) struct Credit {
    /// Number of the announcement, and length in bytes.
    taken: Vec<(u32, u32)>,
    /// Sum of the lengths, bytes.
    bytes: u64,
}

impl Credit {
    /// Takes `len` bytes of `credit` for announcement `sequence`. False if too little is left.
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
