//! Transfers of borrowed memory, over before the call returns.

use super::{Driver, DriverError};
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
};
const BORROWED_TO_RECEIVE: Access = Access {
    writable: true,
    file: false,
    kept: false,
};

impl<L: Lane> Driver<L> {
    /// Sends `data` as one Transfer and waits until the peer has all of it.
    ///
    /// # Errors
    /// The Transfer's failure inside, the connection's outside.
    pub fn send(&mut self, data: &[u8]) -> Result<Result<u64, TransferError>, DriverError> {
        // SAFETY: the borrow of `data` lasts until this function returns, and `finish` closes the
        // entry before that, whatever happens.
        let span = unsafe {
            let start = data.as_ptr().cast_mut();
            self.memory.open(start, data.len(), BORROWED_TO_SEND)
        };
        self.finish(span, true, |core, now, span| {
            core.post_send(now, span, Delivery::Interrupt)
        })
    }

    /// Receives the next Transfer into `buffer` and waits for all of it.
    ///
    /// # Errors
    /// The Transfer's failure inside, the connection's outside.
    pub fn receive_into(
        &mut self,
        buffer: &mut [u8],
    ) -> Result<Result<u64, TransferError>, DriverError> {
        // SAFETY: as in `send`, and `buffer` is borrowed exclusively.
        let span = unsafe {
            let start = buffer.as_mut_ptr();
            self.memory.open(start, buffer.len(), BORROWED_TO_RECEIVE)
        };
        self.finish(span, false, |core, now, span| core.post_receive(now, span))
    }

    /// Posts borrowed memory, waits for the end, and closes the memory's entry in every case.
    fn finish(
        &mut self,
        span: Span,
        is_send: bool,
        post: impl FnOnce(&mut Connection, Instant, Span) -> Result<TransferId, PostError>,
    ) -> Result<Result<u64, TransferError>, DriverError> {
        let id = self.begin(span, is_send, None, post)?;
        let mut guard = Borrowed {
            driver: self,
            id,
            region: span.region,
        };
        guard.wait()
    }
}

/// A Transfer of borrowed memory: over, and its name closed, when this goes.
struct Borrowed<'a, L: Lane> {
    driver: &'a mut Driver<L>,
    id: TransferId,
    region: RegionId,
}

impl<L: Lane> Borrowed<'_, L> {
    fn wait(&mut self) -> Result<Result<u64, TransferError>, DriverError> {
        let id = self.id;
        self.driver
            .wait(None, |driver| !driver.posted.contains_key(&id))?;
        let place = self.driver.completions.iter().position(|it| it.id == id);
        match place.and_then(|place| self.driver.completions.remove(place)) {
            Some(completion) => Ok(completion.result),
            None => Err(DriverError::Closed(
                self.driver.closed.unwrap_or(CloseReason::Local),
            )),
        }
    }
}

impl<L: Lane> Drop for Borrowed<'_, L> {
    fn drop(&mut self) {
        if self.driver.posted.remove(&self.id).is_some() {
            self.driver.core.cancel(self.driver.clock.now(), self.id);
        }
        self.driver.memory.close(self.region);
    }
}
