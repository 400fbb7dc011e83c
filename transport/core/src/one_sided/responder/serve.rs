//! Executes the peer's numbered operations, each once and in order, and confirms them.

use super::exports::{MESSAGES, Named};
use super::sequence::{NotReady, SequenceCheck};
use super::{LastPut, Responder};
use crate::context::{Context, Debt, Refusal};
use crate::counters::DropReason;
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
        self.let_through(cx, header.sync, ask_ack)?;
        let no_put = |placement| (placement, None);
        let outcome = match (header.d_id, header.b_id) {
            (MESSAGES, NOTHING) if len == 0 => Ok(no_put(Placement::Store(Span::EMPTY))),
            (MESSAGES, IMMEDIATE) if len == 0 => {
                self.take_immediate(cx, receiving, header).map(no_put)
            }
            (MESSAGES, _) => self.take_message(cx, receiving, header, len).map(no_put),
            _ => self.take_put(cx, header, len),
        };
        let (placement, put) = self.report_refusal(cx, header.s_id, outcome)?;
        cx.counters.bytes_received += u64::from(len);
        cx.unnumbered += u64::from(len);
        self.note_executed(cx);
        self.last_put = put;
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
        self.last_put = None;
        if !self.immediates.is_empty() {
            cx.owe(Debt::Show);
        }
    }

    /// Passes the operation whose turn it is, and handles all others.
    pub(super) fn let_through(
        &mut self,
        cx: &mut Context,
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
                    self.ask_from_expected(cx);
                }
                Err(DropReason::Early)
            }
        }
    }

    /// Requests all operations from the expected one on.
    pub(super) fn ask_from_expected(&self, cx: &mut Context) {
        let expected = self.sequence.expected();
        let resend = true;
        cx.push_control(Operation::MemoryState(MemoryState { expected, resend }));
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
    ) -> Result<(Placement, Option<LastPut>), Nak> {
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
        Ok((Placement::Store(span.part(0, len.into())), put))
    }

    /// Bytes of this operation's put that earlier operations placed, if `left` must follow. `None`: parts of it are
    /// missing, because it was cancelled.
    fn placed_before(&self, header: &Header, left: u64) -> Option<u64> {
        if !header.flags.contains(Flags::CONTINUES) {
            return Some(0);
        }
        let continued = self
            .last_put
            .filter(|put| u64::from(put.rest) == left && put.region.start.handle == header.d_id);
        continued.map(|put| put.placed)
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
    pub(crate) fn next_confirmation(&mut self, cx: &mut Context) -> bool {
        if cx.confirmed_below.take() == Some(self.sequence.expected()) {
            self.on_confirmation_left(cx);
        }
        if !self.sequence.is_due(cx.now) {
            return false;
        }
        self.on_confirmation_left(cx);
        let expected = self.sequence.expected();
        let resend = false;
        cx.push_control(Operation::MemoryState(MemoryState { expected, resend }));
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
