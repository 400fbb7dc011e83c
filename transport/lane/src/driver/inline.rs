//! Short payloads copied when they are posted: a ring, freed as operations are over.

use crate::Registry;
use std::collections::VecDeque;
use std::io;
use zerolane_core::{Span, TransferId, is_older};

/// Bytes of the ring: as many 64-byte puts as may be in flight.
const ROOM: usize = 64 << 10;

/// Most bytes of one payload.
pub const MAX_INLINE: usize = 256;

struct Taken {
    id: TransferId,
    start: usize,
}

/// The ring. Its memory is allocated at the first use.
#[derive(Default)]
pub(super) struct Inline {
    memory: Option<Span>,
    taken: VecDeque<Taken>,
    head: usize,
}

impl Inline {
    /// Copies `bytes` into the ring; `None` while it is full. `oldest` is the first operation that is not
    /// over.
    ///
    /// # Errors
    /// The system has no memory.
    pub(super) fn copy(
        &mut self,
        bytes: &[u8],
        registry: &mut Registry,
        oldest: Option<TransferId>,
    ) -> io::Result<Option<Span>> {
        debug_assert!(bytes.len() <= MAX_INLINE);
        let whole = match self.memory {
            Some(span) => span,
            None => *self.memory.insert(registry.allocate(ROOM)?),
        };
        if oldest.is_none() {
            // What asks for one thing at a time stays at the start: a thousand connections touch little then.
            self.free(None);
        }
        let Some(start) = self.room(bytes.len()).or_else(|| {
            self.free(oldest);
            self.room(bytes.len())
        }) else {
            return Ok(None);
        };
        let span = whole.part(start as u64, bytes.len() as u64);
        if let Some(to) = registry.target(span) {
            // SAFETY: the span lies in the ring and in no part of it that is taken, so that no send
            // reads it; the ring's memory is only followed by the registry's pointers.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
        self.head = start + bytes.len();
        Ok(Some(span))
    }

    /// What was copied last belongs to `id`, and `span` is where.
    pub(super) fn take(&mut self, id: TransferId, span: Span) {
        if span.len == 0 {
            return;
        }
        let start = span.offset as usize;
        self.taken.push_back(Taken { id, start });
    }

    /// Where `len` bytes in one piece are free.
    fn room(&self, len: usize) -> Option<usize> {
        let Some(first) = self.taken.front() else {
            return Some(0);
        };
        let tail = first.start;
        // Wrapped: one byte stays free in front of the oldest, so that the two never meet.
        if self.head <= tail {
            return (self.head + len < tail).then_some(self.head);
        }
        if self.head + len <= ROOM {
            return Some(self.head);
        }
        (len < tail).then_some(0)
    }

    /// Frees bytes that no operation needs any more.
    fn free(&mut self, oldest: Option<TransferId>) {
        let Some(oldest) = oldest else {
            return self.taken.clear();
        };
        while self.taken.front().is_some_and(|it| is_older(it.id, oldest)) {
            self.taken.pop_front();
        }
    }
}

#[cfg(test)]
#[path = "inline_tests.rs"]
mod tests;
