//! Lets the peer operate on exported memory: checks, executes and confirms its operations, and delivers its messages.

mod atomics;
mod exports;
mod gets;
mod immediates;
mod messages;
mod sequence;
mod serve;

pub(crate) use self::exports::MESSAGES;
pub(crate) use self::serve::{IMMEDIATE, NOTHING, PAYLOAD};

use self::atomics::PendingAtomic;
use self::exports::Exports;
use self::gets::GetResponses;
use self::immediates::Immediates;
use self::messages::{AwaitedPayload, IncomingMessage, MessageReceive};
use self::sequence::{NotReady, Sequence};
use crate::context::{Context, Debt, Refusal};
use crate::limits::{self, MAX_DEFERRED_REGIONS, MAX_UNREAD};
use crate::receiving::Receiving;
use crate::request::{ExportAs, PostError, RemoteRegion};
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::{MemoryRegionAvailable, Operation, Reason, RequestMemoryRegion, Rights};

/// The peer's operations on memory of this end.
#[derive(Debug)]
pub(crate) struct Responder {
    exports: Exports,
    sequence: Sequence,
    responses: GetResponses,
    receives: VecDeque<MessageReceive>,
    payloads: Vec<AwaitedPayload>,
    immediates: Immediates,
    /// An announced put waits for room to show its immediate.
    puts_wait: bool,
    pending_atomic: Option<PendingAtomic>,
    /// The request of the last executed operation, as far as further operations may continue it.
    continued: Continued,
    /// Events polled but not read by the user.
    unread: usize,
    /// Operations of the peer wait, because the program has not taken the connection.
    defers: bool,
    /// Requests for regions that wait for that reason.
    deferred: Vec<RequestMemoryRegion>,
    /// Values to send: number, the Initiator's identifier, value.
    values: VecDeque<(u32, TransferId, u64)>,
    /// Bytes of operations executed since the last confirmation.
    fresh: u32,
    /// Bytes of operations, and of puts and messages that could be some, since that time.
    recent: (Instant, u64),
    /// The last State told the peer that operations may come as trains.
    says_trains: bool,
    /// One of the States did.
    told_of_trains: bool,
}

/// A request of several operations, all of them so far executed.
#[derive(Clone, Copy, Debug, Default)]
enum Continued {
    #[default]
    Nothing,
    /// Also one of a single operation: an immediate may follow it.
    Put(LastPut),
    /// A message whose payload follows.
    Message(IncomingMessage),
}

/// A put of numbered operations, as far as they were executed.
#[derive(Clone, Copy, Debug)]
struct LastPut {
    region: RemoteRegion,
    /// Bytes in place.
    placed: u64,
    /// Bytes that must follow.
    rest: u32,
}

impl Responder {
    pub(crate) fn new(seed: u32) -> Responder {
        Responder {
            exports: Exports::new(seed),
            sequence: Sequence::default(),
            responses: GetResponses::default(),
            receives: VecDeque::new(),
            payloads: vec![],
            immediates: Immediates::default(),
            puts_wait: false,
            pending_atomic: None,
            continued: Continued::Nothing,
            unread: 0,
            defers: false,
            deferred: vec![],
            values: VecDeque::new(),
            fresh: 0,
            recent: (Instant::ZERO, 0),
            says_trains: false,
            told_of_trains: false,
        }
    }

    /// All pending receives of messages.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        let receives = self.receives.iter().map(|receive| receive.id);
        let payloads = self.payloads.iter().map(|payload| payload.id);
        receives.chain(payloads).chain(self.incoming())
    }

    /// The receive of the message whose payload is arriving in operations.
    fn incoming(&self) -> Option<TransferId> {
        match &self.continued {
            Continued::Message(it) => Some(it.id),
            Continued::Nothing | Continued::Put(_) => None,
        }
    }

    /// Cancels a receive of a message. False if `id` is none.
    pub(crate) fn cancel(&mut self, id: TransferId) -> bool {
        let before = self.receives();
        if self.incoming() == Some(id) {
            self.continued = Continued::Nothing;
        }
        self.receives.retain(|receive| receive.id != id);
        self.payloads.retain(|payload| payload.id != id);
        before != self.receives()
    }

    /// Clears everything: the connection is over.
    pub(crate) fn clear(&mut self) {
        self.immediates.clear();
        self.responses.clear();
        self.values.clear();
        self.receives.clear();
        self.payloads.clear();
        self.continued = Continued::Nothing;
        self.deferred.clear();
    }

    /// Pending receives of messages.
    pub(crate) fn receives(&self) -> usize {
        self.receives.len() + self.payloads.len() + usize::from(self.incoming().is_some())
    }

    /// Number of the peer's operation that is expected next.
    pub(crate) fn expected(&self) -> u32 {
        self.sequence.expected()
    }

    /// Whether operations may come as trains, as the peer was told at some time.
    pub(crate) fn expects_trains(&self) -> bool {
        self.told_of_trains
    }

    /// Whether answers to Gets that are under congestion control wait.
    pub(crate) fn is_answering(&self) -> bool {
        self.responses.is_next_numbered().is_some()
    }

    /// Continues as if `number` operations had been executed before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.sequence.age(number);
    }

    pub(crate) fn assert_bounded(&self) {
        self.sequence.assert_bounded();
        self.exports.assert_bounded();
        assert!(self.values.len() <= limits::MAX_VALUES);
        assert!(self.immediates.len() <= limits::MAX_UNREAD);
        assert!(self.deferred.len() <= limits::MAX_DEFERRED_REGIONS);
        assert!(self.receives() <= 2 * limits::MAX_POSTED);
    }
}

/// Exports.
impl Responder {
    /// Lets the peer use `span`. Returns handle and Mx.
    pub(crate) fn export(
        &mut self,
        span: Span,
        rights: Rights,
        named: ExportAs,
    ) -> Result<(u32, u16), PostError> {
        self.exports.export(span, rights, named)
    }

    /// Ends an export, and refuses its waiting Gets. False if `handle` names none.
    pub(crate) fn revoke(&mut self, cx: &mut Context, handle: u32) -> bool {
        if self.exports.revoke(handle).is_none() {
            return false;
        }
        while let Some(reply) = self.responses.take_of(handle) {
            cx.refuse(reply.d_id, Refusal::because(Reason::Revoked));
        }
        true
    }

    pub(crate) fn on_request_region(&mut self, cx: &mut Context, it: &RequestMemoryRegion) {
        if self.defers {
            let is_new = self.deferred.iter().all(|kept| kept.s_id != it.s_id);
            if is_new && self.deferred.len() < MAX_DEFERRED_REGIONS {
                self.deferred.push(*it);
            }
            return;
        }
        let found = self.exports.open(&it.name, it.rights);
        let (handle, mx, length) = match found {
            Ok(found) if it.length <= found.2 => found,
            Ok(_) => return cx.refuse(it.s_id, Refusal::because(Reason::OutOfBounds)),
            Err(reason) => return cx.refuse(it.s_id, Refusal::because(reason)),
        };
        cx.push_control(Operation::MemoryRegionAvailable(MemoryRegionAvailable {
            rights: it.rights,
            mx,
            bufx: 0,
            offset: 0,
            d_id: it.s_id,
            handle,
            length,
        }));
    }
}

/// What the program has not exported, posted or read.
impl Responder {
    /// Sets whether the peer's operations wait until the program has taken the connection.
    pub(crate) fn defer(&mut self, cx: &mut Context, defers: bool) {
        self.defers = defers;
        if defers {
            return;
        }
        for it in core::mem::take(&mut self.deferred) {
            self.on_request_region(cx, &it);
        }
        if self.waits_for_room() {
            cx.owe(Debt::Ready);
        }
    }

    /// Sets the number of events that the user has not read, beyond those not polled. True if an operation waits for
    /// room.
    pub(crate) fn set_unread(&mut self, cx: &mut Context, unread: usize) -> bool {
        self.unread = unread;
        // Called at every turn of a polling user: does nothing unless an operation waits.
        let waits = self.waits_for_room();
        if waits {
            cx.owe(Debt::Ready);
        }
        waits
    }

    /// Whether an operation, or an announced put, found no room.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.puts_wait || self.sequence.not_ready.is_some()
    }

    /// Whether messages and immediates wait: the program has not taken the connection, or too many events are unread.
    fn is_unread(&self, cx: &Context) -> bool {
        self.defers || cx.events.len() + self.unread >= MAX_UNREAD
    }

    /// Requests the operation that found no room again, if there is room now.
    pub(crate) fn ready_again(&mut self, cx: &mut Context, receiving: &mut Receiving) {
        self.receive_waiting(cx, receiving);
        let ready = match self.sequence.not_ready {
            None => false,
            Some(NotReady::Receive) => !self.receives.is_empty(),
            Some(NotReady::Room) => !self.defers && cx.events.len() + self.unread < MAX_UNREAD / 2,
        };
        if ready {
            self.sequence.not_ready = None;
            match self.execute_held(cx, receiving) {
                true => self.sequence.ask_ack(),
                false => self.ask_from_expected(cx, receiving),
            }
        }
    }
}
