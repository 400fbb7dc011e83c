//! Checks the peer's operations against the exported regions: rights and bounds (thesis, 4.3.2 and 6.1.4).
//!
//! A handle that the core assigns is used once. Such handles count up from a random number, so that a handle of an
//! earlier export differs from a forged one. A handle made from a number of the program's own is used as often as the
//! program likes. Only current exports are stored, ordered by handle and by name.

use crate::limits::MAX_EXPORTS;
use crate::request::{ExportAs, PostError, RegionName, RemotePlace, RemoteRegion};
use crate::span::Span;
use crate::transfer::{HANDLE, NUMBERED, mx};
use crate::transmit::join;
use alloc::collections::BTreeMap;
use zerolane_wire::{Reason, Rights};

/// The handle of messages. No region has it.
pub(crate) const MESSAGES: u32 = HANDLE;

/// Number of handles that the core assigns: from 1 to this, with [`HANDLE`] set.
const HANDLES: u32 = (NUMBERED ^ HANDLE) - 1;
const _: () = assert!(MAX_EXPORTS < HANDLES as usize);

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

/// The exported regions of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Exports {
    regions: BTreeMap<u32, Exported>,
    names: BTreeMap<RegionName, u32>,
    /// The last handle assigned, without [`HANDLE`].
    last: u32,
    /// Handles assigned.
    given: u32,
}

impl Exports {
    /// `seed` must be random.
    pub(crate) fn new(seed: u32) -> Exports {
        Exports {
            regions: BTreeMap::new(),
            names: BTreeMap::new(),
            last: seed % HANDLES + 1,
            given: 0,
        }
    }

    /// Exports `span`. Returns handle and Mx.
    pub(crate) fn export(
        &mut self,
        span: Span,
        rights: Rights,
        named: ExportAs,
    ) -> Result<(u32, u16), PostError> {
        let (name, number) = match named {
            ExportAs::Handle => (None, None),
            ExportAs::Name(name) => (Some(name), None),
            ExportAs::Number(number) => (None, Some(number.place(0).handle)),
        };
        if name.is_some_and(|name| self.names.contains_key(&name)) {
            return Err(PostError::NameTaken);
        }
        if number.is_some_and(|handle| self.regions.contains_key(&handle)) {
            return Err(PostError::NumberTaken);
        }
        if self.regions.len() >= MAX_EXPORTS {
            return Err(PostError::TooManyExports);
        }
        let handle = number.unwrap_or_else(|| self.next_handle());
        if let Some(name) = name {
            self.names.insert(name, handle);
        }
        self.regions.insert(handle, Exported { span, rights, name });
        Ok((handle, mx(handle)))
    }

    fn next_handle(&mut self) -> u32 {
        loop {
            self.last = self.last % HANDLES + 1;
            self.given = self.given.saturating_add(1).min(HANDLES);
            let handle = HANDLE | self.last;
            if !self.regions.contains_key(&handle) {
                return handle;
            }
        }
    }

    /// Refuses the handle from now on. Returns its memory.
    pub(crate) fn revoke(&mut self, handle: u32) -> Option<Span> {
        let region = self.regions.remove(&handle)?;
        if let Some(name) = &region.name {
            self.names.remove(name);
        }
        Some(region.span)
    }

    /// The region of that name, for a request of `rights`: handle, Mx and length.
    pub(crate) fn open(
        &self,
        name: &RegionName,
        rights: Rights,
    ) -> Result<(u32, u16, u64), Reason> {
        let &handle = self.names.get(name).ok_or(Reason::Unknown)?;
        let region = self.regions.get(&handle).ok_or(Reason::Unknown)?;
        if !region.rights.contains(rights) {
            return Err(Reason::Denied);
        }
        Ok((handle, mx(handle), region.span.len))
    }

    /// The memory of `len` bytes at `place`, if the rights permit this use, and the whole region as its peers know it.
    pub(crate) fn check(
        &self,
        place: Named,
        len: u64,
        right: Rights,
        buffer_log2: u8,
    ) -> Result<(Span, RemoteRegion), Reason> {
        let region = self.region(place)?;
        if !region.rights.contains(right) {
            return Err(Reason::Denied);
        }
        let start = join(place.bufx, place.offset, buffer_log2);
        match start.checked_add(len) {
            Some(end) if end <= region.span.len => {
                let known = RemoteRegion {
                    start: RemotePlace {
                        handle: place.handle,
                        mx: place.mx,
                        address: 0,
                    },
                    length: region.span.len,
                    rights: region.rights,
                };
                Ok((region.span.part(start, len), known))
            }
            _ => Err(Reason::OutOfBounds),
        }
    }

    fn region(&self, place: Named) -> Result<&Exported, Reason> {
        let handle = place.handle;
        if place.mx != mx(handle) {
            return Err(Reason::Unknown);
        }
        self.regions
            .get(&handle)
            .ok_or(match self.was_given(handle) {
                true => Reason::Revoked,
                false => Reason::Unknown,
            })
    }

    fn was_given(&self, handle: u32) -> bool {
        let number = handle & !HANDLE;
        let is_handle = handle & NUMBERED == HANDLE && number != 0;
        is_handle && (self.last + HANDLES - number) % HANDLES < self.given
    }

    pub(crate) fn assert_bounded(&self) {
        assert!(self.regions.len() <= MAX_EXPORTS && self.names.len() <= self.regions.len());
    }
}

#[cfg(test)]
#[path = "exports_tests.rs"]
mod tests;
