//! Posted memory by name: turns the core's spans into addresses, checking each.
//!
//! The core is safe code and may err; an address leaves here only if the region is posted in that
//! very life and the span lies inside it. A closed entry keeps its generation, so that a span of an
//! earlier life finds nothing.
//!
//! An entry of exported memory is touched only between [`Window::enter`](crate::exported::Window) and
//! its leave, which is the length of a turn, and only as `shared` does it.

use crate::cleanup::{self, Move, Source};
use crate::memory::Postable;
use crate::shared::{self, Bounds};
use crate::{LaneError, Region, exported, fault};
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use zerolane_core::{Atomic, RegionId, Span};
use zerolane_wire::FetchOpKind;
use zerolane_wire::checksum::Sum;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: *mut u8,
    len: u64,
    generation: u32,
    open: bool,
    access: EntryFlags,
}

/// How an entry's memory may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryFlags {
    /// Received into.
    pub(crate) writable: bool,
    /// A mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// Kept by the driver for as long as the lane holds it, so that it may be lent to the kernel.
    pub(crate) kept: bool,
    /// Exported: others read and write it too.
    pub(crate) shared: bool,
}

/// The posted memory of one connection.
#[derive(Debug, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Memory of the connection's own, which lives as long as its entries.
    own: Vec<Region>,
}

// SAFETY: the pointers name memory posted to the connection that owns this registry; they move with
// it from thread to thread and are only followed while it is driven.
unsafe impl Send for Registry {}

impl Registry {
    /// Opens an entry for `len` bytes at `start`, to be read, and written if `access` says so.
    ///
    /// # Safety
    /// Until [`Registry::close`], the bytes stay mapped, nothing writes them, and if they are
    /// writable nothing else reads them. Shared ones stay mapped while their window is entered, and
    /// nothing touches them but as `shared` does.
    pub(crate) unsafe fn open(&mut self, start: *mut u8, len: usize, access: EntryFlags) -> Span {
        let index = self.free.pop().unwrap_or_else(|| {
            let closed = Entry {
                start: std::ptr::null_mut(),
                len: 0,
                generation: 0,
                open: false,
                access,
            };
            self.entries.push(closed);
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        let generation = entry.generation.wrapping_add(1);
        *entry = Entry {
            start,
            len: len as u64,
            generation,
            open: true,
            access,
        };
        Span {
            region: RegionId { index, generation },
            offset: 0,
            len: len as u64,
        }
    }

    /// Opens an entry for `len` bytes of new memory, zeroed, that lasts as long as the registry.
    ///
    /// # Errors
    /// The system has no memory.
    pub(crate) fn allocate(&mut self, len: usize) -> io::Result<Span> {
        let region = Region::anonymous(len)?;
        let (start, len) = region.raw();
        let access = EntryFlags {
            writable: true,
            file: false,
            kept: false,
            shared: false,
        };
        // SAFETY: the region is kept here and never touched but through this registry, whose memory
        // the driver's lane alone works with.
        let span = unsafe { self.open(start, len, access) };
        self.own.push(region);
        Ok(span)
    }

    /// Closes the entry: its name means nothing any more.
    pub(crate) fn close(&mut self, region: RegionId) {
        if let Some(entry) = self.entries.get_mut(region.index as usize)
            && entry.open
            && entry.generation == region.generation
        {
            entry.open = false;
            self.free.push(region.index);
        }
    }

    fn address(&self, span: Span) -> Option<(*mut u8, EntryFlags)> {
        let entry = self.entries.get(span.region.index as usize)?;
        let end = span.offset.checked_add(span.len)?;
        if !entry.open || entry.generation != span.region.generation || end > entry.len {
            return None;
        }
        // SAFETY: offset <= len of an open entry.
        let start = unsafe { entry.start.add(span.offset as usize) };
        Some((start, entry.access))
    }

    /// Where the bytes of `span` may be read.
    pub(crate) fn source(&self, span: Span) -> Option<*const u8> {
        self.address(span).map(|(start, _)| start.cast_const())
    }

    /// Where the bytes of `span` may be written.
    pub(crate) fn target(&self, span: Span) -> Option<*mut u8> {
        self.address(span)
            .and_then(|(start, access)| access.writable.then_some(start))
    }

    /// Whether the region is a mapped file: only the kernel may touch it, or `fault`.
    pub(crate) fn is_file(&self, region: RegionId) -> bool {
        let entry = self.entries.get(region.index as usize);
        entry.is_some_and(|entry| entry.access.file)
    }

    /// Whether only the lane and the kernel touch the region: it is neither exported nor a mapped
    /// file.
    pub(crate) fn is_exclusive(&self, region: RegionId) -> bool {
        let entry = self.entries.get(region.index as usize);
        entry.is_some_and(|entry| !entry.access.shared && !entry.access.file)
    }

    /// Whether the kernel may go on reading the region after its Transfer is over. Not a mapped file:
    /// others may change that behind the lane's back.
    pub(crate) fn is_lendable(&self, region: RegionId) -> bool {
        let entry = self.entries.get(region.index as usize);
        entry.is_some_and(|entry| entry.access.kept && !entry.access.file)
    }

    /// Where shared memory starts and ends, if the region is exported.
    pub(crate) fn bounds(&self, region: RegionId) -> Option<Bounds> {
        let entry = self.entries.get(region.index as usize)?;
        let live = entry.open && entry.generation == region.generation && entry.access.shared;
        live.then_some(Bounds {
            start: entry.start,
            len: entry.len as usize,
        })
    }

    /// Writes `bytes` at `span`, which was posted to be received into.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn fill(&self, span: Span, bytes: &[u8]) -> Result<(), LaneError> {
        let fault = LaneError::Fault(span.region);
        let to = self.target(span).filter(|_| span.len == bytes.len() as u64);
        let mut moves = vec![Move {
            from: Source::own(bytes),
            to: to.ok_or(fault)?,
            len: bytes.len(),
            region: span.region,
            file: self.is_file(span.region),
            shared: self.bounds(span.region),
        }];
        // SAFETY: an open entry's bytes, which `target` checked; ours are another's, and shared memory is
        // named as such.
        unsafe { cleanup::perform(&mut moves) }.map_err(LaneError::Fault)
    }

    /// Writes `bytes` at `span` of exported memory. False if that cannot be.
    pub(crate) fn store(&self, span: Span, bytes: &[u8]) -> bool {
        let (Some(bounds), Some(_)) = (self.bounds(span.region), self.target(span)) else {
            return false;
        };
        let file = self.is_file(span.region);
        // SAFETY: an open entry whose window is entered for this turn; `target` checked the span.
        span.len == bytes.len() as u64
            && unsafe { exported::store(bounds, span.offset as usize, bytes, file) }
    }

    /// Does `atomic` on the aligned word at `span`; returns the word before. `None` if it cannot be
    /// accessed.
    pub(crate) fn atomic(&self, span: Span, atomic: Atomic) -> Option<u64> {
        let bounds = self.bounds(span.region)?;
        self.target(span).filter(|_| span.len == 8)?;
        if !span.offset.is_multiple_of(8) {
            return None;
        }
        if self.is_file(span.region) && !self.read(span, &mut [0; 8]) {
            return None;
        }
        // SAFETY: an open entry whose window is entered for this turn, starts at a word and is
        // touched only so; `target` checked the span.
        let word = unsafe { shared::word(bounds, span.offset as usize) };
        let Atomic {
            operand, comparand, ..
        } = atomic;
        Some(match atomic.kind {
            FetchOpKind::Add => word.fetch_add(operand, SeqCst),
            FetchOpKind::Increment => word.fetch_add(1, SeqCst),
            FetchOpKind::Decrement => word.fetch_sub(1, SeqCst),
            FetchOpKind::Clear => word.swap(0, SeqCst),
            FetchOpKind::Swap => word.swap(operand, SeqCst),
            FetchOpKind::CompareAndSwap => {
                match word.compare_exchange(comparand, operand, SeqCst, SeqCst) {
                    Ok(before) | Err(before) => before,
                }
            }
        })
    }

    /// The bytes of `span`, if nothing but the lane and the kernel touches them.
    pub(crate) fn bytes(&self, span: Span) -> Option<&[u8]> {
        let start = self
            .source(span)
            .filter(|_| self.is_exclusive(span.region))?;
        let len = usize::try_from(span.len).ok()?;
        // SAFETY: an open entry's bytes are there, and as long as this registry is borrowed nothing is
        // received into them: both go through the one thread that drives the lane.
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// The one's-complement sum over the bytes of `span`.
    ///
    /// # Errors
    /// They are not there.
    pub(crate) fn sum(&self, span: Span) -> Result<Sum, LaneError> {
        let fault = LaneError::Fault(span.region);
        // Shared memory may change meanwhile: then the sum is wrong, the bytes are dropped and asked for
        // again.
        if self.is_file(span.region) || self.bounds(span.region).is_some() {
            let mut copy = vec![0; span.len as usize];
            return match self.read(span, &mut copy) {
                true => Ok(Sum::of(&copy)),
                false => Err(fault),
            };
        }
        let start = self.source(span).ok_or(fault)?;
        // SAFETY: the registry has the span open for reading, and nothing writes it meanwhile.
        Ok(Sum::of(unsafe {
            std::slice::from_raw_parts(start, span.len as usize)
        }))
    }

    /// Reads the first bytes of `span`, as many as `buffer` takes. False if they are not there.
    pub(crate) fn read(&self, span: Span, buffer: &mut [u8]) -> bool {
        let len = buffer.len() as u64;
        let Some(start) = self.source(span).filter(|_| len <= span.len) else {
            return false;
        };
        if self.is_file(span.region) {
            let shared = self.bounds(span.region);
            // SAFETY: an open entry's bytes are mapped, and nothing writes them now unless it is exported.
            return unsafe { fault::read(start, buffer, shared) }.is_ok();
        }
        if let Some(bounds) = self.bounds(span.region) {
            // SAFETY: as in `store`.
            unsafe { shared::load(bounds, span.offset as usize, buffer) };
            return true;
        }
        // SAFETY: as above, and there.
        buffer.copy_from_slice(unsafe { std::slice::from_raw_parts(start, buffer.len()) });
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const fn memory(writable: bool) -> EntryFlags {
        EntryFlags {
            writable,
            file: false,
            kept: false,
            shared: false,
        }
    }

    #[test]
    fn target__only_open_in_bounds_writable_and_of_this_life() {
        let mut bytes = [0u8; 16];
        let mut registry = Registry::default();
        // SAFETY: bytes outlives the entry and is not touched otherwise.
        let span = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(true)) };
        assert!(registry.target(span).is_some());
        assert!(
            registry.target(Span { offset: 1, ..span }).is_none(),
            "beyond the end"
        );
        assert!(
            registry
                .target(Span {
                    offset: u64::MAX,
                    ..span
                })
                .is_none(),
            "wraps"
        );
        registry.close(span.region);
        assert!(registry.target(span).is_none(), "closed");
        // SAFETY: as above.
        let next = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(false)) };
        assert_eq!(next.region.index, span.region.index);
        assert!(registry.source(span).is_none(), "an earlier life");
        assert!(
            registry.source(next).is_some() && registry.target(next).is_none(),
            "read only"
        );
    }
}
