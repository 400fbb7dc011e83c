//! Posting Transfers of owned memory.

use super::Driver;
use crate::registry::Access;
use crate::{Lane, Memory, Region};
use zerolane_core::{Connection, Delivery, Instant, PostError, RegionId, Span, TransferId};

/// A Transfer that is not over, and what it was posted with.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) region: RegionId,
    pub(super) len: u64,
    pub(super) memory: Option<Memory>,
    pub(super) is_send: bool,
    /// Its memory turned out to be gone after the core had taken it for complete.
    pub(super) faulted: bool,
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
        self.post(memory, false, |core, now, span| {
            core.post_send(now, span, delivery)
        })
    }

    /// Receives the next Transfer that no earlier receive takes.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_receive(&mut self, region: Region) -> Result<TransferId, PostError> {
        self.post(region.into(), true, |core, now, span| {
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
        self.post(memory, false, |core, now, span| {
            core.post_offer(now, span, delivery)
        })
    }

    /// Reads what the peer offers.
    ///
    /// # Errors
    /// The connection is closed, or too many Transfers are posted.
    pub fn post_read(&mut self, region: Region) -> Result<TransferId, PostError> {
        self.post(region.into(), true, |core, now, span| {
            core.post_read(now, span)
        })
    }

    fn post(
        &mut self,
        memory: Memory,
        writable: bool,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, PostError> {
        let (start, len) = memory.bytes();
        let file = memory.is_file();
        // SAFETY: `memory` is kept in `posted` until the entry is closed, so its bytes stay mapped;
        // an exclusive region is ours alone, a shared one is only read.
        let span = unsafe {
            self.memory.open(
                start,
                len,
                Access {
                    writable,
                    file,
                    kept: true,
                },
            )
        };
        self.begin(span, !writable, Some(memory), post)
    }

    pub(super) fn begin(
        &mut self,
        span: Span,
        is_send: bool,
        memory: Option<Memory>,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<TransferId, PostError> {
        match post(&mut self.core, self.clock.now(), span) {
            Ok(id) => {
                self.posted.insert(
                    id,
                    Posted {
                        region: span.region,
                        len: span.len,
                        memory,
                        is_send,
                        faulted: false,
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
