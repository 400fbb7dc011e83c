//! Synchronises a ring in memory that two processes share: how far it was written and read, which records are retired,
//! and which end sleeps.
//!
//! Each process keeps its own count, reads only the other's, once for each use, and checks it: the memory may hold
//! anything at any time. Uses neither memory nor descriptors, so that loom can try every order of the steps
//! (`tests/loom.rs`).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::unavailable::RingFault;

/// Alignment of records in bytes: a cache line. So a short message moves one line between the ends, and the next record
/// shares no line with one that the other end is still reading.
pub(crate) const ALIGN: u64 = 64;

/// The end wants to be woken by arrivals.
pub(crate) const ARRIVAL: u32 = 1;
/// The end wants to be woken by room in the ring that it writes.
pub(crate) const ROOM: u32 = 2;

/// One direction: the words of its producer and of its consumer, in separate cache lines.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Way {
    pub(super) produced: Produced,
    pub(super) consumed: Consumed,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Produced {
    /// Bytes written in total.
    pub(super) published: AtomicU64,
    /// Records before this position are retired: the memory that they name has returned to its owner.
    pub(super) retired_below: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Consumed {
    /// Bytes read in total.
    pub(super) taken: AtomicU64,
}

/// The end that writes.
#[derive(Debug, Default)]
pub(crate) struct Producer {
    pub(super) head: u64,
    pub(super) taken: u64,
}

impl Producer {
    /// Where the next record begins.
    pub(crate) fn position(&self) -> u64 {
        self.head
    }

    /// Bytes read by the consumer at the last check.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether `len` more bytes fit in the ring of `capacity`.
    ///
    /// # Errors
    /// The consumer's index is impossible.
    pub(crate) fn has_room(
        &mut self,
        way: &Way,
        capacity: u64,
        len: u64,
    ) -> Result<bool, RingFault> {
        if self.head - self.taken + len > capacity {
            self.look(way)?;
        }
        Ok(self.head - self.taken + len <= capacity)
    }

    /// Checks how much the consumer has read.
    ///
    /// # Errors
    /// As [`Producer::has_room`].
    pub(crate) fn look(&mut self, way: &Way) -> Result<(), RingFault> {
        let taken = way.consumed.taken.load(Ordering::Acquire);
        if taken < self.taken || taken > self.head || !taken.is_multiple_of(ALIGN) {
            return Err(RingFault::Index);
        }
        self.taken = taken;
        Ok(())
    }

    /// Whether the consumer has read more since the last check.
    pub(crate) fn is_behind(&self, way: &Way) -> bool {
        way.consumed.taken.load(Ordering::Acquire) != self.taken
    }

    /// Publishes `len` bytes that were written from [`Producer::position`] on.
    pub(crate) fn publish(&mut self, way: &Way, len: u64) {
        self.head += len;
        // A store-release: the consumer's load-acquire synchronizes with it. So this thread's earlier stores, in the
        // ring and in memory that the consumer lends, happen before the consumer's use of the record.
        way.produced.published.store(self.head, Ordering::Release);
    }

    /// Retires the records written so far: the memory that they name must not be used any more. A consumer that copied
    /// later content of that memory learns of it by [`Consumer::is_retired`].
    pub(crate) fn retire(&self, way: &Way) {
        way.produced
            .retired_below
            .store(self.head, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// The end that reads.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    pub(super) tail: u64,
    pub(super) published: u64,
}

impl Consumer {
    /// Where the next record begins.
    pub(crate) fn position(&self) -> u64 {
        self.tail
    }

    /// Bytes available in the ring of `capacity`.
    ///
    /// # Errors
    /// The producer's index is impossible.
    pub(crate) fn available(&mut self, way: &Way, capacity: u64) -> Result<u64, RingFault> {
        if self.published == self.tail {
            let published = way.produced.published.load(Ordering::Acquire);
            let more = published.wrapping_sub(self.tail);
            if more > capacity || !published.is_multiple_of(ALIGN) {
                return Err(RingFault::Index);
            }
            self.published = published;
        }
        Ok(self.published - self.tail)
    }

    /// Whether bytes are available.
    pub(crate) fn has_more(&self, way: &Way) -> bool {
        way.produced.published.load(Ordering::Acquire) != self.tail
    }

    /// Advances by the next `len` bytes, which are available.
    pub(crate) fn take(&mut self, len: u64) {
        self.tail += len;
    }

    /// Lets the producer overwrite the bytes that were read.
    pub(crate) fn release(&self, way: &Way) {
        way.consumed.taken.store(self.tail, Ordering::Release);
    }

    /// Whether the record at `position` is retired. Check this after each copy of its payload, before the payload is
    /// reported.
    pub(crate) fn is_retired(&self, way: &Way, position: u64) -> bool {
        fence(Ordering::SeqCst);
        way.produced.retired_below.load(Ordering::Relaxed) > position
    }
}

/// The state that an end publishes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct End {
    /// Events by which it wants to be woken; 0: it does not sleep, or is being woken.
    sleeping: AtomicU32,
    /// Least length of payload that should come by reference; 0: not decided yet.
    pub(crate) by_reference_from: AtomicU32,
    /// Address of a number in its memory, and the number: an end that can read it there can read the memory that
    /// records name.
    pub(crate) mark_address: AtomicU64,
    pub(crate) mark: AtomicU64,
}

impl End {
    /// Announces that this end is about to sleep. It must check for work once more before it does.
    pub(crate) fn arm(&self, wanted: u32) {
        self.sleeping.store(wanted, Ordering::Relaxed);
        // This end announces its sleep, then checks for work; the other end writes, then checks for a sleeper. The
        // fences order the two, so that at least one of them sees the other.
        fence(Ordering::SeqCst);
    }

    /// Ends the announcement. True if this end was woken, or is about to be.
    pub(crate) fn disarm(&self) -> bool {
        self.sleeping.swap(0, Ordering::Relaxed) == 0
    }

    /// Whether the caller must wake this end because of an event of the kind `done`: true for one caller only.
    pub(crate) fn claim_wake(&self, done: u32) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) & done != 0
            && self.sleeping.swap(0, Ordering::Relaxed) != 0
    }
}
