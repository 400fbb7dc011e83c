//! What is done to a message that came in a frame before it is looked at as a datagram.

use super::layout::Message;
use super::{Receiver, SPILL};
use crate::Turn;
use zerolane_core::DropReason;
use zerolane_wire::encapsulation::{PADDED_CODE, PADDED_FRAME, padded};

impl Receiver {
    /// The message without what the frame added to it. `None`: it is dropped, and counted.
    pub(super) fn unframe(&mut self, message: Message, turn: &mut Turn<'_>) -> Option<Message> {
        let Some(frames) = &self.frames else {
            return Some(message);
        };
        if !frames.is_peers(message.index) {
            turn.account.dropped_foreign += 1;
            return None;
        }
        let layout = &self.buffers.layouts[message.index];
        let first = match layout.pairs {
            0 => &mut self.buffers.spill[message.index * SPILL],
            _ => &mut self.buffers.slots[layout.slot].header[0],
        };
        if *first >> 3 != PADDED_CODE {
            return Some(message);
        }
        let mut frame = [0; PADDED_FRAME];
        let whole = message.total == frame.len();
        // Else its place is gone with its page: as if lost.
        if whole && !self.linearize(message, turn.memory, &mut frame) {
            return None;
        }
        let Some((original, total)) = padded(&frame).ok().flatten().filter(|_| whole) else {
            turn.core.on_dropped(DropReason::Malformed);
            return None;
        };
        let layout = &self.buffers.layouts[message.index];
        match layout.pairs {
            0 => self.buffers.spill[message.index * SPILL] = original,
            _ => self.buffers.slots[layout.slot].header[0] = original,
        }
        Some(Message {
            total,
            segment: total,
            ..message
        })
    }
}
