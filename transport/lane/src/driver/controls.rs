//! Keeps the control of messages that are being received.

use crate::memory::Registry;
use zerolane_core::Span;

/// Slots for the control of messages to receive, in pieces that are allocated as needed.
#[derive(Debug, Default)]
pub(super) struct Controls {
    pieces: Vec<Span>,
    free: Vec<u32>,
}

const SLOT: usize = zerolane_core::limits::MAX_CONTROL as usize;
const SLOTS_PER_PIECE: u32 = 32;

impl Controls {
    pub(super) fn take(&mut self, registry: &mut Registry) -> Option<u32> {
        if self.free.is_empty() {
            let piece = registry.allocate(SLOT * SLOTS_PER_PIECE as usize).ok()?;
            let first = self.pieces.len() as u32 * SLOTS_PER_PIECE;
            self.pieces.push(piece);
            self.free.extend((first..first + SLOTS_PER_PIECE).rev());
        }
        self.free.pop()
    }

    pub(super) fn span(&self, slot: u32) -> Span {
        let (piece, index) = (slot / SLOTS_PER_PIECE, slot % SLOTS_PER_PIECE);
        self.pieces[piece as usize].part(u64::from(index) * SLOT as u64, SLOT as u64)
    }

    pub(super) fn give_back(&mut self, slot: Option<u32>) {
        self.free.extend(slot);
    }
}
