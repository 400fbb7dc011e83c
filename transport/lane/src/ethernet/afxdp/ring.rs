//! Reads and writes rings shared with the kernel: each has one producer and one consumer, one of which is the kernel.
//!
//! The kernel's writes are trusted: no other process has these pages. Indices are still limited to the ring's length,
//! so that nothing outside of it is ever accessed.

use crate::memory::Mapping;
use crate::sync::{AtomicU32, Ordering};
use std::marker::PhantomData;

/// The kernel wants to be woken (XDP_RING_NEED_WAKEUP).
const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// One ring of entries of type `T`, the kernel's type for this ring: `xdp_desc` or `u64`.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: Mapping,
    offsets: libc::xdp_ring_offset,
    /// Number of entries, a power of two.
    len: u32,
    /// This end's index, which counts entries written or read, and the kernel's index at the last check.
    own: u32,
    other: u32,
    entries: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// A ring of `len` entries in `memory`, at `offsets`.
    pub(super) fn new(memory: Mapping, offsets: libc::xdp_ring_offset, len: u32) -> Ring<T> {
        debug_assert!(len.is_power_of_two());
        debug_assert!(
            Ring::<T>::bytes(&offsets, len) <= memory.len(),
            "entries outside of the ring"
        );
        Ring {
            memory,
            offsets,
            len,
            own: 0,
            other: 0,
            entries: PhantomData,
        }
    }

    /// Bytes of a ring of `len` entries.
    pub(super) fn bytes(offsets: &libc::xdp_ring_offset, len: u32) -> usize {
        offsets.desc as usize + len as usize * size_of::<T>()
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's offsets of words in this mapping. The words are aligned, live as long as the mapping,
        // and are only accessed atomically.
        unsafe { &*self.memory.at(offset as usize).cast::<AtomicU32>() }
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = (index & (self.len - 1)) as usize;
        self.memory
            .at(self.offsets.desc as usize + at * size_of::<T>())
            .cast()
    }

    /// Whether the kernel continues only after a system call.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// For a producer: the number of free entries.
    pub(super) fn room(&mut self) -> u32 {
        self.other = self.word(self.offsets.consumer).load(Ordering::Acquire);
        self.len.saturating_sub(self.own.wrapping_sub(self.other))
    }

    /// For a producer: the number of entries that the kernel has not read.
    pub(super) fn untaken(&mut self) -> u32 {
        self.len - self.room()
    }

    /// For a producer: writes an entry, for which there is room. The kernel sees it once it is
    /// [published](Ring::publish).
    pub(super) fn write(&mut self, entry: T) {
        // SAFETY: within the mapping; the kernel reads it only after it is published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    pub(super) fn publish(&self) {
        self.word(self.offsets.producer)
            .store(self.own, Ordering::Release);
    }

    /// For a consumer: whether there is an entry.
    pub(super) fn has_more(&self) -> bool {
        self.other != self.own
            || self.word(self.offsets.producer).load(Ordering::Acquire) != self.own
    }

    /// For a consumer: the next entry. The kernel reuses it once all entries read are [released](Ring::release).
    pub(super) fn take(&mut self) -> Option<T> {
        if self.other == self.own {
            self.other = self.word(self.offsets.producer).load(Ordering::Acquire);
        }
        if self.other == self.own {
            return None;
        }
        // SAFETY: within the mapping, and written by the kernel before it published it.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    pub(super) fn release(&self) {
        self.word(self.offsets.consumer)
            .store(self.own, Ordering::Release);
    }
}
