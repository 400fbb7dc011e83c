//! The words of a ring in memory that two processes share: how far it was written and taken, what of it is void, and who
//! sleeps.
//!
//! Each process keeps its own count and reads the other's alone, once for each use, and checks it: what lies in the
//! memory may be anything at any time. Kept apart from memory and descriptors, so that loom can try every order of the
//! steps (`tests/loom.rs`).

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use core::fmt;

/// Records begin at multiples of this, bytes: cache lines, so that a short message is one that moves between the ends, and
/// what is written next is none that the other end still reads.
pub(crate) const ALIGN: u64 = 64;

/// It wants to be woken by what arrives.
pub(crate) const ARRIVAL: u32 = 1;
/// It wants to be woken by room in the ring that it writes.
pub(crate) const ROOM: u32 = 2;

/// How a peer broke the memory that it shares with this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingFault {
    /// An index is beyond what the ring holds, or at no record.
    Index,
    /// A record is longer than any is, or than what was written, or of no kind that there is.
    Record,
    /// A record names memory that the peer does not have.
    Address,
}

impl fmt::Display for RingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingFault::Index => "an index of the ring is beyond what it holds",
            RingFault::Record => "a record of the ring is none that there is",
            RingFault::Address => "a record of the ring names memory that the peer does not have",
        })
    }
}

/// One direction: what its producer writes, and what its consumer does, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Way {
    pub(super) produced: Produced,
    pub(super) consumed: Consumed,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Produced {
    /// Bytes ever written.
    pub(super) published: AtomicU64,
    /// What is named by records before this position is not the producer's to give any more.
    pub(super) void_below: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Consumed {
    /// Bytes ever taken.
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

    /// What was taken when it was looked last.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether `len` more bytes fit into the ring of `capacity`.
    ///
    /// # Errors
    /// The consumer's index cannot be.
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

    /// Looks what was taken.
    ///
    /// # Errors
    /// As of [`Producer::has_room`].
    pub(crate) fn look(&mut self, way: &Way) -> Result<(), RingFault> {
        let taken = way.consumed.taken.load(Ordering::Acquire);
        if taken < self.taken || taken > self.head || !taken.is_multiple_of(ALIGN) {
            return Err(RingFault::Index);
        }
        self.taken = taken;
        Ok(())
    }

    /// Whether more was taken than when it was looked last.
    pub(crate) fn is_behind(&self, way: &Way) -> bool {
        way.consumed.taken.load(Ordering::Acquire) != self.taken
    }

    /// Shows `len` bytes that were written from [`Producer::position`] on.
    pub(crate) fn publish(&mut self, way: &Way, len: u64) {
        self.head += len;
        // A store-release: the consumer's load-acquire synchronizes with it. So what this thread stored before, in the
        // ring and in memory that the consumer lends, happens before what the consumer does with the record.
        way.produced.published.store(self.head, Ordering::Release);
    }

    /// What is named by the records written so far is not to be used any more. What its memory is written with after
    /// this, a consumer that has copied it finds out by [`Consumer::is_void`].
    pub(crate) fn void(&self, way: &Way) {
        way.produced.void_below.store(self.head, Ordering::Relaxed);
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

    /// Bytes that can be taken of the ring of `capacity`.
    ///
    /// # Errors
    /// The producer's index cannot be.
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

    /// Whether something can be taken.
    pub(crate) fn has_more(&self, way: &Way) -> bool {
        way.produced.published.load(Ordering::Acquire) != self.tail
    }

    /// Goes on behind the next `len` bytes, which are available.
    pub(crate) fn take(&mut self, len: u64) {
        self.tail += len;
    }

    /// The producer may write again where what was taken lay.
    pub(crate) fn release(&self, way: &Way) {
        way.consumed.taken.store(self.tail, Ordering::Release);
    }

    /// Whether what a record at `position` names is not the producer's to give any more: to be asked when it was copied,
    /// before anything is told of it.
    pub(crate) fn is_void(&self, way: &Way, position: u64) -> bool {
        fence(Ordering::SeqCst);
        way.produced.void_below.load(Ordering::Relaxed) > position
    }
}

/// What an end says of itself.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct End {
    /// What it wants to be woken by; 0: it does not sleep, or is being woken.
    sleeping: AtomicU32,
    /// Payload of so many bytes is to come by reference; 0: it has not said so yet.
    pub(crate) by_reference_from: AtomicU32,
    /// Where a number lies in its memory, and the number: who can read it there may read what records name.
    pub(crate) mark_address: AtomicU64,
    pub(crate) mark: AtomicU64,
}

impl End {
    /// It is about to sleep: it has to look once more before it does.
    pub(crate) fn arm(&self, wanted: u32) {
        self.sleeping.store(wanted, Ordering::Relaxed);
        // Says that it sleeps, then looks; the other one writes, then looks who sleeps. The fences put the two in one
        // order, so that one of them sees the other.
        fence(Ordering::SeqCst);
    }

    /// It sleeps no more. Whether it was, or is about to be, woken.
    pub(crate) fn disarm(&self) -> bool {
        self.sleeping.swap(0, Ordering::Relaxed) == 0
    }

    /// Whether it has to be woken by what was just done, which is of the kind `done`: true for one caller only.
    pub(crate) fn claim(&self, done: u32) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) & done != 0
            && self.sleeping.swap(0, Ordering::Relaxed) != 0
    }
}
