//! Names posted memory: turns the core's spans into addresses, and checks each.
//!
//! The core is safe code and may err. An address leaves this module only if the region is posted in that very
//! generation and the span lies inside it. The entry that takes the slot of a closed one has another generation, so a
//! span of the closed one finds nothing.
//!
//! Other threads access an entry's memory only by a [delegated access](crate::memory::delegated). The registry ends it
//! before it hands out an address to write the same bytes, and before it closes the entry.
//!
//! Exported memory is accessed only within a turn, which a revocation waits for
//! ([`ExportWindow`](crate::memory::exported::ExportWindow)), and only in the way of `shared`.

use crate::error::LaneError;
use crate::memory::cleanup::{Move, Source};
use crate::memory::delegations::Delegations;
use crate::memory::shared::Bounds;
use crate::memory::{Region, exported, fault, shared};
use crate::seal::digest::Digest;
use slotmap::{DefaultKey, Key, KeyData, SlotMap};
use std::io;
use zerolane_core::{AtomicRequest, RegionId, Span, limits};
use zerolane_wire::checksum::Sum;
use zerolane_wire::{DIGEST_LEN, HEADER_LEN};

/// Memory that has a name.
#[derive(Debug)]
struct Entry {
    /// Null if it is gathered.
    start: *mut u8,
    len: u64,
    kind: EntryKind,
    /// Bytes at its start that are no longer written.
    settled: u64,
}

/// What an entry's memory is, which decides how it may be accessed.
#[derive(Debug)]
pub(crate) enum EntryKind {
    /// Memory of a request. The driver keeps it as long as the lane holds it, so it may be lent to the kernel.
    Posted {
        writable: bool,
        /// It is a mapped file, whose pages may be gone.
        file: bool,
    },
    /// Memory of a caller that waits for the end of its request.
    Borrowed { writable: bool },
    /// Memory that others read and write too.
    Exported { file: bool },
    /// Pieces that are read as one.
    Gathered { pieces: Vec<Piece>, file: bool },
    /// A copy of short pieces.
    Copied { _bytes: Vec<u8> },
    /// The registry's own.
    Own { _region: Region },
}

impl Entry {
    fn is_writable(&self) -> bool {
        match self.kind {
            EntryKind::Posted { writable, .. } | EntryKind::Borrowed { writable } => writable,
            EntryKind::Exported { .. } | EntryKind::Own { .. } => true,
            EntryKind::Gathered { .. } | EntryKind::Copied { .. } => false,
        }
    }

    fn is_file(&self) -> bool {
        match self.kind {
            EntryKind::Posted { file, .. }
            | EntryKind::Exported { file }
            | EntryKind::Gathered { file, .. } => file,
            EntryKind::Borrowed { .. } | EntryKind::Copied { .. } | EntryKind::Own { .. } => false,
        }
    }

    fn is_exported(&self) -> bool {
        matches!(self.kind, EntryKind::Exported { .. })
    }
}

/// Gathered memory up to this length is copied into one piece when it is posted. Numbered operations need each
/// datagram's payload in one place, and for such short memory iovecs cost as much as the copy.
const COPIED: u64 = 16 << 10;
const _: () = assert!(COPIED >= limits::MAX_SMALL as u64);

/// Bytes copied at a time to read memory that others may access: they stay in the first-level cache.
const VISITED: usize = 16 << 10;

/// A piece of memory that is posted as one with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    start: *const u8,
    len: u64,
    /// Offset of its first byte in the whole.
    offset: u64,
}

/// The posted memory of one connection.
#[derive(Debug, Default)]
pub struct Registry {
    entries: SlotMap<DefaultKey, Entry>,
    /// Accesses by other threads.
    pub(crate) delegations: Delegations,
}

// SAFETY: the pointers name memory posted to the connection that owns this registry. They move with it from thread to
// thread, and are only dereferenced while that connection is driven.
unsafe impl Send for Registry {}

/// The name of the entry of `key`: the key's number in two halves.
fn name(key: DefaultKey) -> RegionId {
    let number = key.data().as_ffi();
    RegionId {
        index: number as u32,
        generation: (number >> 32) as u32,
    }
}

/// The key that `region` is the name of. `None` if it names no entry, as that of [`Span::EMPTY`].
fn key(region: RegionId) -> Option<DefaultKey> {
    let number = u64::from(region.generation) << 32 | u64::from(region.index);
    let key = KeyData::from_ffi(number).into();
    (name(key) == region).then_some(key)
}

impl Registry {
    /// Opens an entry for `len` bytes at `start`.
    ///
    /// # Safety
    /// Until [`Registry::close`], the bytes, or those of gathered pieces, stay mapped, nothing else writes them, and if
    /// they are writable nothing else reads them. Exported bytes stay mapped for every turn during which the entry is
    /// open, and are accessed only in the way of `shared`.
    pub(crate) unsafe fn open(&mut self, start: *mut u8, len: usize, kind: EntryKind) -> Span {
        let len = len as u64;
        let key = self.entries.insert(Entry {
            start,
            len,
            kind,
            settled: 0,
        });
        Span {
            region: name(key),
            offset: 0,
            len,
        }
    }

    /// Opens an entry to read `pieces` as if they were one. `file`: one of them is a mapped file.
    ///
    /// # Safety
    /// As [`Registry::open`], for each piece; the pieces are not exported.
    pub(crate) unsafe fn open_pieces(&mut self, pieces: &[(*mut u8, usize)], file: bool) -> Span {
        let mut whole = 0;
        let placed = pieces.iter().filter(|(_, len)| *len > 0);
        let placed = placed.map(|&(start, len)| {
            let (len, offset) = (len as u64, whole);
            whole += len;
            Piece { start, len, offset }
        });
        let pieces = placed.collect();
        let kind = EntryKind::Gathered { pieces, file };
        // SAFETY: as promised, for each piece.
        let span = unsafe { self.open(std::ptr::null_mut(), whole as usize, kind) };
        if whole <= COPIED {
            self.copy_pieces(span);
        }
        span
    }

    /// Copies a gathered entry into one piece. If a page of a mapped file is gone, the entry stays gathered, and the
    /// send reports the fault.
    fn copy_pieces(&mut self, span: Span) {
        let mut copy = vec![0; span.len as usize];
        if self.read(span, &mut copy)
            && let Some(entry) = self.get_mut(span.region)
        {
            entry.start = copy.as_mut_ptr();
            entry.kind = EntryKind::Copied { _bytes: copy };
        }
    }

    /// Opens an entry for `len` bytes of new memory, zeroed, that lives as long as the entry.
    ///
    /// # Errors
    /// The system has no memory.
    pub(crate) fn allocate(&mut self, len: usize) -> io::Result<Span> {
        let region = Region::anonymous(len)?;
        let (start, len) = region.raw();
        let kind = EntryKind::Own { _region: region };
        // SAFETY: the entry keeps the region. The registry is the only one to access it, on behalf of the driver's lane
        // alone.
        Ok(unsafe { self.open(start, len, kind) })
    }

    /// Closes the entry: its name becomes invalid.
    pub(crate) fn close(&mut self, region: RegionId) {
        self.delegations.call_back_region(region);
        if let Some(key) = key(region) {
            self.entries.remove(key);
        }
    }

    fn get(&self, region: RegionId) -> Option<&Entry> {
        self.entries.get(key(region)?)
    }

    fn get_mut(&mut self, region: RegionId) -> Option<&mut Entry> {
        self.entries.get_mut(key(region)?)
    }

    /// The entry, if `span` names bytes of it.
    fn entry(&self, span: Span) -> Option<&Entry> {
        let end = span.offset.checked_add(span.len)?;
        self.get(span.region).filter(|entry| end <= entry.len)
    }

    /// The address to read `span`, if it lies in one piece.
    pub(crate) fn source(&self, span: Span) -> Option<*const u8> {
        let mut pieces = self.pieces(span)?;
        let whole = pieces.next().filter(|it| it.1 as u64 == span.len);
        whole.map(|(start, _)| start)
    }

    /// The addresses to read `span`, piece by piece.
    pub(crate) fn pieces(&self, span: Span) -> Option<impl Iterator<Item = (*const u8, usize)>> {
        let entry = self.entry(span)?;
        let (alone, pieces) = match &entry.kind {
            EntryKind::Gathered { pieces, .. } => (None, &pieces[..]),
            // SAFETY: offset <= len of an open entry.
            _ => (
                Some(unsafe { entry.start.add(span.offset as usize) }),
                &[][..],
            ),
        };
        let alone = alone.map(|start| (start.cast_const(), span.len as usize));
        let first = pieces.partition_point(|it| it.offset + it.len <= span.offset);
        let gathered = pieces[first..].iter().map_while(move |it| {
            let at = span.offset.max(it.offset);
            let end = span.end().min(it.offset + it.len);
            let len = end.checked_sub(at).filter(|len| *len > 0)?;
            // SAFETY: `at` lies in the piece.
            let from = unsafe { it.start.add((at - it.offset) as usize) };
            Some((from, len as usize))
        });
        Some(alone.into_iter().chain(gathered))
    }

    /// The address to write `span`, except settled bytes. Other threads no longer write there.
    pub(crate) fn target(&self, span: Span) -> Option<*mut u8> {
        let entry = self.entry(span)?;
        if !entry.is_writable() || entry.settled > span.offset {
            return None;
        }
        self.delegations.call_back_writers(span);
        // SAFETY: offset <= len of an open entry. The entry is not gathered, because gathered ones are not writable.
        Some(unsafe { entry.start.add(span.offset as usize) })
    }

    /// The address to write `span` before it is known that its bytes come next: as [`Registry::target`], but not for
    /// memory that another thread writes, because a wrong prediction would end its access.
    pub(crate) fn prediction(&self, span: Span) -> Option<*mut u8> {
        match self.delegations.has_writer(span) {
            true => None,
            false => self.target(span),
        }
    }

    /// Marks the first `len` bytes of `region` as no longer written: others may read them.
    pub(crate) fn settle(&mut self, region: RegionId, len: u64) {
        if let Some(entry) = self.get_mut(region) {
            entry.settled = entry.settled.max(len);
        }
    }

    /// Bytes at the start of `span` that are no longer written.
    pub(crate) fn settled(&self, span: Span) -> u64 {
        let settled = self.get(span.region).map_or(0, |entry| entry.settled);
        settled.saturating_sub(span.offset).min(span.len)
    }

    /// Whether the region is a mapped file, which only the kernel or `fault` may access.
    pub(crate) fn is_file(&self, region: RegionId) -> bool {
        self.get(region).is_some_and(Entry::is_file)
    }

    /// Whether only the lane and the kernel access the region: it is neither exported nor a mapped file.
    pub(crate) fn is_exclusive(&self, region: RegionId) -> bool {
        let entry = self.get(region);
        entry.is_some_and(|entry| !entry.is_exported() && !entry.is_file())
    }

    /// Whether the kernel may continue to read the region after its Transfer is over. Not for a mapped file, which
    /// others may change without the lane's knowledge.
    pub(crate) fn is_lendable(&self, region: RegionId) -> bool {
        let lendable = |entry: &Entry| matches!(entry.kind, EntryKind::Posted { file: false, .. });
        self.get(region).is_some_and(lendable)
    }

    /// The bounds of the shared memory, if the region is exported.
    pub(crate) fn bounds(&self, region: RegionId) -> Option<Bounds> {
        let entry = self.get(region).filter(|entry| entry.is_exported())?;
        Some(Bounds {
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
#[path = "registry_tests.rs"]
mod tests;
