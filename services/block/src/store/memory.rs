//! Stores a disk in memory.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use super::{Run, Store};

/// Bytes of memory taken at a time.
const PAGE: u64 = 4096;

type Pages = BTreeMap<u64, Box<[u8]>>;

/// A disk in memory. Unwritten and unmapped pages take no memory. A flush does nothing.
#[derive(Debug)]
pub struct MemoryStore {
    bytes: u64,
    pages: RwLock<Pages>,
}

impl MemoryStore {
    /// A disk of `bytes` zero bytes.
    pub fn new(bytes: u64) -> MemoryStore {
        MemoryStore {
            bytes,
            pages: RwLock::default(),
        }
    }

    /// Refuses a range outside the disk, although callers must stay within it.
    fn check(&self, at: u64, bytes: u64) -> io::Result<()> {
        let end = at.checked_add(bytes);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

/// The parts of pages that `bytes` bytes at `at` are made of: page, range in it, range in all.
fn parts(at: u64, bytes: u64) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let end = at + bytes;
    let pages = at / PAGE..end.div_ceil(PAGE);
    pages.map(move |page| {
        let start = page * PAGE;
        let (from, to) = (at.max(start), end.min(start + PAGE));
        let within = (from - start) as usize..(to - start) as usize;
        (page, within, (from - at) as usize..(to - at) as usize)
    })
}

impl Store for MemoryStore {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check(at, into.len() as u64)?;
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        for (page, within, whole) in parts(at, into.len() as u64) {
            match pages.get(&page) {
                Some(page) => into[whole].copy_from_slice(&page[within]),
                None => into[whole].fill(0),
            }
        }
        Ok(())
    }

    fn read_at_once(&self, at: u64, into: &mut [u8]) -> bool {
        self.read(at, into).is_ok()
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.check(at, from.len() as u64)?;
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (page, within, whole) in parts(at, from.len() as u64) {
            let page = pages.entry(page);
            let page = page.or_insert_with(|| vec![0; PAGE as usize].into());
            page[within].copy_from_slice(&from[whole]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.check(at, bytes)?;
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let last = (at + bytes).div_ceil(PAGE);
        let taken: Vec<u64> = pages
            .range(at / PAGE..last)
            .map(|(&page, _)| page)
            .collect();
        for page in taken {
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            // The last page of a store may be shorter than others.
            if at <= start && end.min(self.bytes) <= at + bytes {
                pages.remove(&page);
            } else if let Some(content) = pages.get_mut(&page) {
                let from = (at.max(start) - start) as usize;
                let to = ((at + bytes).min(end) - start) as usize;
                content[from..to].fill(0);
            }
        }
        Ok(true)
    }

    fn run(&self, at: u64) -> io::Result<Run> {
        self.check(at, 1)?;
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let first = at / PAGE;
        let mapped = pages.contains_key(&first);
        let end = if mapped {
            let row = pages.range(first..).zip(first..);
            let row = row.take_while(|&((&page, _), expected)| page == expected);
            (first + row.count() as u64) * PAGE
        } else {
            let next = pages.range(first..).next();
            next.map_or(self.bytes, |(&page, _)| page * PAGE)
        };
        let bytes = end.min(self.bytes) - at;
        Ok(Run { mapped, bytes })
    }
}
