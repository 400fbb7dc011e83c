//! Operates on the peer's memory: puts, gets, atomic operations, messages.
//!
//! A request waits in the queue until order and room permit (`post.rs`). It is then numbered in the send queue, with the
//! bytes that it copied; or announced as a Transfer; or asked as a Get.

mod gets;
mod messages;
mod operations;
mod outcome;
mod post;
mod repeat;
mod send_queue;

use self::gets::PendingGets;
use self::send_queue::SendQueue;
use crate::context::Context;
use crate::limits;
use crate::request::{RegionName, Request, RequestKind};
use crate::time::Instant;
use crate::transfer::{TransferId, is_older};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use zerolane_wire::Rights;

/// A request for a region by name.
#[derive(Clone, Copy, Debug)]
struct RegionRequest {
    id: TransferId,
    name: RegionName,
    rights: Rights,
    ask_at: Instant,
}

/// The requests of this end on the peer's memory.
#[derive(Debug, Default)]
pub(crate) struct Initiator {
    /// Requests that have not begun.
    queued: VecDeque<Request>,
    /// The last request that is no notice ([`RequestKind::is_notice`]).
    last_work: Option<TransferId>,
    send_queue: SendQueue,
    gets: PendingGets,
    region_requests: Vec<RegionRequest>,
    /// The last operation that asked for a State.
    asked: Option<u32>,
    /// The peer takes operations in trains.
    takes_trains: bool,
    /// Until then the payload of messages is no operation, because the peer was late to post a receive for one.
    payload_refused_until: Instant,
}

impl Initiator {
    /// Applies the peer's capabilities, once known.
    pub(crate) fn open(&mut self, cx: &Context) {
        self.send_queue.share(cx.sends_frames());
    }

    /// Whether a request to the peer is pending. Receives of messages ask the peer for nothing.
    pub(crate) fn is_working(&self) -> bool {
        !self.queued.is_empty()
            || !self.send_queue.is_empty()
            || !self.gets.is_empty()
            || !self.region_requests.is_empty()
    }

    /// Whether more than half a datagram of `room` bytes was sent or requested repeatedly, and did not arrive.
    pub(crate) fn is_stuck(&self, room: u32) -> bool {
        self.send_queue.is_stuck(room) || self.gets.is_stuck(room)
    }

    /// Whether any request but notices is pending.
    pub(crate) fn has_work(&self) -> bool {
        let is_open = |last| self.oldest().is_some_and(|oldest| !is_older(last, oldest));
        !self.gets.is_empty()
            || !self.region_requests.is_empty()
            || self.last_work.is_some_and(is_open)
    }

    /// The identifier of the oldest request that is or will be numbered.
    pub(super) fn oldest(&self) -> Option<TransferId> {
        let numbered = self.send_queue.oldest();
        numbered.or_else(|| self.queued.front().map(|request| request.id))
    }

    /// Number of the first small operation that the peer is not known to have executed, and the count of other pending
    /// requests.
    pub(crate) fn unconfirmed(&self) -> (u32, usize) {
        let others = self.queued.len() + self.gets.len() + self.region_requests.len();
        (self.send_queue.unconfirmed(), others)
    }

    /// All pending requests that are no Transfers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        let queued = self.queued.iter().map(|request| request.id);
        let region_requests = self.region_requests.iter().map(|request| request.id);
        queued
            .chain(self.send_queue.ids())
            .chain(self.gets.ids())
            .chain(region_requests)
    }

    /// Cancels a request. An operation that already left may be executed all the same. False if `id` is no such
    /// request.
    pub(crate) fn cancel(&mut self, id: TransferId) -> bool {
        let waiting = self.queued.len();
        self.queued.retain(|request| request.id != id);
        waiting != self.queued.len()
            || self.gets.remove(id).is_some()
            || self.send_queue.cancel(id)
            || self.forget_request(id)
    }

    pub(super) fn forget_request(&mut self, id: TransferId) -> bool {
        let before = self.region_requests.len();
        self.region_requests.retain(|it| it.id != id);
        before != self.region_requests.len()
    }

    /// Clears everything: the connection is over.
    pub(crate) fn clear(&mut self) {
        self.queued.clear();
        self.send_queue.clear();
        self.gets.clear();
        self.region_requests.clear();
    }

    /// Whether a small operation waits to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.send_queue.has_unsent()
    }

    /// Requests that have not begun.
    pub(crate) fn waiting(&self) -> usize {
        self.queued.len()
    }

    /// Pending requests for regions by name.
    pub(crate) fn requested(&self) -> usize {
        self.region_requests.len()
    }

    /// Whether the peer executed operation `number`.
    pub(crate) fn has_executed(&self, number: u32) -> bool {
        self.send_queue.has_executed(number)
    }

    /// The number of the next operation, behind all messages; `None` while a message has not begun.
    pub(crate) fn number_behind_messages(&self) -> Option<u32> {
        let is_message = |it: &Request| matches!(it.kind, RequestKind::Message { .. });
        let waits = self.queued.iter().any(is_message);
        (!waits).then(|| self.send_queue.next_number())
    }

    /// The number of the next operation.
    pub(crate) fn next_number(&self) -> u32 {
        self.send_queue.next_number()
    }

    /// Continues as if `number` operations had been executed before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.send_queue.age(number);
    }

    pub(crate) fn assert_bounded(&self) {
        self.send_queue.assert_bounded();
        assert!(self.queued.len() <= limits::MAX_POSTED);
        assert!(self.region_requests.len() <= limits::MAX_POSTED);
    }
}
