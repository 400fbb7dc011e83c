//! Posted memory by name: turns the core's spans into addresses, checking each.
//!
//! The core is safe code and may err; an address leaves here only if the region is posted in that
//! very life and the span lies inside it. A closed entry keeps its generation, so that a span of an
//! earlier life finds nothing.

use crate::fault;
use zerolane_core::{RegionId, Span};

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: *mut u8,
    len: u64,
    generation: u32,
    open: bool,
    access: Access,
}

/// How an entry's memory may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Received into.
    pub(crate) writable: bool,
    /// A mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// Kept by the driver for as long as the lane holds it, so that it may be lent to the kernel.
    pub(crate) kept: bool,
}

/// The posted memory of one connection.
#[derive(Debug, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

// SAFETY: the pointers name memory posted to the connection that owns this registry; they move with
// it from thread to thread and are only followed while it is driven.
unsafe impl Send for Registry {}

impl Registry {
    /// Opens an entry for `len` bytes at `start`, to be read, and written if `access` says so.
    ///
    /// # Safety
    /// Until [`Registry::close`], the bytes stay mapped, nobody writes them, and if they are
    /// writable nobody else reads them.
    pub(crate) unsafe fn open(&mut self, start: *mut u8, len: usize, access: Access) -> Span {
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

    fn address(&self, span: Span) -> Option<(*mut u8, Access)> {
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

    /// Whether the kernel may go on reading the region after its Transfer is over. Not a mapped file:
    /// others may change that behind the lane's back.
    pub(crate) fn is_lendable(&self, region: RegionId) -> bool {
        let entry = self.entries.get(region.index as usize);
        entry.is_some_and(|entry| entry.access.kept && !entry.access.file)
    }

    /// Reads the first bytes of `span`, as many as `buffer` takes. False if they are not there.
    pub(crate) fn read(&self, span: Span, buffer: &mut [u8]) -> bool {
        let len = buffer.len() as u64;
        let Some(start) = self.source(span).filter(|_| len <= span.len) else {
            return false;
        };
        if self.is_file(span.region) {
            // SAFETY: an open entry's bytes are mapped, and nobody writes them now.
            return unsafe { fault::read(start, buffer) }.is_ok();
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

    const fn memory(writable: bool) -> Access {
        Access {
            writable,
            file: false,
            kept: false,
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
