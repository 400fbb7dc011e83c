//! Persistent memory regions that the peer may use: rights and bounds, checked for every
//! operation (thesis, 4.3.2 and 6.1.4), with the generation the thesis lacks.
//!
//! A handle names an entry of the table and one life of it. Generations start at random, so that a
//! handle is not guessed, and count up, so that one of an earlier life is told from a made-up one.

use crate::limits::MAX_EXPORTS;
use crate::transmit::join;
use crate::{HANDLE, PostError, RegionName, Span};
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::{Reason, Rights};

/// The handle to which messages go. No region has it, for generations are never 0.
pub(crate) const MESSAGES: u32 = HANDLE;

const INDEX_BITS: u32 = 8;
const MAX_GENERATION: u32 = (1 << (31 - INDEX_BITS)) - 1;
const _: () = assert!(MAX_EXPORTS <= 1 << INDEX_BITS);

/// A place that the peer names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) handle: u32,
    pub(crate) mx: u16,
    pub(crate) bufx: u32,
    pub(crate) offset: u32,
}

#[derive(Clone, Debug)]
struct Exported {
    span: Span,
    rights: Rights,
    name: Option<RegionName>,
}

#[derive(Clone, Debug)]
struct Entry {
    first: u32,
    generation: u32,
    region: Option<Exported>,
}

/// The exported regions of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Exports {
    entries: Vec<Entry>,
    seed: u32,
}

impl Exports {
    /// `seed` is random.
    pub(crate) fn new(seed: u32) -> Exports {
        Exports {
            entries: vec![],
            seed,
        }
    }

    /// Exports `span`. Returns handle and Mx.
    pub(crate) fn export(
        &mut self,
        span: Span,
        rights: Rights,
        name: Option<RegionName>,
    ) -> Result<(u32, u16), PostError> {
        if name.is_some() && self.find(name.as_ref()).is_some() {
            return Err(PostError::NameTaken);
        }
        let index = self.free_entry()?;
        let entry = &mut self.entries[index];
        entry.generation = entry.generation % MAX_GENERATION + 1;
        entry.region = Some(Exported { span, rights, name });
        Ok((handle(index, entry.generation), index as u16))
    }

    fn free_entry(&mut self) -> Result<usize, PostError> {
        let free = self.entries.iter().position(|it| it.region.is_none());
        if let Some(index) = free {
            return Ok(index);
        }
        if self.entries.len() >= MAX_EXPORTS {
            return Err(PostError::Full);
        }
        self.seed = self
            .seed
            .wrapping_mul(0x9e37_79b1)
            .wrapping_add(0x7f4a_7c15);
        let first = (self.seed >> INDEX_BITS) % MAX_GENERATION;
        self.entries.push(Entry {
            first,
            generation: first,
            region: None,
        });
        Ok(self.entries.len() - 1)
    }

    /// From here on the handle is refused. Returns its memory.
    pub(crate) fn revoke(&mut self, handle: u32) -> Option<Span> {
        let entry = self.entries.get_mut(index(handle))?;
        if generation(handle) != entry.generation {
            return None;
        }
        entry.region.take().map(|region| region.span)
    }

    fn find(&self, name: Option<&RegionName>) -> Option<(usize, &Exported)> {
        let named = self.entries.iter().enumerate();
        named
            .filter_map(|(index, entry)| Some((index, entry.region.as_ref()?)))
            .find(|(_, region)| region.name.as_ref() == name)
    }

    /// The region of that name, for a request of `rights`: handle, Mx and length.
    pub(crate) fn open(
        &self,
        name: &RegionName,
        rights: Rights,
    ) -> Result<(u32, u16, u64), Reason> {
        let (index, region) = self.find(Some(name)).ok_or(Reason::Unknown)?;
        if !region.rights.contains(rights) {
            return Err(Reason::Denied);
        }
        let generation = self.entries[index].generation;
        Ok((handle(index, generation), index as u16, region.span.len))
    }

    /// The memory of `len` bytes at `place`, if it may be used so.
    pub(crate) fn check(
        &self,
        place: Named,
        len: u64,
        right: Rights,
        buffer_log2: u8,
    ) -> Result<Span, Reason> {
        let region = self.region(place)?;
        if !region.rights.contains(right) {
            return Err(Reason::Denied);
        }
        let start = join(place.bufx, place.offset, buffer_log2);
        match start.checked_add(len) {
            Some(end) if end <= region.span.len => Ok(region.span.part(start, len)),
            _ => Err(Reason::OutOfBounds),
        }
    }

    fn region(&self, place: Named) -> Result<&Exported, Reason> {
        let entry = self
            .entries
            .get(index(place.handle))
            .ok_or(Reason::Unknown)?;
        if place.handle & HANDLE == 0 || usize::from(place.mx) != index(place.handle) {
            return Err(Reason::Unknown);
        }
        let age = (entry.generation + MAX_GENERATION - generation(place.handle)) % MAX_GENERATION;
        let uses = (entry.generation + MAX_GENERATION - entry.first) % MAX_GENERATION;
        match &entry.region {
            Some(region) if age == 0 => Ok(region),
            _ if age < uses => Err(Reason::Revoked),
            _ => Err(Reason::Unknown),
        }
    }
}

fn handle(index: usize, generation: u32) -> u32 {
    HANDLE | generation << INDEX_BITS | index as u32
}

fn index(handle: u32) -> usize {
    (handle & ((1 << INDEX_BITS) - 1)) as usize
}

fn generation(handle: u32) -> u32 {
    (handle & !HANDLE) >> INDEX_BITS
}

#[cfg(test)]
#[path = "exports_tests.rs"]
mod tests;
