//! Queues the requests that users post on the peer's memory until they may begin.

use super::{MessageReceive, OneSided, RegionRequest};
use crate::context::{Context, Debt};
use crate::receiving::{Finished, Receiving};
use crate::request::{PostError, RegionName, Request, RequestKind, WorkFlags};
use crate::span::Span;
use crate::timers::Timer;
use crate::transfer::TransferId;
use zerolane_wire::Rights;

impl OneSided {
    /// Sends a request for a region of the peer by name.
    pub(crate) fn request_region(
        &mut self,
        cx: &mut Context,
        name: RegionName,
        rights: Rights,
    ) -> TransferId {
        let id = cx.new_id();
        self.region_requests.push(RegionRequest {
            id,
            name,
            rights,
            ask_at: cx.now,
        });
        cx.timers.set_earlier(Timer::Memory, cx.now);
        cx.owe(Debt::Peer);
        id
    }

    /// Queues a request on the peer's memory. It begins when the debts are settled, if it may.
    ///
    /// # Errors
    /// The place is outside the peer's address space, or the peer has no persistent memory.
    pub(crate) fn post(
        &mut self,
        cx: &mut Context,
        kind: RequestKind,
        flags: WorkFlags,
    ) -> Result<TransferId, PostError> {
        check_bounds(cx, &kind)?;
        if cx.peer.is_some_and(|peer| !peer.persistent) {
            return Err(PostError::Unsupported);
        }
        let id = cx.new_id();
        if !kind.is_notice() {
            self.last_work = Some(id);
        }
        self.queued.push_back(Request { id, flags, kind });
        cx.owe(Debt::Start);
        Ok(id)
    }

    /// Queues a receive of a message.
    pub(crate) fn post_receive(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        control: Span,
        payload: Option<Span>,
    ) -> TransferId {
        let id = cx.new_id();
        receiving.post_message(cx, id, payload.unwrap_or(Span::EMPTY));
        self.receives.push_back(MessageReceive {
            id,
            control,
            payload,
        });
        cx.owe(Debt::Ready);
        cx.owe(Debt::Peer);
        id
    }

    /// Fails the receives that no message will match, once everything the peer sent has arrived.
    pub(crate) fn finish_receives(&mut self, cx: &mut Context, receiving: &mut Receiving) {
        let is_executed = |it: Finished| self.expected().wrapping_sub(it.operation) as i32 >= 0;
        let is_over = receiving.finished().is_some_and(is_executed);
        if !is_over || !self.payloads.is_empty() || receiving.is_receiving_message() {
            return;
        }
        receiving.clear_messages();
        cx.fail_finished(self.receives.drain(..).map(|it| it.id));
    }

    /// The identifier of the oldest request that is or will be numbered.
    pub(super) fn oldest(&self) -> Option<TransferId> {
        let numbered = self.send_queue.oldest();
        numbered.or_else(|| self.queued.front().map(|request| request.id))
    }

    /// Cancels a request. An operation that already left may be executed all the same. False if `id` is no such
    /// request.
    pub(crate) fn cancel(&mut self, id: TransferId) -> bool {
        let waiting = self.queued.len() + self.receives();
        self.queued.retain(|request| request.id != id);
        self.receives.retain(|receive| receive.id != id);
        self.payloads.retain(|payload| payload.id != id);
        waiting != self.queued.len() + self.receives()
            || self.gets.remove(id).is_some()
            || self.send_queue.cancel(id)
            || self.forget_request(id)
    }

    pub(super) fn forget_request(&mut self, id: TransferId) -> bool {
        let before = self.region_requests.len();
        self.region_requests.retain(|it| it.id != id);
        before != self.region_requests.len()
    }
}

/// Checks that the request's place lies in the peer's address space. The peer checks the region's bounds.
fn check_bounds(cx: &Context, kind: &RequestKind) -> Result<(), PostError> {
    let (place, len) = match kind {
        RequestKind::Put { place, content, .. } => (place, content.len()),
        RequestKind::Get { place, span } => (place, span.len),
        RequestKind::Fetch { place, atomic } => (place, atomic.word.bytes().into()),
        RequestKind::Message { .. } | RequestKind::Immediate { .. } | RequestKind::Nothing => {
            return Ok(());
        }
    };
    let log2 = cx.peer_buffer_log2();
    let most = (u64::from(u32::MAX) << log2) | ((1 << log2) - 1);
    match place.address.checked_add(len) {
        Some(end) if end <= most => Ok(()),
        _ => Err(PostError::OutOfBounds),
    }
}
