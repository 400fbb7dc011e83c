//! Reserves Blocks granted in advance, until an announced Transfer claims them.

use super::{Advance, PlacementTable};
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::vec::Vec;

impl PlacementTable {
    /// Reserves the Block just granted for a Transfer that is not yet announced: nothing of it is expected before
    /// [`PlacementTable::expect_reserved`].
    pub(crate) fn reserve(&mut self, sequence: u32) {
        if let Some(block) = self.get_mut(sequence) {
            block.advance = Advance::Reserved;
            let len = block.span.len;
            self.reserved += 1;
            self.reserved_bytes += len;
            self.outstanding -= len;
        }
    }

    /// `transfer` was announced with `len` bytes: truncates its Blocks there, and expects their missing bytes.
    pub(crate) fn expect_reserved(&mut self, now: Instant, transfer: TransferId, len: u64) {
        let of_it: Vec<u32> = self
            .iter()
            .filter(|(_, block)| block.transfer == transfer && block.is_reserved())
            .map(|(sequence, _)| sequence)
            .collect();
        for sequence in of_it {
            self.expect_block(now, sequence, len);
        }
    }

    fn expect_block(&mut self, now: Instant, sequence: u32, len: u64) {
        self.expect_from(now, sequence);
        let Some(block) = self.get_mut(sequence) else {
            return;
        };
        let before = u64::from(block.gaps.missing());
        let rest = len.saturating_sub(block.transfer_offset);
        block.span.len = block.span.len.min(rest);
        block.gaps.truncate(block.len());
        (block.advance, block.granted) = (Advance::Claimed, now);
        let missing = u64::from(block.gaps.missing());
        self.reserved -= 1;
        self.reserved_bytes -= before;
        self.outstanding += missing;
        if missing == 0 {
            self.revoke(sequence);
        }
    }
}
