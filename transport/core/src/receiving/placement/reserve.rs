//! Blocks granted in advance: reserved for a Transfer that is to be announced, claimed by it when it is.

use super::{Advance, PlacementTable};
use crate::{Instant, TransferId};
use alloc::vec::Vec;

impl PlacementTable {
    /// The Block just granted is of a Transfer that is not announced yet: nothing is expected of it before
    /// [`PlacementTable::claim`].
    pub(crate) fn reserve(&mut self, sequence: u32) {
        if let Some(block) = self.get_mut(sequence) {
            block.advance = Advance::Reserved;
            let len = block.span.len;
            self.reserved += 1;
            self.reserved_bytes += len;
            self.outstanding -= len;
        }
    }

    /// `transfer` was announced with `len` bytes: its Blocks end there, and what is missing of them is expected.
    pub(crate) fn claim(&mut self, now: Instant, transfer: TransferId, len: u64) {
        let of_it: Vec<u32> = self
            .iter()
            .filter(|(_, block)| block.transfer == transfer && block.is_reserved())
            .map(|(sequence, _)| sequence)
            .collect();
        for sequence in of_it {
            self.claim_block(now, sequence, len);
        }
    }

    fn claim_block(&mut self, now: Instant, sequence: u32, len: u64) {
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
