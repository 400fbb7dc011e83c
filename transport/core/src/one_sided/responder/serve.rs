//! Executes the peer's numbered operations, each once and in order, and confirms them.

use super::exports::{MESSAGES, Named};
use super::sequence::{NotReady, SequenceCheck};
use super::{Continued, LastPut, Responder};
use crate::context::{Context, Debt, Refusal};
use crate::counters::DropReason;
use crate::event::{Event, TransferError};
use crate::limits::{BUSY_BYTES, BUSY_TIME, MAX_SMALL};
use crate::receiving::{Placement, Receiving};
use crate::span::Span;
use crate::timers::Timer;
use crate::transfer::TransferId;
use crate::transmit::join;
use zerolane_wire::{Answer, Flags, Header, MemoryState, Operation, Reason, RequestAnswer, Rights};

/// Mx of an operation to the messages that consists of its number alone.
pub(crate) const NOTHING: u16 = u16::MAX;

/// Mx of an operation to the messages that is the immediate of the put before it.
pub(crate) const IMMEDIATE: u16 = u16::MAX - 1;

/// Mx of an operation to the messages that is a part of the payload of the message before it.
pub(crate) const PAYLOAD: u16 = u16::MAX - 3;

/// Why an operation is not executed now.
pub(super) enum Nak {
    /// A resource is missing, temporarily.
    NotReady(NotReady),
    /// It is refused permanently.
    Refused(Refusal),
}

impl Responder {
    /// Takes Data for an exported region, or a message.
    pub(crate) fn on_put(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        header: &Header,
        len: u32,
    ) -> Result<Placement, DropReason> {
        let ask_ack = header.flags.contains(Flags::SEND_STATE);
        self.let_through(cx, receiving, header.sync, ask_ack)?;
        let alone = |placement| (placement, Continued::Nothing);
        let outcome = match (header.d_id, header.b_id) {
            (MESSAGES, NOTHING) if len == 0 => Ok(alone(Placement::Store(Span::EMPTY))),
            (MESSAGES, IMMEDIATE) if len == 0 => {
                self.take_immediate(cx, receiving, header).map(alone)
            }
            (MESSAGES, PAYLOAD) => self.take_payload(cx, header, len),
            (MESSAGES, _) => self.take_message(cx, receiving, header, len),
            _ => self.take_put(cx, header, len),
        };
        let (placement, continued) = self.report_refusal(cx, header.s_id, outcome)?;
        cx.counters.bytes_received += u64::from(len);
        cx.unnumbered += u64::from(len);
        self.fresh = self.fresh.saturating_add(len);
        self.note_bytes(cx, len.into());
        self.note_executed(cx);
        self.continued = continued;
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
                self.sequence.not_ready = Some(why);
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
        self.sequence.executed(cx.now);
        self.executed(cx);
        self.owe_confirmation(cx);
    }

    /// An operation of the peer was executed: an immediate may follow it.
    pub(super) fn executed(&mut self, cx: &mut Context) {
        if let Continued::Message(it) = core::mem::take(&mut self.continued) {
            // Its source cancelled it: the rest does not follow.
            let error = TransferError::Refused(Reason::Cancelled);
            cx.events.push_back(Event::Failed { id: it.id, error });
        }
        if !self.immediates.is_empty() {
            cx.owe(Debt::Show);
        }
    }

    /// Passes the operation whose turn it is, and handles all others.
    pub(super) fn let_through(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        number: u32,
        ask_ack: bool,
    ) -> Result<(), DropReason> {
        match self.sequence.admit(cx.now, number, ask_ack) {
            SequenceCheck::Expected => Ok(()),
            SequenceCheck::Duplicate => Err(DropReason::Duplicate),
            SequenceCheck::Refused(id, why) => {
                answer_numbered(cx, id, Answer::Refused(why.reason), why);
                Err(DropReason::Early)
            }
            SequenceCheck::Ahead => {
                let rtt = cx.recovery.rtt().unwrap_or_default();
                if self.sequence.ask(cx.now, ask_ack, rtt) {
                    receiving.on_operation_lost(cx);
                    self.ask_from_expected(cx, receiving);
                }
                Err(DropReason::Early)
            }
        }
    }

    /// Requests all operations from the expected one on.
    pub(super) fn ask_from_expected(&mut self, cx: &mut Context, receiving: &mut Receiving) {
        self.say_executed(cx, receiving, true);
    }

    /// The peer sent so much in an operation, or in a Transfer that might have been some.
    pub(super) fn note_bytes(&mut self, cx: &Context, len: u64) {
        let (since, bytes) = self.recent;
        self.recent = match cx.now - since > BUSY_TIME {
            true => (cx.now, len),
            false => (since, bytes + len),
        };
    }

    /// Whether operations may come as trains from now on. That is not worthwhile for a few short ones.
    fn wants_trains(&self, receiving: &Receiving) -> bool {
        let many = self.told_of_trains || self.recent.1 > BUSY_BYTES;
        many && receiving.offers_trains()
    }

    /// Tells the peer which operations were executed, and whether further ones may come as trains.
    fn say_executed(&mut self, cx: &mut Context, receiving: &mut Receiving, resend: bool) {
        let trains = self.wants_trains(receiving);
        (self.says_trains, self.told_of_trains) = (trains, self.told_of_trains || trains);
        receiving.on_operations(cx, core::mem::take(&mut self.fresh) / MAX_SMALL);
        let expected = self.sequence.expected();
        cx.push_control(Operation::MemoryState(MemoryState {
            expected,
            resend,
            trains,
        }));
    }

    pub(super) fn refuse_numbered(&mut self, cx: &mut Context, id: TransferId, why: Refusal) {
        self.sequence.refuse(id, why);
        answer_numbered(cx, id, Answer::Refused(why.reason), why);
    }

    /// Returns where the bytes belong, and the put so far, unless earlier parts are missing.
    fn take_put(
        &mut self,
        cx: &mut Context,
        header: &Header,
        len: u32,
    ) -> Result<(Placement, Continued), Nak> {
        if self.defers {
            return Err(Nak::NotReady(NotReady::Room));
        }
        // A put of several operations is checked as a whole before any part is placed.
        let whole = u64::from(len) + u64::from(rest(header));
        let (place, log2) = (named(header), cx.buffer_log2());
        let checked = self.exports.check(place, whole, Rights::WRITE, log2);
        let checked = checked.map_err(|reason| Nak::Refused(Refusal::because(reason)))?;
        let (span, region) = checked;
        let put = self.placed_before(header, whole).map(|before| LastPut {
            region,
            placed: before + placed(cx, header, len),
            rest: rest(header),
        });
        if header.flags.contains(Flags::INTERRUPT)
            && let Some(put) = &put
        {
            let waits = self.immediates.precede(header.sync);
            self.show(cx, header, put, waits, None)?;
        }
        let continued = put.map_or(Continued::Nothing, Continued::Put);
        Ok((Placement::Store(span.part(0, len.into())), continued))
    }

    /// Bytes of this operation's put that earlier operations placed, if `left` must follow. `None`: parts of it are
    /// missing, because it was cancelled.
    fn placed_before(&self, header: &Header, left: u64) -> Option<u64> {
        if !header.flags.contains(Flags::CONTINUES) {
            return Some(0);
        }
        match &self.continued {
            Continued::Put(put)
                if u64::from(put.rest) == left && put.region.start.handle == header.d_id =>
            {
                Some(put.placed)
            }
            _ => None,
        }
    }

    /// The Initiator knows the outcome of operation `number`.
    pub(crate) fn on_outcome_known(
        &mut self,
        cx: &mut Context,
        number: u32,
    ) -> Result<(), DropReason> {
        let expected = self.sequence.expected();
        if !self.sequence.outcome_known(cx.now, number) {
            return Err(DropReason::Duplicate);
        }
        // A refusal ends its operation; a value belongs to an earlier one, perhaps not the last.
        if self.sequence.expected() != expected {
            self.executed(cx);
        }
        self.owe_confirmation(cx);
        Ok(())
    }

    fn owe_confirmation(&mut self, cx: &mut Context) {
        if let Some(at) = self.sequence.due() {
            cx.timers.set(Timer::DelayedAck, at);
        }
    }

    /// Confirms the peer's operations with the next departing operation.
    pub(crate) fn confirm_now(&mut self) {
        self.sequence.ask_ack();
    }

    /// Data left, which carries the confirmation of the peer's operations.
    pub(crate) fn on_confirmation_left(&mut self, cx: &mut Context) {
        self.sequence.confirmed();
        cx.timers.stop(Timer::DelayedAck);
    }

    /// The confirmation that leaves now, if one is due.
    pub(crate) fn next_confirmation(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
    ) -> bool {
        let confirmed = cx.confirmed_below.take() == Some(self.sequence.expected());
        // A State about a Transfer does not tell it.
        let news = self.wants_trains(receiving) != self.says_trains;
        if confirmed && !news {
            self.on_confirmation_left(cx);
        }
        if !self.sequence.is_due(cx.now) {
            return false;
        }
        self.on_confirmation_left(cx);
        self.say_executed(cx, receiving, false);
        true
    }
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

/// Bytes of a numbered put that follow in further operations.
fn rest(header: &Header) -> u32 {
    match header.d_id == MESSAGES || header.flags.contains(Flags::INTERRUPT) {
        true => 0,
        false => header.b_num,
    }
}

/// Bytes that a put's operation with `len` bytes places. One with INTERRUPT and SILENT has none of its own: the peer
/// placed them itself, and their number is where their address would be.
fn placed(cx: &Context, header: &Header, len: u32) -> u64 {
    let by_peer = Flags::INTERRUPT.with(Flags::SILENT);
    match len == 0 && header.flags.contains(by_peer) {
        true => join(header.bufx, header.offset, cx.buffer_log2()),
        false => len.into(),
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
