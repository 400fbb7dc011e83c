//! Transfers of borrowed memory, over before the call returns.

use super::post::Sort;
use super::{Completion, Driver, DriverError, WorkKind};
use crate::Lane;
use crate::registry::Access;
use zerolane_core::{
    CloseReason, Connection, Delivery, Instant, PostError, RegionId, Span, TransferError,
    TransferId,
};

const BORROWED_TO_SEND: Access = Access {
    writable: false,
    file: false,
    kept: false,
    shared: false,
};
const BORROWED_TO_RECEIVE: Access = Access {
    writable: true,
    file: false,
    kept: false,
    shared: false,
};

impl<L: Lane> Driver<L> {
    /// Sends `data` as one Transfer and waits until the peer has all of it.
    ///
    /// # Errors
    /// The Transfer's failure inside, the connection's outside.
    pub fn send(&mut self, data: &[u8]) -> Result<Result<u64, TransferError>, DriverError> {
        let sort = Sort::new(WorkKind::Send, true);
        let sent = self.lend_to_send(data, sort, |core, now, span| {
            core.post_send(now, span, Delivery::Interrupt)
        });
        Ok(sent?.result)
    }

    /// Posts borrowed memory to be read, and waits for the end.
    pub(super) fn lend_to_send(
        &mut self,
        data: &[u8],
        sort: Sort,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<Completion, DriverError> {
        // SAFETY: the borrow of `data` lasts until this function returns, and `finish` closes the
        // entry before that, whatever happens.
        let span = unsafe {
            let start = data.as_ptr().cast_mut();
            self.memory.open(start, data.len(), BORROWED_TO_SEND)
        };
        self.finish(span, sort, post)
    }

    /// Receives the next Transfer into `buffer` and waits for all of it.
    ///
    /// # Errors
    /// The Transfer's failure inside, the connection's outside.
    pub fn receive_into(
        &mut self,
        buffer: &mut [u8],
    ) -> Result<Result<u64, TransferError>, DriverError> {
        let sort = Sort::new(WorkKind::Receive, true);
        let received =
            self.lend_to_receive(buffer, sort, |core, now, span| core.post_receive(now, span));
        Ok(received?.result)
    }

    /// Posts borrowed memory to be written, and waits for the end.
    pub(super) fn lend_to_receive(
        &mut self,
        buffer: &mut [u8],
        sort: Sort,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<Completion, DriverError> {
        // SAFETY: as in `send`, and `buffer` is borrowed exclusively.
        let span = unsafe {
            let start = buffer.as_mut_ptr();
            self.memory.open(start, buffer.len(), BORROWED_TO_RECEIVE)
        };
        self.finish(span, sort, post)
    }

    /// Posts borrowed memory, waits for the end, and closes the memory's entry in every case.
    fn finish(
        &mut self,
        span: Span,
        sort: Sort,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<Completion, DriverError> {
        let (id, _) = self.begin(span, sort, post)?;
        let guard = Borrowed {
            driver: self,
            id,
            region: span.region,
        };
        guard.driver.await_request(id)
    }

    /// Waits for request `id` and takes its completion; others stay. A wake does not end it.
    pub(super) fn await_request(&mut self, id: TransferId) -> Result<Completion, DriverError> {
        self.wait_through(None, |driver| !driver.posted.contains_key(&id))?;
        let completion = self.completions.take(id);
        self.core.set_unread(self.completions.told());
        completion.ok_or_else(|| self.closed_error())
    }

    pub(super) fn closed_error(&self) -> DriverError {
        DriverError::Closed(self.closed.unwrap_or(CloseReason::Local))
    }
}

/// A Transfer of borrowed memory: over, and its name closed, when this goes.
struct Borrowed<'a, L: Lane> {
    driver: &'a mut Driver<L>,
    id: TransferId,
    region: RegionId,
}

impl<L: Lane> Drop for Borrowed<'_, L> {
    fn drop(&mut self) {
        if let Some(posted) = self.driver.posted.get_mut(&self.id) {
            posted.abandoned = true;
            self.driver.cancel(self.id);
            self.driver.posted.remove(&self.id);
        }
        self.driver.memory.close(self.region);
    }
}
