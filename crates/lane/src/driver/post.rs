//! Posting Transfers of owned memory.

use super::{Driver, WorkKind};
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
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_send(
        &mut self,
        memory: Memory,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        let sort = Sort::new(WorkKind::Send, true);
        self.post(memory, false, sort, |core, now, span| {
            core.post_send(now, span, delivery)
        })
    }

    /// Receives the next Transfer that no earlier receive takes.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_receive(&mut self, region: Region) -> Result<TransferId, PostError> {
        let sort = Sort::new(WorkKind::Receive, true);
        self.post(region.into(), true, sort, |core, now, span| {
            core.post_receive(now, span)
        })
    }

    /// Offers `memory` to the peer's next Read.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_offer(
        &mut self,
        memory: Memory,
        delivery: Delivery,
    ) -> Result<TransferId, PostError> {
        let sort = Sort::new(WorkKind::Offer, true);
        self.post(memory, false, sort, |core, now, span| {
            core.post_offer(now, span, delivery)
        })
    }

    /// Reads what the peer offers.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_read(&mut self, region: Region) -> Result<TransferId, PostError> {
        let sort = Sort::new(WorkKind::Read, true);
        self.post(region.into(), true, sort, |core, now, span| {
            core.post_read(now, span)
        })
    }

    pub(super) fn post(
        &mut self,
        memory: Memory,
        writable: bool,
        sort: Sort,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, PostError> {
        let (start, len) = memory.bytes();
        let file = memory.is_file();
        let access = Access {
            writable,
            file,
            kept: true,
            shared: false,
        };
        // SAFETY: `memory` is kept in `posted` until the entry is closed, so its bytes stay mapped;
        // an exclusive region is ours alone, a shared one is only read.
        let span = unsafe { self.memory.open(start, len, access) };
        self.begin(span, sort, Some(memory), post)
    }

    pub(super) fn begin(
        &mut self,
        span: Span,
        sort: Sort,
        memory: Option<Memory>,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, PostError> {
        match post(&mut self.core, self.clock.now(), span) {
            Ok(id) => {
                self.posted.insert(
                    id,
                    Posted {
                        region: Some(span.region),
                        len: span.len,
                        memory,
                        ..Posted::without_memory(sort)
                    },
                );
                Ok(id)
            }
            Err(error) => {
                self.memory.close(span.region);
                Err(error)
            }
        }
    }
}
