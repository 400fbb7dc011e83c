//! Sends and receives messages, whose control is copied, and opens regions by name.

use super::post::{Report, RequestInfo};
use super::{Completion, Driver, DriverError, NotPosted};
use crate::lane::Lane;
use crate::memory::{Memory, Region, uninit};
use std::mem::MaybeUninit;
use zerolane_core::limits::MAX_INLINE;
use zerolane_core::{
    PostError, RegionName, RemoteRegion, Span, TransferError, TransferId, WorkFlags, WorkRequest,
};
use zerolane_wire::Rights;

impl<L: Lane> Driver<L> {
    /// Posts a message: up to 128 bytes of control, which are copied, and a payload of any length.
    ///
    /// # Errors
    /// See [`PostError`]. The payload comes back.
    pub fn post_message(
        &mut self,
        control: &[u8],
        payload: Option<Memory>,
        flags: WorkFlags,
        report: Report,
    ) -> Result<TransferId, NotPosted<Option<Memory>>> {
        let refused = |reason, memory| NotPosted { reason, memory };
        // The payload returns when the peer confirms it. No caller waits for that, so the peer's answer may go first.
        let awaited = flags.awaited && payload.is_none();
        let flags = WorkFlags { awaited, ..flags };
        let request = WorkRequest::Message { control, flags };
        match payload {
            Some(payload) => self
                .post_source(request, report, payload)
                .map_err(|it| refused(it.reason, Some(it.memory))),
            None => self
                .post_bare(request, report)
                .map_err(|reason| refused(reason, None)),
        }
    }

    /// Posts a message with a copy of `payload`, at most [`MAX_INLINE`] bytes: the caller may reuse it at once.
    ///
    /// # Errors
    /// See [`PostError`].
    ///
    /// # Panics
    /// `payload` is longer.
    pub fn post_message_inline(
        &mut self,
        control: &[u8],
        payload: &[u8],
        flags: WorkFlags,
        report: Report,
    ) -> Result<TransferId, PostError> {
        let len = payload.len();
        assert!(len <= MAX_INLINE, "{len} bytes inline");
        let request = WorkRequest::Message { control, flags };
        if len == 0 {
            return self.post_bare(request, report);
        }
        let info = RequestInfo {
            copied: true,
            ..RequestInfo::of(&request, report)
        };
        // A payload is a Transfer, which is sent again from memory until the peer confirms it.
        let copy = Memory::from(Region::from_vec(payload.to_vec()));
        self.post_owned(request, info, copy).map_err(|it| it.reason)
    }

    /// Posts a receive of a message, its payload into `payload`.
    ///
    /// # Errors
    /// See [`PostError`]. The region comes back.
    pub fn post_message_receive(
        &mut self,
        report: Report,
        payload: Option<Region>,
    ) -> Result<TransferId, NotPosted<Option<Region>>> {
        let refused = |reason, memory| NotPosted { reason, memory };
        let Some((request, info)) = self.message_receive(report) else {
            return Err(refused(PostError::Full, payload));
        };
        let posted = match payload {
            Some(region) => self
                .post_owned(request, info, region)
                .map_err(|it| refused(it.reason, Some(it.memory))),
            None => match self.post(request, Span::EMPTY) {
                Ok(id) => {
                    self.remember(id, info);
                    Ok(id)
                }
                Err(reason) => Err(refused(reason, None)),
            },
        };
        if posted.is_err() {
            self.receives.controls.give_back(info.control);
        }
        posted
    }

    /// Prepares a receive of a message, with a slot for its control. `None`: the system has no memory.
    fn message_receive(&mut self, report: Report) -> Option<(WorkRequest<'static>, RequestInfo)> {
        let slot = self.receives.controls.take(&mut self.memory)?;
        let request = WorkRequest::ReceiveMessage {
            control: self.receives.controls.span(slot),
        };
        let info = RequestInfo {
            control: Some(slot),
            ..RequestInfo::of(&request, report)
        };
        Some((request, info))
    }

    /// Sends a message with borrowed payload, and waits until the peer has it.
    ///
    /// # Errors
    /// The connection failed, or see [`PostError`]; a failure of the message is in the completion.
    pub fn send_message(
        &mut self,
        control: &[u8],
        payload: &[u8],
    ) -> Result<Completion, DriverError> {
        let flags = WorkFlags::default();
        self.lend_source(WorkRequest::Message { control, flags }, payload)
    }

    /// Receives a message, its payload into `payload`, and waits for it.
    ///
    /// # Errors
    /// The connection failed, or see [`PostError`]; a failure of the message is in the completion.
    pub fn receive_message(&mut self, payload: &mut [u8]) -> Result<Completion, DriverError> {
        self.receive_message_uninit(uninit::to_write(payload))
    }

    /// Does the same with uninitialised bytes, and initialises those that the completion counts.
    ///
    /// # Errors
    /// As [`Driver::receive_message`].
    pub fn receive_message_uninit(
        &mut self,
        payload: &mut [MaybeUninit<u8>],
    ) -> Result<Completion, DriverError> {
        let received = self.message_receive(Report::default());
        let (request, info) = received.ok_or(PostError::Full)?;
        let received = self.lend_target_as(request, info, payload);
        if let Err(DriverError::Post(_)) = received {
            self.receives.controls.give_back(info.control);
        }
        received
    }

    /// Opens a region of the peer by name, and waits for the answer.
    ///
    /// # Errors
    /// The inner error is the peer's refusal, the outer one is the connection's.
    pub fn open_region(
        &mut self,
        name: RegionName,
        rights: Rights,
    ) -> Result<Result<RemoteRegion, TransferError>, DriverError> {
        let completion = self.complete(WorkRequest::OpenRegion { name, rights })?;
        match completion.result {
            Err(error) => Ok(Err(error)),
            Ok(_) => completion.region.map(Ok).ok_or_else(|| self.closed_error()),
        }
    }
}
