//! What has arrived of a request in progress: looked at by copy, or shared while the rest is received.

use super::Driver;
use crate::{Lane, Memory, SharedRegion};
use zerolane_core::{Span, TransferId};

impl<L: Lane> Driver<L> {
    /// Bytes at the start of what request `id` receives or gets that are verified and in place. It
    /// never becomes less. `None` if no such request is in progress.
    pub fn arrived(&self, id: TransferId) -> Option<u64> {
        let posted = self.posted.get(&id)?;
        let incoming = posted.info.kind.is_incoming() && posted.region.is_some();
        incoming.then(|| self.core.arrived(id).unwrap_or(0))
    }

    /// Copies what has arrived of request `id`, from `offset` on. Returns how many bytes there were.
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

    /// What has arrived of request `id`, to be looked at and sent while the rest is received. From here on
    /// its memory is shared: so it comes back with the completion. `None` if no such request is in
    /// progress, or its memory is borrowed.
    pub fn share_arrived(&mut self, id: TransferId) -> Option<SharedRegion> {
        let arrived = self.arrived(id)?;
        let posted = self.posted.get_mut(&id)?;
        let region = posted.region?;
        let whole = match posted.memory.take()? {
            Memory::Exclusive(region) => region.share(),
            Memory::Shared(shared) => shared,
            gathered @ Memory::Gathered(_) => {
                posted.memory = Some(gathered);
                return None;
            }
        };
        let part = whole.slice(0, arrived as usize);
        posted.memory = Some(whole.into());
        // Nothing is written there any more: the part may be a slice in any thread.
        self.memory.settle(region, arrived);
        Some(part)
    }
}
