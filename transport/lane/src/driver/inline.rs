//! Copies short payloads into a ring when they are posted, and frees them as operations end.

use crate::memory::Registry;
use std::collections::VecDeque;
use std::io;
use zerolane_core::{Span, TransferId, is_older};

/// Length of the ring in bytes: as many 64-byte puts as may be in flight.
const ROOM: usize = 64 << 10;

/// Longest payload, in bytes.
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
    /// Copies `bytes` into the ring; `None` if it is full. `oldest` is the first operation in progress.
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
            // A user that has one request at a time stays at the start, so a thousand connections touch little memory.
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
            // SAFETY: the span lies in the ring, and in no part of it that is taken, so no send reads it. Only the
            // registry's pointers lead to the ring's memory.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
        self.head = start + bytes.len();
        Ok(Some(span))
    }

    /// Assigns the last copy, at `span`, to `id`.
    pub(super) fn take(&mut self, id: TransferId, span: Span) {
        if span.len == 0 {
            return;
        }
        let start = span.offset as usize;
        self.taken.push_back(Taken { id, start });
    }

    /// Offset of `len` free bytes in one piece.
    fn room(&self, len: usize) -> Option<usize> {
        let Some(first) = self.taken.front() else {
            return Some(0);
        };
        let tail = first.start;
        // Wrapped: one byte before the oldest stays free, so that the two ends never meet.
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
