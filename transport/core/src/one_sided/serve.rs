//! Executes the peer's operations on exported memory, and delivers its messages.

use super::exports::{MESSAGES, Named};
use super::responder::{NotReady, SequenceCheck};
use super::{AwaitedPayload, IMMEDIATE, NOTHING, OneSided, PendingAtomic};
use crate::context::{Context, Debt, Refusal};
use crate::counters::DropReason;
use crate::event::{Event, TransferError};
use crate::limits::{MAX_CONTROL, MAX_UNREAD};
use crate::receiving::{Origin, Placement, Receiving};
use crate::request::{Atomic, AtomicRequest, ExportAs, PostError};
use crate::sending::Sending;
use crate::span::Span;
use crate::timers::Timer;
use crate::transfer::TransferId;
use zerolane_wire::{
    Answer, FetchOp, Flags, Header, Immediate, MemoryRegionAvailable, MemoryState, Operation,
    Place, Reason, RequestAnswer, RequestMemoryRegion, RequestToSend, Rights,
};

/// Exports.
impl OneSided {
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

    /// The memory that the peer names, if it has the rights.
    pub(super) fn check(
        &self,
        cx: &Context,
        place: Named,
        len: u64,
        right: Rights,
    ) -> Result<Span, Reason> {
        self.exports.check(place, len, right, cx.buffer_log2())
    }

    pub(crate) fn on_request_region(&self, cx: &mut Context, it: &RequestMemoryRegion) {
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

    /// Takes an announced put: receives it at once if the rights permit and there is room for its immediate.
    pub(crate) fn on_put_announced(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        place: Place,
        immediate: Option<Immediate>,
        rts: &RequestToSend,
    ) {
        cx.owe(Debt::Match);
        let named = Named {
            handle: place.handle,
            mx: place.mx,
            bufx: place.bufx,
            offset: place.offset,
        };
        let span = match self.check(cx, named, rts.length, Rights::WRITE) {
            Ok(span) => span,
            Err(reason) => {
                cx.owe(Debt::Show);
                return receiving.refuse_announcement(cx, rts, Refusal::because(reason));
            }
        };
        if let Some(immediate) = immediate {
            if !self.has_room_to_show(cx) {
                self.puts_wait = true;
                return cx.answer_later(rts.s_id);
            }
            self.immediates.push(rts.sequence, immediate);
        }
        let (id, origin) = (cx.new_id(), Origin::Region(place.handle));
        receiving.begin(cx, id, span, rts, origin);
    }

    /// Whether another immediate can be stored until its put is placed. Numbered operations may use less room, so that
    /// announced puts never wait for operations that wait for them.
    fn has_room_to_show(&self, cx: &Context) -> bool {
        cx.events.len() + self.unread + self.immediates.len() < MAX_UNREAD
    }

    /// Receives waiting puts as far as there is room for their immediates.
    fn receive_waiting(&mut self, cx: &mut Context, receiving: &mut Receiving) {
        while self.puts_wait && self.has_room_to_show(cx) {
            match receiving.waiting_put() {
                Some((place, immediate, rts)) => {
                    self.on_put_announced(cx, receiving, place, immediate, &rts);
                }
                None => self.puts_wait = false,
            }
        }
    }

    /// Shows the immediates of placed puts, in order.
    pub(crate) fn show_immediates(&mut self, cx: &mut Context, receiving: &Receiving) {
        self.immediates.update(receiving);
        let executed = self.responder.expected();
        while let Some(value) = self.immediates.take(receiving, executed) {
            cx.events.push_back(Event::Immediate { value });
        }
    }

    /// An operation of the peer was executed: an immediate may follow it.
    fn executed(&mut self, cx: &mut Context) {
        self.to_follow = None;
        if !self.immediates.is_empty() {
            cx.owe(Debt::Show);
        }
    }
}

/// Numbered operations: executed once, in order.
impl OneSided {
    /// Takes Data for an exported region, or a message.
    pub(crate) fn on_put(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        receiving: &mut Receiving,
        header: &Header,
        len: u32,
    ) -> Result<Placement, DropReason> {
        // Payload granted to a large put is identified by its Block, not by the handle.
        self.on_piggyback(cx, sending, header.param);
        let ask_ack = header.flags.contains(Flags::SEND_STATE);
        self.let_through(cx, header.sync, ask_ack)?;
        let outcome = match (header.d_id, header.b_id) {
            (MESSAGES, NOTHING) if len == 0 => Ok(Placement::Store(Span::EMPTY)),
            (MESSAGES, IMMEDIATE) if len == 0 => self.take_immediate(cx, receiving, header),
            (MESSAGES, _) => self.take_message(cx, receiving, header, len),
            _ => self.take_put(cx, header, len),
        };
        let placement = self.report_refusal(cx, header.s_id, outcome)?;
        cx.counters.bytes_received += u64::from(len);
        cx.unnumbered += u64::from(len);
        let put = header.d_id != MESSAGES && self.is_unbroken(header, len);
        self.note_executed(cx);
        self.to_follow = put.then_some(rest(header));
        Ok(placement)
    }

    /// Reports to the peer if its operation `id`, whose turn it is, was not executed.
    pub(super) fn report_refusal<T>(
        &mut self,
        cx: &mut Context,
        id: TransferId,
        outcome: Result<T, Nak>,
    ) -> Result<T, DropReason> {
        outcome.map_err(|nak| match nak {
            Nak::NotReady(why) => {
                self.responder.not_ready = Some(why);
                let why = Refusal::because(Reason::NotReady);
                answer_numbered(cx, id, Answer::Later(why.reason), why);
                DropReason::Limit
            }
            Nak::Refused(why) => {
                self.refuse_numbered(cx, id, why);
                DropReason::NoGrant
            }
        })
    }

    /// The operation whose turn it is was executed.
    pub(super) fn note_executed(&mut self, cx: &mut Context) {
        self.responder.executed(cx.now);
        self.executed(cx);
        self.owe_confirmation(cx);
    }

    /// Passes the operation whose turn it is, and handles all others.
    pub(super) fn let_through(
        &mut self,
        cx: &mut Context,
        number: u32,
        ask_ack: bool,
    ) -> Result<(), DropReason> {
        match self.responder.admit(cx.now, number, ask_ack) {
            SequenceCheck::Expected => Ok(()),
            SequenceCheck::Duplicate => Err(DropReason::Duplicate),
            SequenceCheck::Refused(id, why) => {
                answer_numbered(cx, id, Answer::Refused(why.reason), why);
                Err(DropReason::Early)
            }
            SequenceCheck::Ahead => {
                let rtt = cx.recovery.rtt().unwrap_or_default();
                if self.responder.ask(cx.now, ask_ack, rtt) {
                    self.ask_from_expected(cx);
                }
                Err(DropReason::Early)
            }
        }
    }

    /// Whether a refusal is unconfirmed: it is the answer to every operation meanwhile.
    pub(super) fn is_refusing(&self) -> bool {
        self.responder.is_refusing()
    }

    /// Requests all operations from the expected one on.
    fn ask_from_expected(&self, cx: &mut Context) {
        let expected = self.responder.expected();
        let resend = true;
        cx.push_control(Operation::MemoryState(MemoryState { expected, resend }));
    }

    fn refuse_numbered(&mut self, cx: &mut Context, id: TransferId, why: Refusal) {
        self.responder.refuse(id, why);
        answer_numbered(cx, id, Answer::Refused(why.reason), why);
    }

    fn take_put(&mut self, cx: &mut Context, header: &Header, len: u32) -> Result<Placement, Nak> {
        // A put of several operations is checked as a whole before any part is placed.
        let whole = u64::from(len) + u64::from(rest(header));
        let checked = self.check(cx, named(header), whole, Rights::WRITE);
        let checked = checked.map_err(|reason| Nak::Refused(Refusal::because(reason)))?;
        let span = checked.part(0, len.into());
        if header.flags.contains(Flags::INTERRUPT) && self.is_unbroken(header, len) {
            self.show(cx, header, self.immediates.precede(header.sync), None)?;
        }
        Ok(Placement::Store(span))
    }

    /// The immediate of the put before it, which follows puts that are Transfers.
    fn take_immediate(
        &mut self,
        cx: &mut Context,
        receiving: &Receiving,
        header: &Header,
    ) -> Result<Placement, Nak> {
        let announced = header.bufx;
        let waits =
            self.immediates.precede(header.sync) || !receiving.are_puts_over_before(announced);
        // Otherwise that put was cancelled.
        if self.to_follow == Some(0) {
            self.show(cx, header, waits, Some(announced))?;
        }
        Ok(Placement::Store(Span::EMPTY))
    }

    /// Shows the immediate of a numbered operation, now or, if it `waits`, behind the puts that it follows.
    fn show(
        &mut self,
        cx: &mut Context,
        header: &Header,
        waits: bool,
        announced: Option<u32>,
    ) -> Result<(), Nak> {
        let (number, value) = (header.sync, header.b_num);
        if self.is_unread(cx) || waits && !self.has_room_to_show(cx) {
            return Err(Nak::NotReady(NotReady::Room));
        }
        match waits {
            true => self.immediates.push_numbered(number, value, announced),
            false => cx.events.push_back(Event::Immediate { value }),
        }
        Ok(())
    }

    /// Whether all earlier parts of this operation's put were executed: parts of a cancelled put may be missing.
    fn is_unbroken(&self, header: &Header, len: u32) -> bool {
        let whole = u64::from(len) + u64::from(rest(header));
        let followed = self.to_follow.map(u64::from) == Some(whole);
        !header.flags.contains(Flags::CONTINUES) || followed
    }

    /// The Initiator knows the outcome of operation `number`.
    pub(crate) fn on_outcome_known(
        &mut self,
        cx: &mut Context,
        number: u32,
    ) -> Result<(), DropReason> {
        let expected = self.responder.expected();
        if !self.responder.outcome_known(cx.now, number) {
            return Err(DropReason::Duplicate);
        }
        // A refusal ends its operation; a value belongs to an earlier one, perhaps not the last.
        if self.responder.expected() != expected {
            self.executed(cx);
        }
        self.owe_confirmation(cx);
        Ok(())
    }

    fn owe_confirmation(&mut self, cx: &mut Context) {
        if let Some(at) = self.responder.due() {
            cx.timers.set(Timer::DelayedAck, at);
        }
    }

    /// Confirms the peer's operations with the next departing operation.
    pub(crate) fn confirm_now(&mut self) {
        self.responder.ask_ack();
    }

    /// The confirmation that leaves now, if one is due.
    pub(crate) fn next_confirmation(&mut self, cx: &mut Context) -> bool {
        if cx.confirmed_below.take() == Some(self.responder.expected()) {
            self.on_confirmation_left(cx);
        }
        if !self.responder.is_due(cx.now) {
            return false;
        }
        self.responder.confirmed();
        cx.timers.stop(Timer::DelayedAck);
        let expected = self.responder.expected();
        let resend = false;
        cx.push_control(Operation::MemoryState(MemoryState { expected, resend }));
        true
    }
}

/// Messages.
impl OneSided {
    pub(super) fn take_message(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        header: &Header,
        len: u32,
    ) -> Result<Placement, Nak> {
        if self.is_unread(cx) {
            return Err(Nak::NotReady(NotReady::Room));
        }
        let next = self.receives.front();
        let &it = next.ok_or(Nak::NotReady(NotReady::Receive))?;
        let length = header.wide();
        let room = it.payload.map_or(0, |span| span.len);
        self.receives.pop_front();
        let fits = len <= MAX_CONTROL && u64::from(len) <= it.control.len && length <= room;
        receiving.meet_message(header.sync, fits && length > 0);
        if !fits {
            // Both ends fail, as when a Transfer exceeds its receive.
            let error = TransferError::MessageTooLarge { length, room };
            cx.events.push_back(Event::Failed { id: it.id, error });
            let reason = Reason::MessageTooLarge;
            return Err(Nak::Refused(Refusal { reason, room }));
        }
        match it.payload {
            Some(span) if length > 0 => {
                let awaited = AwaitedPayload {
                    number: header.sync,
                    id: it.id,
                    peer: header.s_id,
                    span: span.part(0, length),
                    control: len,
                    awaited: header.flags.contains(Flags::SEND_STATE),
                };
                self.await_payload(cx, receiving, awaited);
            }
            _ => cx.events.push_back(Event::Message {
                id: it.id,
                control: len,
                payload: 0,
            }),
        }
        Ok(Placement::Unannounced(it.control.part(0, u64::from(len))))
    }

    /// The source of a message cancelled its payload.
    pub(crate) fn on_payload_ended(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        peer: u32,
        reason: Reason,
    ) {
        let awaited = self.payloads.iter().position(|it| it.peer == peer);
        if let Some(index) = awaited {
            let id = self.payloads.swap_remove(index).id;
            receiving.forget_payload(id);
            let error = TransferError::Refused(reason);
            cx.events.push_back(Event::Failed { id, error });
        }
    }

    /// Matches the payload of a message with its announcement, whichever came first.
    fn await_payload(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        awaited: AwaitedPayload,
    ) {
        match receiving.announcement_of_message(awaited.number) {
            Some(rts) => receive_payload(cx, receiving, &awaited, &rts),
            None => self.payloads.push(awaited),
        }
    }

    pub(crate) fn on_payload_announced(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        number: u32,
        rts: &RequestToSend,
    ) {
        let awaited = self.payloads.iter().position(|it| it.number == number);
        if let Some(index) = awaited {
            let it = self.payloads.swap_remove(index);
            receive_payload(cx, receiving, &it, rts);
        } else if number.wrapping_sub(self.responder.expected()) > u32::MAX / 2 {
            // The receive that took the message was cancelled, or the message never had a payload.
            receiving.refuse_announcement(cx, rts, Refusal::CANCELLED);
        } else {
            cx.answer_later(rts.s_id);
        }
        cx.owe(Debt::Match);
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
        self.puts_wait || self.responder.not_ready.is_some()
    }

    /// Whether too many events are unread.
    fn is_unread(&self, cx: &Context) -> bool {
        cx.events.len() + self.unread >= MAX_UNREAD
    }

    /// Requests the operation that found no room again, if there is room now.
    pub(crate) fn ready_again(&mut self, cx: &mut Context, receiving: &mut Receiving) {
        self.receive_waiting(cx, receiving);
        let ready = match self.responder.not_ready {
            None => false,
            Some(NotReady::Receive) => !self.receives.is_empty(),
            Some(NotReady::Room) => cx.events.len() + self.unread < MAX_UNREAD / 2,
        };
        if ready {
            self.responder.not_ready = None;
            match self.execute_held(cx, receiving) {
                true => self.responder.ask_ack(),
                false => self.ask_from_expected(cx),
            }
        }
    }
}

/// Atomic operations.
impl OneSided {
    pub(crate) fn on_fetch_op(&mut self, cx: &mut Context, it: &FetchOp) -> Result<(), DropReason> {
        if let Some(value) = self.responder.value(it.sync, it.s_id) {
            self.answer_value(it.sync, it.s_id, value);
            return Err(DropReason::Duplicate);
        }
        // It has no SEND_STATE flag; a refusal that was not heard is repeated to any of them.
        self.let_through(cx, it.sync, self.is_refusing())?;
        if !self.responder.has_room(it.confirmed) || self.pending_atomic.is_some() {
            return Err(DropReason::Limit);
        }
        // A word of 32 bits is changed as a part of 8 bytes, which must lie in the region.
        let skip = it.offset % 8;
        let place = Named {
            handle: it.handle,
            mx: it.mx,
            bufx: it.bufx,
            offset: it.offset - skip,
        };
        match self.check(cx, place, 8, Rights::ATOMIC) {
            Ok(word) => {
                let atomic = Atomic {
                    kind: it.kind,
                    word: it.word,
                    operand: it.operand,
                    comparand: it.comparand,
                };
                self.pending_atomic = Some(PendingAtomic {
                    order: AtomicRequest {
                        word,
                        skip: skip as usize,
                        atomic,
                    },
                    id: it.s_id,
                });
                Ok(())
            }
            Err(reason) => {
                self.refuse_numbered(cx, it.s_id, Refusal::because(reason));
                Err(DropReason::NoGrant)
            }
        }
    }

    /// The atomic operation that the lane must execute now.
    pub(crate) fn pending_atomic(&self) -> Option<AtomicRequest> {
        self.pending_atomic.map(|ordered| ordered.order)
    }

    /// Completes the atomic operation with the word's previous value, or `None` if the word was inaccessible.
    pub(crate) fn on_atomic_done(&mut self, cx: &mut Context, before: Option<u64>) {
        let Some(PendingAtomic { id, .. }) = self.pending_atomic.take() else {
            return;
        };
        let number = self.responder.expected();
        match before {
            Some(value) => {
                self.responder.fetched(cx.now, id, value);
                self.executed(cx);
                self.answer_value(number, id, value);
            }
            None => self.refuse_numbered(cx, id, Refusal::because(Reason::MemoryFault)),
        }
    }
}

/// Why an operation is not executed now.
pub(super) enum Nak {
    /// A resource is missing, temporarily.
    NotReady(NotReady),
    /// It is refused permanently.
    Refused(Refusal),
}

fn answer_numbered(cx: &mut Context, id: TransferId, answer: Answer, why: Refusal) {
    cx.push_control(Operation::RequestAnswer(RequestAnswer {
        answer,
        // Reports the refusal of an operation without an identifier, too.
        d_id: id.max(1),
        room: why.room,
        numbered: true,
    }));
}

fn receive_payload(
    cx: &mut Context,
    receiving: &mut Receiving,
    it: &AwaitedPayload,
    rts: &RequestToSend,
) {
    if rts.length == it.span.len {
        let origin = Origin::Message {
            number: it.number,
            control: it.control,
            awaited: it.awaited,
        };
        return receiving.begin(cx, it.id, it.span, rts, origin);
    }
    // The message contradicts its payload.
    let reason = Reason::ProtocolViolation;
    receiving.refuse_announcement(cx, rts, Refusal::because(reason));
    receiving.forget_payload(it.id);
    let error = TransferError::Refused(reason);
    cx.events.push_back(Event::Failed { id: it.id, error });
}

/// Bytes of a numbered put that follow in further operations.
fn rest(header: &Header) -> u32 {
    match header.d_id == MESSAGES || header.flags.contains(Flags::INTERRUPT) {
        true => 0,
        false => header.b_num,
    }
}

fn named(header: &Header) -> Named {
    Named {
        handle: header.d_id,
        mx: header.b_id,
        bufx: header.bufx,
        offset: header.offset,
    }
}
