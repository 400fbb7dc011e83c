//! Runs one-sided operations in both roles: as Initiator on the peer's memory, as Responder for exported memory.
//!
//! An operation that fits one datagram is numbered and sent unannounced. A longer put is announced and granted as a
//! Transfer into the peer's region; a longer get is granted by its Gets. Numbered operations keep their order; longer
//! puts overlap with them and with each other. Operations that must observe all earlier puts are ordered here:
//! immediates by the Responder; messages and gets by the Initiator, which waits.

mod answers;
mod bare;
mod exports;
mod get;
mod gets;
mod immediates;
mod operations;
mod outcome;
mod post;
mod repeat;
mod responder;
mod send_queue;
mod serve;
mod start;

use self::exports::Exports;
use self::gets::{GetResponses, PendingGets};
use self::immediates::Immediates;
use self::responder::Responder;
use self::send_queue::SendQueue;
use crate::context::Context;
use crate::limits;
use crate::request::{AtomicRequest, RegionName, Request, RequestKind};
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::{TransferId, is_older};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::Rights;

/// Mx of an operation to the messages that consists of its number alone.
const NOTHING: u16 = u16::MAX;
/// Mx of an operation to the messages that is the immediate of the put before it.
const IMMEDIATE: u16 = u16::MAX - 1;

/// A request for a region by name.
#[derive(Clone, Copy, Debug)]
struct RegionRequest {
    id: TransferId,
    name: RegionName,
    rights: Rights,
    ask_at: Instant,
}

/// A posted receive of a message.
#[derive(Clone, Copy, Debug)]
struct MessageReceive {
    id: TransferId,
    control: Span,
    payload: Option<Span>,
}

/// A message whose payload is not yet announced.
#[derive(Clone, Copy, Debug)]
struct AwaitedPayload {
    number: u32,
    id: TransferId,
    /// The sender's identifier.
    peer: u32,
    span: Span,
    control: u32,
    /// A caller at the sender waits for its end.
    awaited: bool,
}

/// The atomic operation that the lane must execute now.
#[derive(Clone, Copy, Debug)]
struct PendingAtomic {
    order: AtomicRequest,
    id: TransferId,
}

/// State of one-sided operations.
#[derive(Debug)]
pub(crate) struct OneSided {
    // Initiator.
    /// Requests that have not begun.
    queued: VecDeque<Request>,
    /// The last request that is no notice ([`RequestKind::is_notice`]).
    last_work: Option<TransferId>,
    send_queue: SendQueue,
    gets: PendingGets,
    region_requests: Vec<RegionRequest>,
    // Responder.
    exports: Exports,
    responder: Responder,
    responses: GetResponses,
    receives: VecDeque<MessageReceive>,
    payloads: Vec<AwaitedPayload>,
    immediates: Immediates,
    /// An announced put waits for room to show its immediate.
    puts_wait: bool,
    pending_atomic: Option<PendingAtomic>,
    /// Bytes that must follow, if the last executed operation was a put, or part of one with all parts before it
    /// executed.
    to_follow: Option<u32>,
    /// Events polled but not read by the user.
    unread: usize,
    /// Values to send: number, the Initiator's identifier, value.
    values: VecDeque<(u32, TransferId, u64)>,
}

impl OneSided {
    pub(crate) fn new(seed: u32) -> OneSided {
        OneSided {
            queued: VecDeque::new(),
            last_work: None,
            send_queue: SendQueue::default(),
            gets: PendingGets::default(),
            region_requests: vec![],
            exports: Exports::new(seed),
            responder: Responder::default(),
            responses: GetResponses::default(),
            receives: VecDeque::new(),
            payloads: vec![],
            immediates: Immediates::default(),
            puts_wait: false,
            pending_atomic: None,
            to_follow: None,
            values: VecDeque::new(),
            unread: 0,
        }
    }

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
        let receives = self.receives.iter().map(|receive| receive.id);
        let payloads = self.payloads.iter().map(|payload| payload.id);
        queued
            .chain(self.send_queue.ids())
            .chain(self.gets.ids())
            .chain(region_requests)
            .chain(receives)
            .chain(payloads)
    }

    /// Clears everything: the connection is over.
    pub(crate) fn clear(&mut self) {
        self.queued.clear();
        self.send_queue.clear();
        self.gets.clear();
        self.region_requests.clear();
        self.immediates.clear();
        self.responses.clear();
        self.values.clear();
        self.receives.clear();
        self.payloads.clear();
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

    /// Pending receives of messages.
    pub(crate) fn receives(&self) -> usize {
        self.receives.len() + self.payloads.len()
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

    /// Number of the peer's operation that is expected next.
    pub(crate) fn expected(&self) -> u32 {
        self.responder.expected()
    }

    /// Whether answers to Gets that are under congestion control wait.
    pub(crate) fn is_answering(&self) -> bool {
        self.responses.is_next_numbered().is_some()
    }

    /// Continues as if `number` operations had been executed in both directions before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.send_queue.age(number);
        self.responder.age(number);
    }

    pub(crate) fn assert_bounded(&self) {
        self.send_queue.assert_bounded();
        self.responder.assert_bounded();
        self.exports.assert_bounded();
        assert!(self.values.len() <= limits::MAX_VALUES);
        assert!(self.immediates.len() <= limits::MAX_UNREAD);
        assert!(self.queued.len() <= limits::MAX_POSTED);
        assert!(self.region_requests.len() <= limits::MAX_POSTED);
        assert!(self.receives.len() + self.payloads.len() <= 2 * limits::MAX_POSTED);
    }
}
