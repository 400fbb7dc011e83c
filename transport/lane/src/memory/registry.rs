//! Names posted memory: turns the core's spans into addresses, and checks each.
//!
//! The core is safe code and may err. An address leaves this module only if the region is posted in that very
//! generation and the span lies inside it. A closed entry keeps its generation, so that a span of an earlier one finds
//! nothing.
//!
//! Other threads access an entry's memory only by a [delegated access](crate::memory::delegated). The registry ends it before it
//! hands out an address to write the same bytes, and before it closes the entry.
//!
//! Exported memory is accessed only within a turn, which a revocation waits for
//! ([`ExportWindow`](crate::memory::exported::ExportWindow)), and only in the way of `shared`.

use crate::error::LaneError;
use crate::memory::cleanup::{Move, Source};
use crate::memory::delegated::{DelegatedAccess, Recall};
use crate::memory::shared::Bounds;
use crate::memory::{Region, delegated, exported, fault, shared};
use crate::seal::digest::Digest;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use zerolane_core::{AtomicRequest, RegionId, Span, limits};
use zerolane_wire::checksum::Sum;
use zerolane_wire::{DIGEST_LEN, HEADER_LEN};

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: *mut u8,
    len: u64,
    generation: u32,
    open: bool,
    access: EntryFlags,
    /// Bytes at its start that are no longer written.
    settled: u64,
}

/// How an entry's memory may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryFlags {
    /// It is received into.
    pub(crate) writable: bool,
    /// It is a mapped file, whose pages may be gone.
    pub(crate) file: bool,
    /// The driver keeps it as long as the lane holds it, so it may be lent to the kernel.
    pub(crate) kept: bool,
    /// It is exported: others read and write it too.
    pub(crate) shared: bool,
}

/// Gathered memory up to this length is copied into one piece when it is posted. Numbered operations need each
/// datagram's payload in one place, and for such short memory iovecs cost as much as the copy.
const COPIED: u64 = 16 << 10;
const _: () = assert!(COPIED >= limits::MAX_SMALL as u64);

/// Bytes copied at a time to read memory that others may access: they stay in the first-level cache.
const VISITED: usize = 16 << 10;

/// A piece of memory that is posted as one with others.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: *const u8,
    /// Offset of its end in the whole.
    end: u64,
}

/// The posted memory of one connection.
#[derive(Debug, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The pieces of gathered entries, in order.
    gathered: HashMap<u32, Vec<Piece>>,
    /// Copies of short gathered memory, by entry.
    copies: HashMap<u32, Vec<u8>>,
    /// Memory of the registry itself, which lives as long as its entries.
    own: Vec<Region>,
    /// Accesses by other threads.
    delegations: RefCell<Vec<Delegation>>,
    /// Number of write accesses handed out.
    writings: Cell<u64>,
}

/// Another thread's access to posted memory.
#[derive(Debug)]
struct Delegation {
    span: Span,
    /// Its number, if it writes.
    writes: Option<Writing>,
    recall: Recall,
}

/// Another thread's write access: see [`Registry::take_written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writing(u64);

impl Delegation {
    /// Whether it writes bytes of `span`.
    fn writes_in(&self, span: Span) -> bool {
        let of = self.span;
        self.writes.is_some()
            && of.region == span.region
            && of.offset < span.end()
            && span.offset < of.end()
    }
}

// SAFETY: the pointers name memory posted to the connection that owns this registry. They move with it from thread to
// thread, and are only dereferenced while that connection is driven.
unsafe impl Send for Registry {}

impl Registry {
    /// Opens an entry for `len` bytes at `start`, to be read, and to be written if `access` says so.
    ///
    /// # Safety
    /// Until [`Registry::close`], the bytes stay mapped, nothing else writes them, and if they are writable nothing
    /// else reads them. Shared bytes stay mapped for every turn during which the entry is open, and are accessed only
    /// in the way of `shared`.
    pub(crate) unsafe fn open(&mut self, start: *mut u8, len: usize, access: EntryFlags) -> Span {
        let index = self.free.pop().unwrap_or_else(|| {
            let closed = Entry {
                start: std::ptr::null_mut(),
                len: 0,
                generation: 0,
                open: false,
                access,
                settled: 0,
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
            settled: 0,
        };
        Span {
            region: RegionId { index, generation },
            offset: 0,
            len: len as u64,
        }
    }

    /// Opens an entry to read `pieces` as if they were one.
    ///
    /// # Safety
    /// As [`Registry::open`], for each piece; the pieces are not shared.
    pub(crate) unsafe fn open_pieces(
        &mut self,
        pieces: &[(*mut u8, usize)],
        access: EntryFlags,
    ) -> Span {
        let mut end = 0;
        let placed: Vec<Piece> = pieces
            .iter()
            .filter(|(_, len)| *len > 0)
            .map(|&(start, len)| {
                end += len as u64;
                Piece { start, end }
            })
            .collect();
        // A null address: accesses go through the pieces.
        let gathered = EntryFlags {
            writable: false,
            kept: false,
            ..access
        };
        // SAFETY: as promised, for each piece.
        let span = unsafe { self.open(std::ptr::null_mut(), end as usize, gathered) };
        self.gathered.insert(span.region.index, placed);
        if end <= COPIED {
            self.copy_pieces(span);
        }
        span
    }

    /// Copies a gathered entry into one piece. If a page of a mapped file is gone, the entry stays gathered, and the
    /// send reports the fault.
    fn copy_pieces(&mut self, span: Span) {
        let mut copy = vec![0; span.len as usize];
        if !self.read(span, &mut copy) {
            return;
        }
        let index = span.region.index;
        let entry = &mut self.entries[index as usize];
        (entry.start, entry.access.file) = (copy.as_mut_ptr(), false);
        self.gathered.remove(&index);
        self.copies.insert(index, copy);
    }

    /// Opens an entry for `len` bytes of new memory, zeroed, that lives as long as the registry.
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
        // SAFETY: the registry keeps the region and is the only one to access it, on behalf of the driver's lane alone.
        let span = unsafe { self.open(start, len, access) };
        self.own.push(region);
        Ok(span)
    }

    /// Closes the entry: its name becomes invalid.
    pub(crate) fn close(&mut self, region: RegionId) {
        self.call_back(|it| it.span.region == region);
        if let Some(entry) = self.entries.get_mut(region.index as usize)
            && entry.open
            && entry.generation == region.generation
        {
            entry.open = false;
            self.free.push(region.index);
            if entry.start.is_null() {
                self.gathered.remove(&region.index);
            }
            if !self.copies.is_empty() {
                self.copies.remove(&region.index);
            }
        }
    }

    /// The entry, if `span` names bytes of it.
    fn entry(&self, span: Span) -> Option<&Entry> {
        let entry = self.entries.get(span.region.index as usize)?;
        let end = span.offset.checked_add(span.len)?;
        let inside = entry.open && entry.generation == span.region.generation && end <= entry.len;
        inside.then_some(entry)
    }

    fn address(&self, span: Span) -> Option<(*mut u8, EntryFlags)> {
        let entry = self.entry(span).filter(|it| !it.start.is_null())?;
        // SAFETY: offset <= len of an open entry.
        let start = unsafe { entry.start.add(span.offset as usize) };
        Some((start, entry.access))
    }

    /// The address to read `span`, if it lies in one piece.
    pub(crate) fn source(&self, span: Span) -> Option<*const u8> {
        match self.address(span) {
            Some((start, _)) => Some(start.cast_const()),
            None => {
                let mut pieces = self.pieces(span)?;
                let whole = pieces.next().filter(|it| it.1 as u64 == span.len);
                whole.map(|(start, _)| start)
            }
        }
    }

    /// The addresses to read `span`, piece by piece.
    pub(crate) fn pieces(&self, span: Span) -> Option<impl Iterator<Item = (*const u8, usize)>> {
        let entry = self.entry(span)?;
        let alone = match entry.start.is_null() {
            // SAFETY: offset <= len of an open entry.
            false => Some(unsafe { entry.start.add(span.offset as usize) }.cast_const()),
            true => None,
        };
        let pieces = match alone {
            Some(_) => &[][..],
            None => self.gathered.get(&span.region.index)?,
        };
        let first = pieces.partition_point(|it| it.end <= span.offset);
        let mut at = span.offset;
        let gathered = pieces[first..]
            .iter()
            .enumerate()
            .map_while(move |(n, it)| {
                let start = match (first + n).checked_sub(1) {
                    Some(before) => pieces[before].end,
                    None => 0,
                };
                let len = it
                    .end
                    .min(span.end())
                    .checked_sub(at)
                    .filter(|len| *len > 0)?;
                // SAFETY: `at` lies in the piece, which spans `start` to `end` of the whole.
                let from = unsafe { it.start.add((at - start) as usize) };
                at += len;
                Some((from, len as usize))
            });
        let alone = alone.map(|start| (start, span.len as usize));
        Some(alone.into_iter().chain(gathered))
    }

    /// Permits another thread to read `span`. The access ends by itself, or the registry ends it.
    pub(crate) fn delegate_read(&self, span: Span) -> DelegatedAccess {
        self.delegate(span, None)
    }

    /// Permits another thread to write `span`, at the address from [`Registry::target`]. The owner must
    /// [take](Registry::take_written) the result. Until then nothing else is put into `span`.
    pub(crate) fn delegate_write(&self, span: Span) -> (DelegatedAccess, Writing) {
        let writing = Writing(self.writings.get());
        self.writings.set(writing.0 + 1);
        (self.delegate(span, Some(writing)), writing)
    }

    fn delegate(&self, span: Span, writes: Option<Writing>) -> DelegatedAccess {
        let (access, recall) = delegated::delegate();
        let mut delegations = self.delegations.borrow_mut();
        delegations.retain(|it| it.writes.is_some() || !it.recall.is_over());
        delegations.push(Delegation {
            span,
            writes,
            recall,
        });
        access
    }

    /// Gives up a write access that will not be [taken](Registry::take_written). On return the thread no longer
    /// accesses the memory.
    pub(crate) fn give_up(&self, writing: Writing) {
        self.call_back(|it| it.writes == Some(writing));
    }

    /// Whether another thread may write bytes of `span`, or wrote bytes that were not taken.
    fn has_writer(&self, span: Span) -> bool {
        let delegations = self.delegations.borrow();
        delegations.iter().any(|it| it.writes_in(span))
    }

    /// Whether no other thread accesses posted memory or will.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.delegations
            .borrow()
            .iter()
            .all(|it| it.recall.is_over())
    }

    /// Takes the bytes that another thread reports as written. False if its access was called off, even after the
    /// write, because other bytes are in their place then.
    pub(crate) fn take_written(&self, writing: Writing) -> bool {
        let mut delegations = self.delegations.borrow_mut();
        let at = delegations.iter().position(|it| it.writes == Some(writing));
        at.map(|at| delegations.swap_remove(at)).is_some()
    }

    /// Ends all accesses of other threads to posted memory before it returns.
    pub(crate) fn call_back_all(&self) {
        self.call_back(|_| true);
    }

    fn call_back(&self, which: impl Fn(&Delegation) -> bool) {
        let mut delegations = self.delegations.borrow_mut();
        if delegations.is_empty() {
            return;
        }
        for it in delegations.extract_if(.., |it| which(it)) {
            it.recall.call_off();
        }
    }

    /// The address to write `span`, except settled bytes. Other threads no longer write there.
    pub(crate) fn target(&self, span: Span) -> Option<*mut u8> {
        let entry = self.entry(span)?;
        if !entry.access.writable || entry.settled > span.offset {
            return None;
        }
        self.call_back(|it| it.writes_in(span));
        // SAFETY: offset <= len of an open entry. The entry is not gathered, because gathered ones are not writable.
        Some(unsafe { entry.start.add(span.offset as usize) })
    }

    /// The address to write `span` before it is known that its bytes come next: as [`Registry::target`], but not for
    /// memory that another thread writes, because a wrong prediction would end its access.
    pub(crate) fn prediction(&self, span: Span) -> Option<*mut u8> {
        match self.has_writer(span) {
            true => None,
            false => self.target(span),
        }
    }

    /// Marks the first `len` bytes of `region` as no longer written: others may read them.
    pub(crate) fn settle(&mut self, region: RegionId, len: u64) {
        if let Some(entry) = self.entries.get_mut(region.index as usize)
            && entry.generation == region.generation
        {
            entry.settled = entry.settled.max(len);
        }
    }

    /// Bytes at the start of `span` that are no longer written.
    pub(crate) fn settled(&self, span: Span) -> u64 {
        let entry = self.entries.get(span.region.index as usize);
        let settled = entry.map_or(0, |entry| entry.settled);
        settled.saturating_sub(span.offset).min(span.len)
    }

    /// Whether the region is a mapped file, which only the kernel or `fault` may access.
    pub(crate) fn is_file(&self, region: RegionId) -> bool {
        let entry = self.entries.get(region.index as usize);
        entry.is_some_and(|entry| entry.access.file)
    }

    /// Whether only the lane and the kernel access the region: it is neither exported nor a mapped file.
    pub(crate) fn is_exclusive(&self, region: RegionId) -> bool {
        let entry = self.entries.get(region.index as usize);
        entry.is_some_and(|entry| !entry.access.shared && !entry.access.file)
    }

    /// Whether the kernel may continue to read the region after its Transfer is over. Not for a mapped file, which
    /// others may change without the lane's knowledge.
    pub(crate) fn is_lendable(&self, region: RegionId) -> bool {
        let entry = self.entries.get(region.index as usize);
        entry.is_some_and(|entry| entry.access.kept && !entry.access.file)
    }

    /// The bounds of the shared memory, if the region is exported.
    pub(crate) fn bounds(&self, region: RegionId) -> Option<Bounds> {
        let entry = self.entries.get(region.index as usize)?;
        let live = entry.open && entry.generation == region.generation && entry.access.shared;
        live.then_some(Bounds {
            start: entry.start,
            len: entry.len as usize,
        })
    }

    /// Writes `bytes` at `span` of memory that was posted to be received into.
    ///
    /// # Errors
    /// The memory is gone.
    pub(crate) fn fill(&self, span: Span, bytes: &[u8]) -> Result<(), LaneError> {
        let fault = LaneError::Fault(span.region);
        let to = self.target(span).filter(|_| span.len == bytes.len() as u64);
        let only = Move {
            from: Source::own(bytes),
            to: to.ok_or(fault)?,
            len: bytes.len(),
            region: span.region,
            file: self.is_file(span.region),
            shared: self.bounds(span.region),
        };
        // SAFETY: `target` checked that the bytes belong to an open entry. The source is other memory, and shared
        // memory is named as such.
        unsafe { only.perform() }.map_err(|_| LaneError::Fault(span.region))
    }

    /// Writes `bytes` at `span` of exported memory. False if that is not possible.
    pub(crate) fn store(&self, span: Span, bytes: &[u8]) -> bool {
        let (Some(bounds), Some(_)) = (self.bounds(span.region), self.target(span)) else {
            return false;
        };
        let file = self.is_file(span.region);
        // SAFETY: an open entry, which stays mapped for this turn; `target` checked the span.
        span.len == bytes.len() as u64
            && unsafe { exported::store(bounds, span.offset as usize, bytes, file) }
    }

    /// Performs `order`, and returns the old word. `None` if it cannot be accessed.
    pub(crate) fn atomic(&self, order: AtomicRequest) -> Option<u64> {
        let AtomicRequest {
            word: span,
            skip,
            atomic,
        } = order;
        let bounds = self.bounds(span.region)?;
        self.target(span).filter(|_| span.len == 8)?;
        if !span.offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the entry is open, stays mapped for this turn, starts at a word, and is only accessed atomically;
        // `target` checked the span.
        let word = unsafe { shared::word(bounds, span.offset as usize) };
        if self.is_file(span.region) && fault::touch(word).is_err() {
            return None;
        }
        Some(shared::fetch_op(word, skip, atomic))
    }

    /// The bytes of `span`, if only the lane and the kernel access them.
    pub(crate) fn bytes(&self, span: Span) -> Option<&[u8]> {
        let start = self
            .source(span)
            .filter(|_| self.is_exclusive(span.region))?;
        let len = usize::try_from(span.len).ok()?;
        // SAFETY: an open entry's bytes are mapped. Nothing is received into them while this registry is borrowed,
        // because the one thread that drives the lane does both.
        Some(unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// The start of `span` if it is exported memory that may be read in whole words. Not a mapped file, whose pages may
    /// be gone.
    pub(crate) fn shared_source(&self, span: Span) -> Option<*const u8> {
        self.bounds(span.region)?;
        let words = [span.offset, span.len].map(|it| it.is_multiple_of(8));
        let whole = words == [true, true] && !self.is_file(span.region);
        self.source(span).filter(|_| whole)
    }

    /// The one's-complement sum of the bytes of `span`.
    ///
    /// # Errors
    /// The bytes are gone.
    pub(crate) fn sum(&self, span: Span) -> Result<Sum, LaneError> {
        let mut sum = Sum::EMPTY;
        // Shared memory may change meanwhile. The sum is wrong then, and the receiver drops the bytes and requests them
        // again.
        match self.visit(span, |bytes| sum = sum.join(Sum::of(bytes))) {
            true => Ok(sum),
            false => Err(LaneError::Fault(span.region)),
        }
    }

    /// The digest of a train of `header` and the bytes of `span`. `None` if the bytes are gone.
    pub(crate) fn digest(&self, header: &[u8; HEADER_LEN], span: Span) -> Option<[u8; DIGEST_LEN]> {
        if let Some(bytes) = self.bytes(span) {
            return Some(Digest::of(header, bytes));
        }
        let mut digest = Digest::new(header);
        self.visit(span, |bytes| digest.update(bytes))
            .then(|| digest.finish())
    }

    /// Passes the bytes of `span` to `see`, piece by piece; bytes that others may access are copied first. False if
    /// they are gone.
    pub(crate) fn visit(&self, span: Span, mut see: impl FnMut(&[u8])) -> bool {
        if let Some(pieces) = self.pieces(span).filter(|_| self.is_exclusive(span.region)) {
            for (start, len) in pieces {
                // SAFETY: the registry has the span open for reading, and nothing writes it meanwhile.
                see(unsafe { std::slice::from_raw_parts(start, len) });
            }
            return true;
        }
        let mut copy = [0; VISITED];
        let mut at = 0;
        while at < span.len {
            let len = (span.len - at).min(VISITED as u64);
            let bytes = &mut copy[..len as usize];
            if !self.read(span.part(at, len), bytes) {
                return false;
            }
            see(bytes);
            at += len;
        }
        true
    }

    /// Reads the first bytes of `span`, as many as fit in `buffer`. False if they are gone.
    pub(crate) fn read(&self, span: Span, buffer: &mut [u8]) -> bool {
        let len = buffer.len() as u64;
        if len > span.len {
            return false;
        }
        let Some(start) = self.source(span) else {
            return self.read_pieces(span.part(0, len), buffer);
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
        // SAFETY: as above, and not a mapped file.
        buffer.copy_from_slice(unsafe { std::slice::from_raw_parts(start, buffer.len()) });
        true
    }

    fn read_pieces(&self, span: Span, mut buffer: &mut [u8]) -> bool {
        let file = self.is_file(span.region);
        let Some(pieces) = self.pieces(span) else {
            return false;
        };
        for (start, len) in pieces {
            let (part, rest) = buffer.split_at_mut(len);
            let there = match file {
                // SAFETY: an open entry's bytes are mapped, and nothing writes them now.
                true => unsafe { fault::read(start, part, None) }.is_ok(),
                false => {
                    // SAFETY: as above, and not a mapped file.
                    part.copy_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
                    true
                }
            };
            if !there {
                return false;
            }
            buffer = rest;
        }
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

    #[test]
    fn shared_source__whole_words_of_exported_memory_alone() {
        let mut bytes = [0u64; 4];
        let start = bytes.as_mut_ptr().cast::<u8>();
        let shared = EntryFlags {
            shared: true,
            ..memory(true)
        };
        let file = EntryFlags {
            file: true,
            ..shared
        };
        let mut registry = Registry::default();
        // SAFETY: bytes outlives the entries and is not touched otherwise.
        let mut open = |access| unsafe { registry.open(start, 32, access) };
        let (exported, file, exclusive) = (open(shared), open(file), open(memory(true)));
        let offset_of = |span| {
            let source = registry.shared_source(span)?;
            Some(source as usize - start as usize)
        };
        assert_eq!(offset_of(exported), Some(0));
        assert_eq!(offset_of(exported.part(8, 16)), Some(8));
        for (at, len) in [(4, 8), (8, 12), (1, 31)] {
            assert_eq!(offset_of(exported.part(at, len)), None, "{len} at {at}");
        }
        assert_eq!((offset_of(file), offset_of(exclusive)), (None, None));
        let beyond = Span {
            offset: 8,
            ..exported
        };
        assert_eq!(offset_of(beyond), None);
        registry.close(exported.region);
        assert!(registry.shared_source(exported).is_none(), "closed");
    }

    /// The bytes of `span`, read piece by piece.
    fn collect(registry: &Registry, span: Span) -> Option<Vec<u8>> {
        let mut bytes = vec![];
        for (start, len) in registry.pieces(span)? {
            // SAFETY: the test's memory outlives the entry.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
        }
        Some(bytes)
    }

    #[test]
    fn pieces__of_any_span_and_none_beyond() {
        let whole: Vec<u8> = (0..20_000u32).map(|n| (n * 7 / 3) as u8).collect();
        let lens = [1, 0, 1999, 1, 500, 0, 17_499, 0];
        let mut parts = vec![];
        for len in lens {
            let at = parts.iter().map(Vec::len).sum();
            parts.push(whole[at..at + len].to_vec());
        }
        let mut registry = Registry::default();
        let raw: Vec<_> = parts
            .iter_mut()
            .map(|it| (it.as_mut_ptr(), it.len()))
            .collect();
        // SAFETY: the parts outlive the entry and are not touched otherwise.
        let span = unsafe { registry.open_pieces(&raw, memory(false)) };
        assert_eq!(span.len, 20_000);
        let edges = [
            0, 1, 2, 999, 2000, 2001, 2002, 2500, 2501, 2502, 19_999, 20_000,
        ];
        for start in edges {
            for end in edges.into_iter().filter(|end| *end >= start) {
                let part = span.part(start, end - start);
                let expected = &whole[start as usize..end as usize];
                assert_eq!(collect(&registry, part).expect("open"), expected);
                let mut read = vec![0; expected.len()];
                assert!(registry.read(part, &mut read) && read == expected);
                assert_eq!(registry.sum(part).ok(), Some(Sum::of(expected)));
                let alone = registry.source(part).is_some();
                assert_eq!(alone, collect_count(&registry, part) == 1, "{start}..{end}");
                assert!(registry.target(part).is_none(), "read only");
            }
        }
        let beyond = Span { offset: 1, ..span };
        assert!(registry.pieces(beyond).is_none() && registry.source(beyond).is_none());
        assert!(!registry.is_lendable(span.region));
        registry.close(span.region);
        assert!(registry.pieces(span).is_none() && registry.gathered.is_empty());
    }

    fn collect_count(registry: &Registry, span: Span) -> usize {
        registry.pieces(span).map_or(0, Iterator::count)
    }

    #[test]
    fn target__is_not_what_is_settled() {
        let mut bytes = [0u8; 16];
        let mut registry = Registry::default();
        // SAFETY: bytes outlives the entry and is not touched otherwise.
        let span = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(true)) };
        registry.settle(span.region, 6);
        registry.settle(span.region, 4);
        assert!(registry.target(span.part(5, 3)).is_none(), "in part");
        assert!(registry.target(span.part(6, 10)).is_some());
        assert!(registry.source(span).is_some(), "it may be read");
        let settled = [(0, 16, 6), (0, 3, 3), (5, 3, 1), (6, 2, 0), (9, 1, 0)];
        for (start, len, expected) in settled {
            assert_eq!(registry.settled(span.part(start, len)), expected);
        }
        registry.close(span.region);
        // SAFETY: as above.
        let next = unsafe { registry.open(bytes.as_mut_ptr(), 16, memory(true)) };
        registry.settle(span.region, 9);
        assert_eq!(registry.settled(next), 0, "an earlier life's");
    }

    /// A registry with an entry of 64 bytes, and its span.
    fn sixty_four(bytes: &mut [u8; 64]) -> (Registry, Span) {
        let mut registry = Registry::default();
        // SAFETY: the caller's bytes outlive the entry and are not touched otherwise.
        let span = unsafe { registry.open(bytes.as_mut_ptr(), 64, memory(true)) };
        (registry, span)
    }

    #[test]
    fn target__calls_off_what_other_threads_were_to_write_there() {
        let mut bytes = [0; 64];
        let (registry, span) = sixty_four(&mut bytes);
        let (access, writing) = registry.delegate_write(span.part(16, 16));
        let apart = [span.part(0, 16), span.part(32, 32)];
        for part in apart {
            assert!(!registry.has_writer(part) && registry.target(part).is_some());
        }
        assert!(registry.has_writer(span.part(31, 1)));
        assert!(registry.target(span.part(8, 9)).is_some());
        assert!(!access.begin(), "it was called off");
        assert!(!registry.has_writer(span) && !registry.take_written(writing));
        // Two threads may read the same bytes.
        let access = registry.delegate_read(span);
        assert!(!registry.has_writer(span) && registry.target(span).is_some());
        assert!(access.begin());
    }

    /// The owner predicts arrivals only into memory that no other thread writes. Otherwise it would overwrite bytes
    /// that another thread has written and not reported.
    #[test]
    fn has_writer__what_was_written_until_it_is_taken() {
        let mut bytes = [0; 64];
        let (registry, span) = sixty_four(&mut bytes);
        let written = || {
            let (access, writing) = registry.delegate_write(span);
            assert!(access.begin());
            writing
        };
        let writing = written();
        assert!(registry.has_writer(span), "it is over, and not taken");
        assert!(registry.take_written(writing) && !registry.has_writer(span));
        assert!(!registry.take_written(writing), "once");
        let writing = written();
        assert!(registry.target(span).is_some(), "for something else");
        assert!(!registry.take_written(writing) && !registry.has_writer(span));
    }

    #[test]
    fn target__waits_for_what_another_thread_is_writing_there() {
        let mut bytes = [0; 64];
        let (registry, span) = sixty_four(&mut bytes);
        let (access, _) = registry.delegate_write(span);
        assert!(access.begin());
        let written = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let written = &written;
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                written.store(true, std::sync::atomic::Ordering::Relaxed);
                drop(access);
            });
            assert!(registry.target(span.part(63, 1)).is_some());
            assert!(written.load(std::sync::atomic::Ordering::Relaxed));
        });
    }

    #[test]
    fn close__calls_off_what_other_threads_were_to_do() {
        let mut bytes = [0; 64];
        let (mut registry, span) = sixty_four(&mut bytes);
        let mut other = [0; 64];
        // SAFETY: as above.
        let other = unsafe { registry.open(other.as_mut_ptr(), 64, memory(true)) };
        let accesses = [
            registry.delegate_write(span).0,
            registry.delegate_read(span),
        ];
        let (others, _) = registry.delegate_write(other);
        registry.close(span.region);
        assert!(accesses.iter().all(|it| !it.begin()));
        assert!(others.begin(), "another entry's");
        drop(others);
        let (last, _) = registry.delegate_write(other);
        registry.call_back_all();
        assert!(!last.begin() && registry.delegations.borrow().is_empty());
    }

    #[test]
    fn open_pieces__short_ones_become_one() {
        let (mut head, mut tail) = ([1u8; 100], [2u8; 92]);
        let raw = [(head.as_mut_ptr(), 100), (tail.as_mut_ptr(), 92)];
        let mut registry = Registry::default();
        for _ in 0..2 {
            // SAFETY: the two outlive the entry and are not touched otherwise.
            let span = unsafe { registry.open_pieces(&raw, memory(false)) };
            let bytes = registry.bytes(span).expect("one piece");
            assert_eq!((&bytes[..100], &bytes[100..]), (&head[..], &tail[..]));
            registry.close(span.region);
            assert!(registry.copies.is_empty() && registry.bytes(span).is_none());
        }
        // SAFETY: nothing is named.
        let nothing = unsafe { registry.open_pieces(&[], memory(false)) };
        assert_eq!(registry.bytes(nothing), Some(&[][..]));
    }
}
