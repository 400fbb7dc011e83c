//! Our memory, as Responder: what the peer may do with the regions exported to it, and the messages
//! it sends.

use super::Connection;
use super::memory::{AwaitedPayload, MessageReceive, Ordered};
use super::remote::NOTHING;
use crate::executor::{Admission, Lack};
use crate::exports::{MESSAGES, Named};
use crate::gets::{Mark, Queued, Reply};
use crate::inbound::{Matched, Origin, Refusal};
use crate::limits::{MAX_CONTROL, MAX_UNREAD, MAX_VALUES};
use crate::outbound::without;
use crate::timers::Timer;
use crate::transmit::{ControlDatagram, join};
use crate::work::Order;
use crate::{
    Atomic, BurstLimit, DropReason, Event, Instant, Life, Placement, PostError, RegionName, Span,
    TransferError, TransferId, Transmit,
};
use alloc::vec;
use alloc::vec::Vec;
use zerolane_wire::{
    Answer, FetchOp, Flags, Get, Header, MemoryRegionAvailable, MemoryState, Op, Operation, Place,
    Profile, Reason, RequestAnswer, RequestMemoryRegion, RequestToSend, Rights,
};

impl Connection {
    /// Lets the peer use `span` with `rights`, by its handle or by `name`. Returns handle and Mx;
    /// for the peer, the region starts at address 0.
    ///
    /// # Errors
    /// The connection is closed, the name is taken, or too many regions are exported.
    pub fn export(
        &mut self,
        span: Span,
        rights: Rights,
        name: Option<RegionName>,
    ) -> Result<(u32, u16), PostError> {
        self.can_post(0)?;
        self.memory.exports.export(span, rights, name)
    }

    /// Ends an export, at once: from here on nothing is placed into the region or read from it. False
    /// if `handle` names none.
    pub fn revoke(&mut self, now: Instant, handle: u32) -> bool {
        if self.memory.exports.revoke(handle).is_none() {
            return false;
        }
        while let Some(id) = self.inbox.of_region(handle) {
            self.abort_inbound(now, id, Reason::Revoked);
        }
        while let Some(reply) = self.memory.replies.take_of(handle) {
            self.refuse(reply.d_id, refusal(Reason::Revoked));
        }
        self.grant(now);
        true
    }

    /// Receives the next message that no earlier receive takes: its control into `control`, which
    /// has [`crate::limits::MAX_CONTROL`] bytes, its payload into `payload`.
    ///
    /// # Errors
    /// The connection is closed, or too much is posted.
    pub fn post_message_receive(
        &mut self,
        control: Span,
        payload: Option<Span>,
    ) -> Result<TransferId, PostError> {
        self.can_post(self.memory.receives.len() + self.memory.payloads.len())?;
        let id = self.new_id();
        self.memory.receives.push_back(MessageReceive {
            id,
            control,
            payload,
        });
        self.ready_again();
        Ok(id)
    }

    /// Data into an exported region, or a message.
    pub(super) fn on_put(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
    ) -> Result<Placement, DropReason> {
        // What a large put was granted is told by its Block, not by the handle.
        self.on_piggyback(now, header.param);
        let press = header.flags.contains(Flags::SEND_STATE);
        self.let_through(now, header.sync, press)?;
        let outcome = match (header.d_id, header.b_id) {
            (MESSAGES, NOTHING) if len == 0 => Ok(Placement::Store(EMPTY)),
            (MESSAGES, _) => self.take_message(now, header, len),
            _ => self.take_put(header, len),
        };
        match outcome {
            Ok(placement) => {
                self.counters.bytes_received += u64::from(len);
                self.memory.apart += u64::from(len);
                self.memory.executor.executed(now);
                self.owe_confirmation();
                Ok(placement)
            }
            Err(Hindrance::Lack(lack)) => {
                self.memory.executor.lack = Some(lack);
                let why = refusal(Reason::NotReady);
                self.answer_numbered(header.s_id, Answer::Later(why.reason), why);
                Err(DropReason::Limit)
            }
            Err(Hindrance::Refused(why)) => {
                self.refuse_numbered(header.s_id, why);
                Err(DropReason::NoGrant)
            }
        }
    }

    /// Lets through the operation whose turn it is, and deals with all others.
    fn let_through(&mut self, now: Instant, number: u32, press: bool) -> Result<(), DropReason> {
        match self.memory.executor.admit(now, number, press) {
            Admission::Now => Ok(()),
            Admission::Repeated => Err(DropReason::Duplicate),
            Admission::Refused(id, why) => {
                self.answer_numbered(id, Answer::Refused(why.reason), why);
                Err(DropReason::Early)
            }
            Admission::Early => {
                let rtt = self.recovery.rtt().unwrap_or_default();
                if self.memory.executor.ask(now, press, rtt) {
                    self.ask_from_expected();
                }
                Err(DropReason::Early)
            }
        }
    }

    /// Asks for all operations from the expected one on.
    fn ask_from_expected(&mut self) {
        let expected = self.memory.executor.expected();
        let resend = true;
        self.push_control(Operation::MemoryState(MemoryState { expected, resend }));
    }

    fn refuse_numbered(&mut self, id: TransferId, why: Refusal) {
        self.memory.executor.refuse(id, why);
        self.answer_numbered(id, Answer::Refused(why.reason), why);
    }

    fn answer_numbered(&mut self, id: TransferId, answer: Answer, why: Refusal) {
        self.push_control(Operation::RequestAnswer(RequestAnswer {
            answer,
            // Who names none, is told so.
            d_id: id.max(1),
            room: why.room,
            numbered: true,
        }));
    }

    fn take_put(&mut self, header: &Header, len: u32) -> Result<Placement, Hindrance> {
        let checked = self.check(named(header), u64::from(len), Rights::WRITE);
        let span = checked.map_err(|reason| Hindrance::Refused(refusal(reason)))?;
        if header.flags.contains(Flags::INTERRUPT) {
            if self.is_unread() {
                return Err(Hindrance::Lack(Lack::Room));
            }
            let value = header.b_num;
            self.events.push_back(Event::Immediate { value });
        }
        Ok(Placement::Store(span))
    }

    fn check(&self, place: Named, len: u64, right: Rights) -> Result<Span, Reason> {
        let log2 = self.buffer_log2();
        self.memory.exports.check(place, len, right, log2)
    }

    fn take_message(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
    ) -> Result<Placement, Hindrance> {
        if self.is_unread() {
            return Err(Hindrance::Lack(Lack::Room));
        }
        let next = self.memory.receives.front();
        let &it = next.ok_or(Hindrance::Lack(Lack::Receive))?;
        let payload = header.wide();
        let room = it.payload.map_or(0, |span| span.len);
        if len > MAX_CONTROL || u64::from(len) > it.control.len || payload > room {
            return self.message_too_large(it.id, payload, room);
        }
        self.memory.receives.pop_front();
        match it.payload {
            Some(span) if payload > 0 => self.await_payload(
                now,
                AwaitedPayload {
                    number: header.sync,
                    id: it.id,
                    peer: header.s_id,
                    span: span.part(0, payload),
                    control: len,
                },
            ),
            _ => self.events.push_back(Event::Message {
                id: it.id,
                control: len,
                payload: 0,
            }),
        }
        Ok(Placement::Unannounced(it.control.part(0, u64::from(len))))
    }

    /// Both ends fail, as with a Transfer that meets a receive too small for it.
    fn message_too_large(
        &mut self,
        id: TransferId,
        length: u64,
        room: u64,
    ) -> Result<Placement, Hindrance> {
        self.memory.receives.pop_front();
        let error = TransferError::MessageTooLarge { length, room };
        self.events.push_back(Event::Failed { id, error });
        let reason = Reason::MessageTooLarge;
        Err(Hindrance::Refused(Refusal { reason, room }))
    }

    /// The source of a message took its payload back.
    pub(super) fn payload_ended(&mut self, peer: u32, reason: Reason) {
        let awaited = self.memory.payloads.iter().position(|it| it.peer == peer);
        if let Some(index) = awaited {
            let id = self.memory.payloads.swap_remove(index).id;
            let error = TransferError::Refused(reason);
            self.events.push_back(Event::Failed { id, error });
        }
    }

    /// Meets the payload of a message with its announcement, whichever came first.
    fn await_payload(&mut self, now: Instant, awaited: AwaitedPayload) {
        match self.inbox.message(awaited.number) {
            Some(rts) => self.receive_payload(now, &awaited, &rts),
            None => self.memory.payloads.push(awaited),
        }
    }

    fn receive_payload(&mut self, now: Instant, it: &AwaitedPayload, rts: &RequestToSend) {
        if rts.length != it.span.len {
            // It said something else in the message.
            let reason = Reason::ProtocolViolation;
            self.refuse_announcement(rts, refusal(reason));
            let error = TransferError::Refused(reason);
            return self.events.push_back(Event::Failed { id: it.id, error });
        }
        let origin = Origin::Message(it.control);
        self.inbox.begin(it.id, it.span, rts, origin);
        self.matched(
            now,
            Matched::Receiving {
                id: it.id,
                rts: *rts,
            },
        );
    }

    pub(super) fn on_payload_announced(&mut self, now: Instant, number: u32, rts: &RequestToSend) {
        let awaited = self
            .memory
            .payloads
            .iter()
            .position(|it| it.number == number);
        if let Some(index) = awaited {
            let it = self.memory.payloads.swap_remove(index);
            self.receive_payload(now, &it, rts);
        } else if number.wrapping_sub(self.memory.executor.expected()) > u32::MAX / 2 {
            // The message was taken and its receive cancelled, or it never had a payload.
            self.refuse_announcement(rts, Refusal::CANCELLED);
        } else {
            self.answer_later(rts.s_id);
        }
        self.match_announcements(now);
    }

    /// A Put too long for one datagram: granted at once, if it may be.
    pub(super) fn on_put_announced(&mut self, now: Instant, place: Place, rts: &RequestToSend) {
        let place = Named {
            handle: place.handle,
            mx: place.mx,
            bufx: place.bufx,
            offset: place.offset,
        };
        match self.check(place, rts.length, Rights::WRITE) {
            Ok(span) => {
                let id = self.new_id();
                let origin = Origin::Region(place.handle);
                self.inbox.begin(id, span, rts, origin);
                self.matched(now, Matched::Receiving { id, rts: *rts });
            }
            Err(reason) => self.refuse_announcement(rts, refusal(reason)),
        }
        self.match_announcements(now);
    }

    pub(super) fn on_request_region(&mut self, it: &RequestMemoryRegion) -> Result<(), DropReason> {
        let found = self.memory.exports.open(&it.name, it.rights);
        let (handle, mx, length) = match found {
            Ok(found) if it.length <= found.2 => found,
            Ok(_) => {
                self.refuse(it.s_id, refusal(Reason::OutOfBounds));
                return Ok(());
            }
            Err(reason) => {
                self.refuse(it.s_id, refusal(reason));
                return Ok(());
            }
        };
        let available = MemoryRegionAvailable {
            rights: it.rights,
            mx,
            bufx: 0,
            offset: 0,
            d_id: it.s_id,
            handle,
            length,
        };
        self.push_control(Operation::MemoryRegionAvailable(available));
        Ok(())
    }

    pub(super) fn on_get(&mut self, now: Instant, it: &Get) -> Result<(), DropReason> {
        let behind = self.memory.executor.expected().wrapping_sub(it.after) > u32::MAX / 2;
        if behind {
            // As with the operation it would be the next to follow.
            let press = self.memory.executor.is_refusing();
            return self.let_through(now, it.after, press);
        }
        let place = Named {
            handle: it.handle,
            mx: it.mx,
            bufx: it.bufx,
            offset: it.offset,
        };
        let span = match self.check(place, u64::from(it.length), Rights::READ) {
            Ok(span) => span,
            Err(reason) => {
                self.refuse(it.s_id, refusal(reason));
                return Err(DropReason::NoGrant);
            }
        };
        let log2 = self.peer.map_or(30, |peer| peer.buffer_log2);
        let address = join(it.return_bufx, it.return_offset, log2);
        address
            .checked_add(span.len)
            .ok_or(DropReason::OutOfBounds)?;
        self.expect_peer(now);
        let reply = Reply {
            handle: it.handle,
            span,
            d_id: it.s_id,
            mx: it.return_mx,
            b_num: it.b_num,
            address,
            numbered: it.numbered && self.profile == Profile::Extended,
            repeated: it.repeated,
        };
        for (start, end) in self.unanswered(now, &reply) {
            let part = Reply {
                span: span.part(start.into(), (end - start).into()),
                address: address + u64::from(start),
                ..reply
            };
            match self.memory.replies.push(part) {
                Queued::New if part.numbered && part.repeated => {
                    self.congestion.on_lost(now, part.span.len);
                }
                Queued::New | Queued::Before => {}
                Queued::Full => return Err(DropReason::Limit),
            }
        }
        Ok(())
    }

    /// The parts of an answer that did not leave within the last round trip: whoever asks for what did
    /// has not seen it yet.
    fn unanswered(&self, now: Instant, reply: &Reply) -> Vec<(u32, u32)> {
        let len = u32::try_from(reply.span.len).unwrap_or(u32::MAX);
        let Mark { id, b_num, start } = Mark::new(reply.d_id, reply.mx, reply.address);
        let rtt = self.recovery.rtt().filter(|_| reply.numbered);
        let (Some(rtt), Some(end)) = (rtt, start.checked_add(len)) else {
            return vec![(0, len)];
        };
        let flight = &self.outbox.flight;
        let mut left: Vec<_> = flight.left_after(id, b_num, now.before(rtt)).collect();
        left.sort_unstable();
        let parts = without(start, end, &left).into_iter();
        parts.map(|(from, to)| (from - start, to - start)).collect()
    }

    pub(super) fn on_fetch_op(&mut self, now: Instant, it: &FetchOp) -> Result<(), DropReason> {
        if let Some(value) = self.memory.executor.value(it.sync, it.s_id) {
            self.answer_value(it.sync, it.s_id, value);
            return Err(DropReason::Duplicate);
        }
        // It has no flag to press with; a refusal that went unheard is repeated to any of them.
        let press = self.memory.executor.is_refusing();
        self.let_through(now, it.sync, press)?;
        if !self.memory.executor.has_room(it.confirmed) || self.memory.order.is_some() {
            return Err(DropReason::Limit);
        }
        let place = Named {
            handle: it.handle,
            mx: it.mx,
            bufx: it.bufx,
            offset: it.offset,
        };
        match self.check(place, 8, Rights::ATOMIC) {
            Ok(word) => {
                let atomic = Atomic {
                    kind: it.kind,
                    operand: it.operand,
                    comparand: it.comparand,
                };
                self.memory.order = Some(Ordered {
                    order: Order { word, atomic },
                    id: it.s_id,
                });
                Ok(())
            }
            Err(reason) => {
                self.refuse_numbered(it.s_id, refusal(reason));
                Err(DropReason::NoGrant)
            }
        }
    }

    /// The atomic operation that the lane has to do before it shows the core anything else, and
    /// answer with [`Connection::ordered`].
    pub fn order(&self) -> Option<Order> {
        self.memory.order.map(|ordered| ordered.order)
    }

    /// The order was done: the word before, or `None` if it could not be accessed.
    pub fn ordered(&mut self, now: Instant, before: Option<u64>) {
        let Some(Ordered { id, .. }) = self.memory.order.take() else {
            return;
        };
        let number = self.memory.executor.expected();
        match before {
            Some(value) => {
                self.memory.executor.fetched(now, id, value);
                self.answer_value(number, id, value);
            }
            None => self.refuse_numbered(id, refusal(Reason::MemoryFault)),
        }
    }

    fn answer_value(&mut self, number: u32, id: TransferId, value: u64) {
        if self.memory.values.len() < MAX_VALUES {
            self.memory.values.push_back((number, id, value));
        }
    }

    pub(super) fn next_value(&mut self) -> Option<Transmit> {
        let (number, id, value) = self.memory.values.pop_front()?;
        self.memory.executor.confirmed();
        self.timers.stop(Timer::Confirm);
        let header = Header {
            param: self.memory.executor.expected() as u16,
            d_port: self.route.d_port,
            s_port: self.route.s_port,
            d_key: self.route.d_key,
            sync: number,
            d_id: id,
            ..Header::new(Op::Data)
        };
        let checksum = self.uses_checksums();
        Some(Transmit::Control(ControlDatagram::value(
            header, value, checksum,
        )))
    }

    pub(super) fn on_outcome_known(&mut self, now: Instant, number: u32) -> Result<(), DropReason> {
        if !self.memory.executor.outcome_known(now, number) {
            return Err(DropReason::Duplicate);
        }
        self.owe_confirmation();
        Ok(())
    }

    fn owe_confirmation(&mut self) {
        if let Some(at) = self.memory.executor.due() {
            self.timers.set(Timer::Confirm, at);
        }
    }

    /// Confirms the peer's operations with what leaves next, instead of waiting for something that
    /// carries that: to be called before a lane sleeps.
    pub fn confirm_now(&mut self) {
        self.memory.executor.press();
    }

    pub(super) fn next_confirmation(&mut self, now: Instant) -> Option<Transmit> {
        if self.life != Life::Established || !self.memory.executor.is_due(now) {
            return None;
        }
        self.memory.executor.confirmed();
        self.timers.stop(Timer::Confirm);
        let expected = self.memory.executor.expected();
        let resend = false;
        self.push_control(Operation::MemoryState(MemoryState { expected, resend }));
        self.next_control(now)
    }

    /// Whether the user has enough to look at.
    fn is_unread(&self) -> bool {
        self.events.len() + self.memory.unread >= MAX_UNREAD
    }

    /// There is room again for the operation that met none.
    pub(super) fn ready_again(&mut self) {
        let ready = match self.memory.executor.lack {
            None => false,
            Some(Lack::Receive) => !self.memory.receives.is_empty(),
            Some(Lack::Room) => self.events.len() + self.memory.unread < MAX_UNREAD / 2,
        };
        if ready && self.life == Life::Established {
            self.memory.executor.lack = None;
            self.ask_from_expected();
        }
    }

    /// Answers to Gets: what the peer granted by asking, and no more at a time than the congestion
    /// controller lets go. An answer of one datagram waits for nobody, as small operations do.
    pub(super) fn next_reply(&mut self, now: Instant, limit: BurstLimit) -> Option<Transmit> {
        let numbered = self.memory.replies.is_next_numbered()?;
        if self.life != Life::Established {
            return None;
        }
        let shape = match numbered {
            true => self.controlled_shape(now, limit)?,
            false => self.shape(limit),
        };
        let reply = self.memory.replies.next_burst(&shape)?;
        let (mut burst, len) = (reply.burst, reply.burst.span.len);
        self.counters.bytes_sent += len;
        self.counters.bytes_resent += if reply.repeated { len } else { 0 };
        if numbered {
            let flight = &mut self.outbox.flight;
            burst.first.sync = flight.next_number();
            let (d_id, mx) = (burst.first.d_id, burst.first.b_id);
            let Mark { id, b_num, start } = Mark::new(d_id, mx, burst.address);
            flight.sent(now, id, b_num, start, len as u32);
            self.note_departure(now, len);
        }
        Some(Transmit::Data(burst))
    }
}

/// Why an operation is not executed now.
enum Hindrance {
    /// Something is missing that may come.
    Lack(Lack),
    /// It is refused.
    Refused(Refusal),
}

/// No bytes of no region.
const EMPTY: Span = Span {
    region: crate::RegionId {
        index: 0,
        generation: 0,
    },
    offset: 0,
    len: 0,
};

fn named(header: &Header) -> Named {
    Named {
        handle: header.d_id,
        mx: header.b_id,
        bufx: header.bufx,
        offset: header.offset,
    }
}

fn refusal(reason: Reason) -> Refusal {
    Refusal { reason, room: 0 }
}
