//! Reads or shares the bytes of a request that have arrived while it is in progress.

use super::Driver;
use crate::lane::Lane;
use crate::memory::{Memory, SharedRegion};
use zerolane_core::{Span, TransferId};

impl<L: Lane> Driver<L> {
    /// Bytes at the start of the memory that request `id` receives or gets into that are verified and in place. The
    /// number never decreases. `None` if no such request is in progress.
    pub fn arrived(&self, id: TransferId) -> Option<u64> {
        let posted = self.posted.get(&id)?;
        let incoming = posted.info.kind.is_incoming() && posted.region.is_some();
        incoming.then(|| self.core.arrived(id).unwrap_or(0))
    }

    /// Copies the arrived bytes of request `id`, from `offset` on. Returns how many there were.
    pub fn read_arrived(&self, id: TransferId, offset: u64, into: &mut [u8]) -> usize {
        let region = self.posted.get(&id).and_then(|it| it.region);
        let (Some(region), Some(arrived)) = (region, self.arrived(id)) else {
            return 0;
        };
        let len = arrived.saturating_sub(offset).min(into.len() as u64);
        let span = Span {
            region,
            offset,
            len,
        };
        match self.memory.read(span, &mut into[..len as usize]) {
            true => len as usize,
            false => 0,
        }
    }

    /// Shares the arrived bytes of request `id`, to be read and sent while the rest is received. Its memory is shared
    /// from now on, and returns as such with the completion. `None` if no such request is in progress, or its memory is
    /// borrowed or a mapped file.
    pub fn share_arrived(&mut self, id: TransferId) -> Option<SharedRegion> {
        let arrived = self.arrived(id)?;
        let posted = self.posted.get_mut(&id)?;
        let region = posted.region?;
        let whole = match posted.memory.take()? {
            Memory::Exclusive(region) => region.share(),
            Memory::Shared(shared) => shared,
            other @ (Memory::File(_) | Memory::Gathered(_)) => {
                posted.memory = Some(other);
                return None;
            }
        };
        let part = whole.slice(0, arrived as usize);
        posted.memory = Some(whole.into());
        // These bytes are no longer written: a slice of them may be in any thread.
        self.memory.settle(region, arrived);
        Some(part)
    }
}
