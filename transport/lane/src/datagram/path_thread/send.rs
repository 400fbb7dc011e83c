//! Seals a burst in the path's thread and sends it.

use crate::datagram::message::{AROUND, emit_train_end, is_full, send_bytes};
use crate::memory::delegated::DelegatedAccess;
use crate::seal::{SealNumbers, TRAILER_LEN};
use socket2::Socket;
use std::io;
use zerolane_core::DataBurst;

/// Bytes of the largest burst, with headers and seals.
const STAGE: usize = 65_536;

/// An order to seal and send a burst.
pub(crate) struct SendOrder {
    pub(crate) access: DelegatedAccess,
    pub(crate) burst: DataBurst,
    pub(crate) numbers: SealNumbers,
    /// Start of the payload, in one piece, which may be read while the access is in progress.
    pub(crate) payload: *const u8,
}

// SAFETY: the payload is accessed only as the access permits, in any thread.
unsafe impl Send for SendOrder {}

/// A burst that is sealed and has not left.
pub(super) struct Stage {
    bytes: Box<[u8]>,
    /// Length of the burst in bytes.
    filled: usize,
    /// Bytes of each datagram except the last; 0: there is only one.
    segment: usize,
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage {
            bytes: vec![0; STAGE].into(),
            filled: 0,
            segment: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Seals the burst of `order`, unless the order was called off.
    pub(super) fn seal(&mut self, mut order: SendOrder) {
        if !order.access.begin() {
            return;
        }
        let len = order.burst.span.len as usize;
        // SAFETY: the access is in progress, so as many bytes are mapped there, and nothing writes them: the memory is
        // posted to be sent, and is neither exported nor a mapped file.
        let payload = unsafe { std::slice::from_raw_parts(order.payload, len) };
        // If the cryptography refuses, the burst counts as lost.
        self.filled = fill(&mut self.bytes, &order.burst, payload, &mut order.numbers).unwrap_or(0);
        let datagram = match order.burst.train {
            Some(_) => order.burst.stu as usize,
            None => order.burst.stu as usize + AROUND,
        };
        self.segment = if order.burst.segments > 1 {
            datagram
        } else {
            0
        };
    }

    /// Sends the burst, which stays if there is no room.
    ///
    /// # Errors
    /// Those of the socket.
    pub(super) fn send(&mut self, socket: &Socket) -> io::Result<()> {
        let sent = send_bytes(socket, &self.bytes[..self.filled], self.segment);
        if !sent.as_ref().is_err_and(is_full) {
            self.filled = 0;
        }
        sent
    }
}

/// Seals the burst into `place`. Returns its length.
fn fill(
    place: &mut [u8],
    burst: &DataBurst,
    payload: &[u8],
    numbers: &mut SealNumbers,
) -> Option<usize> {
    if let Some(train) = burst.train {
        let head = burst.train_header(train).emit();
        let (sealed, rest) = place.split_at_mut_checked(payload.len())?;
        let trailer = numbers.seal_from(&head, payload, sealed)?;
        let rest = rest.get_mut(..usize::from(train.padding) + AROUND)?;
        return Some(payload.len() + emit_train_end(rest, train, &head, &trailer));
    }
    let mut filled = 0;
    for (index, part) in (0..burst.segments).zip(payload.chunks(burst.stu.max(1) as usize)) {
        let end = filled + AROUND + part.len();
        let (head, rest) = place.get_mut(filled..end)?.split_first_chunk_mut()?;
        let (sealed, trailer) = rest.split_last_chunk_mut::<TRAILER_LEN>()?;
        burst.header(index).emit_into(head);
        *trailer = numbers.seal_from(head, part, sealed)?;
        filled = end;
    }
    Some(filled)
}
