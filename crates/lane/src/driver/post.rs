//! Posting Transfers of owned memory.

use super::{Driver, NotPosted, WorkKind};
use crate::memory::Postable;
use crate::registry::Access;
use crate::{Lane, Memory, Region};
use zerolane_core::{Connection, Delivery, Instant, PostError, RegionId, Span, TransferId};

/// What a request is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    pub(super) kind: WorkKind,
    /// Its success is told.
    pub(super) signalled: bool,
    /// Slot for the control of a message.
    pub(super) control: Option<u32>,
}

impl Sort {
    pub(super) fn new(kind: WorkKind, signalled: bool) -> Sort {
        Sort {
            kind,
            signalled,
            control: None,
        }
    }
}

/// A request that is not over, and what it was posted with.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) sort: Sort,
    pub(super) region: Option<RegionId>,
    pub(super) len: u64,
    pub(super) memory: Option<Memory>,
    /// Its memory turned out to be gone after the core had taken it for complete.
    pub(super) faulted: bool,
    /// Nobody waits for it any more.
    pub(super) abandoned: bool,
    /// Somebody waits for it in particular.
    pub(super) awaited: bool,
}

impl Posted {
    pub(super) fn without_memory(sort: Sort) -> Posted {
        Posted {
            sort,
            region: None,
            len: 0,
            memory: None,
            faulted: false,
            abandoned: false,
            awaited: false,
        }
    }

    pub(super) fn copied(kind: WorkKind) -> Posted {
        Posted::without_memory(Sort::new(kind, true))
    }
}

impl<L: Lane> Driver<L> {
    /// Sends `memory` as one Transfer.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted. The memory comes back.
    pub fn post_send(
        &mut self,
        memory: Memory,
        delivery: Delivery,
    ) -> Result<TransferId, NotPosted<Memory>> {
        let sort = Sort::new(WorkKind::Send, true);
        self.post(memory, false, sort, |core, now, span| {
            core.post_send(now, span, delivery)
        })
    }

    /// Receives the next Transfer that no earlier receive takes.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted. The memory comes back.
    pub fn post_receive(&mut self, region: Region) -> Result<TransferId, NotPosted<Region>> {
        let sort = Sort::new(WorkKind::Receive, true);
        self.post(region, true, sort, |core, now, span| {
            core.post_receive(now, span)
        })
    }

    /// Offers `memory` to the peer's next Read.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted. The memory comes back.
    pub fn post_offer(
        &mut self,
        memory: Memory,
        delivery: Delivery,
    ) -> Result<TransferId, NotPosted<Memory>> {
        let sort = Sort::new(WorkKind::Offer, true);
        self.post(memory, false, sort, |core, now, span| {
            core.post_offer(now, span, delivery)
        })
    }

    /// Reads what the peer offers.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted. The memory comes back.
    pub fn post_read(&mut self, region: Region) -> Result<TransferId, NotPosted<Region>> {
        let sort = Sort::new(WorkKind::Read, true);
        self.post(region, true, sort, |core, now, span| {
            core.post_read(now, span)
        })
    }

    pub(super) fn post<M: Postable>(
        &mut self,
        memory: M,
        writable: bool,
        sort: Sort,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, NotPosted<M>> {
        let (start, len) = memory.raw();
        let access = Access {
            writable,
            file: memory.is_file(),
            kept: true,
            shared: false,
        };
        // SAFETY: `memory` is kept in `posted` until the entry is closed, so its bytes stay mapped;
        // an exclusive region is ours alone, a shared one is only read. If it is refused, the entry is
        // closed before the memory is given back.
        let span = unsafe { self.memory.open(start, len, access) };
        match self.begin(span, sort, post) {
            Ok((id, posted)) => {
                posted.memory = Some(memory.into());
                Ok(id)
            }
            Err(reason) => Err(NotPosted { reason, memory }),
        }
    }

    /// Posts an open entry, which is closed if that is refused.
    pub(super) fn begin(
        &mut self,
        span: Span,
        sort: Sort,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<(TransferId, &mut Posted), PostError> {
        match post(&mut self.core, self.clock.now(), span) {
            Ok(id) => {
                let posted = Posted {
                    region: Some(span.region),
                    len: span.len,
                    ..Posted::without_memory(sort)
                };
                Ok((id, self.posted.entry(id).insert_entry(posted).into_mut()))
            }
            Err(error) => {
                self.memory.close(span.region);
                Err(error)
            }
        }
    }
}
