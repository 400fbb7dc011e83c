//! Carries out requests on borrowed memory, which end before the call returns.

use super::direct::{AtOnce, Local};
use super::post::{Report, RequestInfo};
use super::{Completion, Driver, DriverError, OnWake};
use crate::lane::Lane;
use crate::memory::registry::EntryKind;
use crate::memory::uninit;
use std::mem::MaybeUninit;
use std::time::Duration;
#[cfg(doc)]
use zerolane_core::PostError;
use zerolane_core::{CloseReason, RegionId, Span, TransferId, WorkRequest};

impl<L: Lane> Driver<L> {
    /// Carries out a request that reads `data`, and waits for its end.
    ///
    /// # Errors
    /// The connection failed, or see [`PostError`]; a failure of the request is in the completion.
    ///
    /// # Panics
    /// The request writes.
    pub fn lend_source(
        &mut self,
        request: WorkRequest<'_>,
        data: &[u8],
    ) -> Result<Completion, DriverError> {
        assert!(!request.writes(), "{request:?} writes");
        let info = RequestInfo::of(&request, Report::default());
        match self.access(&request, info.report.signalled, Local::Source(&[data])) {
            Some(AtOnce::Done(done)) => return Ok(Completion::of_direct(done, info, None)),
            Some(AtOnce::Placed(len)) => {
                let (id, _) = self.post_placed(request, info, len)?;
                return self.await_request(id);
            }
            None => {}
        }
        // SAFETY: the borrow of `data` lasts until this function returns, and `finish` closes the entry before that on
        // every path.
        let span = unsafe {
            let kind = EntryKind::Borrowed { writable: false };
            self.memory.open(data.as_ptr().cast_mut(), data.len(), kind)
        };
        self.carry_out(request, info, span)
    }

    /// Carries out a request that writes `buffer`, and waits for its end.
    ///
    /// # Errors
    /// As [`Driver::lend_source`].
    ///
    /// # Panics
    /// The request reads.
    pub fn lend_target(
        &mut self,
        request: WorkRequest<'_>,
        buffer: &mut [u8],
    ) -> Result<Completion, DriverError> {
        self.lend_target_uninit(request, uninit::to_write(buffer))
    }

    /// Does the same with uninitialised bytes, and initialises those that the completion counts.
    ///
    /// # Errors
    /// As [`Driver::lend_source`].
    ///
    /// # Panics
    /// The request reads.
    pub fn lend_target_uninit(
        &mut self,
        request: WorkRequest<'_>,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<Completion, DriverError> {
        self.lend_target_as(
            request,
            RequestInfo::of(&request, Report::default()),
            buffer,
        )
    }

    pub(super) fn lend_target_as(
        &mut self,
        request: WorkRequest<'_>,
        info: RequestInfo,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<Completion, DriverError> {
        assert!(request.writes(), "{request:?} reads");
        let into = Local::Target(buffer);
        if let Some(AtOnce::Done(done)) = self.access(&request, info.report.signalled, into) {
            return Ok(Completion::of_direct(done, info, None));
        }
        // SAFETY: as in `lend_source`, and `buffer` is borrowed exclusively.
        let span = unsafe {
            let kind = EntryKind::Borrowed { writable: true };
            self.memory
                .open(buffer.as_mut_ptr().cast(), buffer.len(), kind)
        };
        self.carry_out(request, info, span)
    }

    /// Posts borrowed memory, waits for the end, and closes the memory's entry on every path.
    fn carry_out(
        &mut self,
        request: WorkRequest<'_>,
        info: RequestInfo,
        span: Span,
    ) -> Result<Completion, DriverError> {
        let (id, _) = self.post_open(request, info, span)?;
        let guard = Borrowed {
            driver: self,
            id,
            region: span.region,
        };
        guard.driver.await_request(id)
    }

    /// Carries out a request without memory, and waits for its end.
    ///
    /// # Errors
    /// As [`Driver::lend_source`].
    pub fn complete(&mut self, request: WorkRequest<'_>) -> Result<Completion, DriverError> {
        let info = RequestInfo::of(&request, Report::default());
        if let Some(AtOnce::Done(done)) = self.access(&request, info.report.signalled, Local::None)
        {
            return Ok(Completion::of_direct(done, info, None));
        }
        let id = self.post_bare(request, Report::default())?;
        self.await_request(id)
    }

    /// Sets how long a call may wait for the end of its request; there is no limit unless set. A request that takes
    /// longer is cancelled.
    pub fn set_request_timeout(&mut self, timeout: Option<Duration>) {
        self.request_timeout = timeout;
    }

    /// That limit.
    pub fn request_timeout(&self) -> Option<Duration> {
        self.request_timeout
    }

    /// Waits for request `id` and takes its completion; others stay in the queue. A wake does not end the wait.
    pub(super) fn await_request(&mut self, id: TransferId) -> Result<Completion, DriverError> {
        let timeout = self.request_timeout;
        let over = |driver: &Driver<L>| !driver.posted.contains_key(&id);
        self.wait(timeout, OnWake::GoOn, over)?;
        if self.abandon(id) {
            return Err(DriverError::TimedOut(timeout.unwrap_or_default()));
        }
        let completion = self.completions.take(id);
        self.report_unread();
        completion.ok_or_else(|| self.closed_error())
    }

    pub(super) fn closed_error(&self) -> DriverError {
        DriverError::Closed(self.closed.unwrap_or(CloseReason::Local))
    }
}

impl<L: Lane> Driver<L> {
    /// Cancels request `id`, for whose end no call waits any more. False if it is over.
    fn abandon(&mut self, id: TransferId) -> bool {
        let Some(posted) = self.posted.get_mut(&id) else {
            return false;
        };
        posted.abandoned = true;
        self.cancel(id);
        self.posted.remove(&id);
        true
    }
}

/// A Transfer of borrowed memory. Dropping this ends the Transfer and closes its entry.
struct Borrowed<'a, L: Lane> {
    driver: &'a mut Driver<L>,
    id: TransferId,
    region: RegionId,
}

impl<L: Lane> Drop for Borrowed<'_, L> {
    fn drop(&mut self) {
        self.driver.abandon(self.id);
        self.driver.lane.recall(self.region);
        self.driver.memory.close(self.region);
    }
}
