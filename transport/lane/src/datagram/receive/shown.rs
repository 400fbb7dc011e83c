//! Receives frames from memory that the lane shares with the kernel. The header is read before any copy, so nothing
//! need be forecast, and the only copy, or the opening pass, writes the payload to its place.

use super::{Envelope, Receiver};
use crate::error::LaneError;
use crate::ethernet::{AROUND, Incoming, Queues};
use crate::lane::Turn;
use zerolane_core::DropReason;
use zerolane_wire::encapsulation::padded;

/// Frames, and bytes of frames, taken in one turn; the rest waits for the next one. Answers leave at the end of a turn.
const FRAMES_PER_TURN: usize = 64;
const BYTES_PER_TURN: usize = 128 << 10;

impl Receiver {
    /// Takes a bounded number of frames. True if there were any.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub(crate) fn receive_frames(
        &mut self,
        queues: &mut Queues,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<bool, LaneError> {
        self.with_buffers(turn, |it, turn| {
            // An answer to a datagram just sent is later than the start of this turn.
            turn.refresh();
            let (mut frames, mut bytes) = (0, 0);
            while let Some(incoming) = queues.next_frame() {
                match incoming {
                    Incoming::Frame(frame) => {
                        bytes += frame.len();
                        it.deliver_frame(frame, turn);
                    }
                    Incoming::Broken => turn.account.dropped_truncated += 1,
                }
                frames += 1;
                turn.more = frames == FRAMES_PER_TURN || bytes >= BYTES_PER_TURN;
                if turn.more {
                    break;
                }
            }
            let cleaned = it.buffers.dispatcher.finish(strict);
            // Frames may be released only now: the last copy read from them.
            queues.release();
            cleaned.map(|()| frames > 0)
        })
    }

    fn deliver_frame(&mut self, frame: &mut [u8], turn: &mut Turn<'_>) {
        let Some((head, datagram)) = frame.split_first_chunk_mut::<AROUND>() else {
            turn.account.dropped_foreign += 1;
            return;
        };
        if !matches!(&self.predictor.envelope, Envelope::Frame(it) if it.is_of_peer(head)) {
            turn.account.dropped_foreign += 1;
            return;
        }
        let datagram = match padded(datagram) {
            Ok(None) => datagram,
            Ok(Some((first, len))) => {
                datagram[0] = first;
                &mut datagram[..len]
            }
            Err(_) => return turn.core.on_dropped(DropReason::Malformed),
        };
        turn.account.datagrams_received += 1;
        let dispatcher = &mut self.buffers.dispatcher;
        dispatcher.deliver_whole(datagram, None, &mut self.unsealer, turn);
    }
}
