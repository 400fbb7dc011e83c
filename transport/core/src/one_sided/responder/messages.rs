//! Delivers the peer's messages to posted receives. Those without control may come as their payload alone: bare.

use super::exports::MESSAGES;
use super::sequence::NotReady;
use super::serve::{IMMEDIATE, NOTHING, Nak, PAYLOAD};
use super::{Continued, Responder};
use crate::context::{Context, Debt, Refusal};
use crate::event::{Event, TransferError};
use crate::limits::{MAX_CONTROL, MAX_EAGER};
use crate::receiving::{Finished, Origin, Placement, Receiving};
use crate::span::Span;
use crate::transfer::TransferId;
use zerolane_wire::{Flags, Header, Op, Reason, RequestToSend};

/// A posted receive of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageReceive {
    pub(super) id: TransferId,
    control: Span,
    payload: Option<Span>,
}

/// A message whose payload is not yet announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedPayload {
    number: u32,
    pub(super) id: TransferId,
    /// The sender's identifier.
    peer: u32,
    span: Span,
    control: u32,
    /// A caller at the sender waits for its end.
    awaited: bool,
}

/// A message whose payload arrives in the operations behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncomingMessage {
    pub(super) id: TransferId,
    control: u32,
    span: Span,
    placed: u64,
}

impl Responder {
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

    /// Whether Data is a message that would be executed now if a receive were posted.
    pub(crate) fn lacks_receive(&self, cx: &Context, header: &Header, len: u32) -> bool {
        self.receives.is_empty()
            && number_of_message(header, len).is_some_and(|it| self.sequence.is_next(it))
            && !self.is_unread(cx)
    }

    /// Whether the peer was told that its message found no receive, and there still is none.
    pub(crate) fn wants_receive(&self) -> bool {
        self.receives.is_empty() && self.sequence.not_ready == Some(NotReady::Receive)
    }

    /// Whether no message has matched receive `id`.
    pub(crate) fn is_unmatched(&self, id: TransferId) -> bool {
        self.receives.iter().any(|it| it.id == id)
    }

    /// Fails the receives that no message will match, once everything the peer sent has arrived.
    pub(crate) fn finish_receives(&mut self, cx: &mut Context, receiving: &mut Receiving) {
        let is_executed = |it: Finished| self.expected().wrapping_sub(it.operation) as i32 >= 0;
        let is_over = receiving.finished().is_some_and(is_executed);
        let arrives = !self.payloads.is_empty() || self.incoming().is_some();
        if !is_over || arrives || receiving.is_receiving_message() {
            return;
        }
        receiving.clear_messages();
        cx.fail_finished(self.receives.drain(..).map(|it| it.id));
    }

    pub(super) fn take_message(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        header: &Header,
        len: u32,
    ) -> Result<(Placement, Continued), Nak> {
        if self.is_unread(cx) {
            return Err(Nak::NotReady(NotReady::Room));
        }
        let next = self.receives.front();
        let &it = next.ok_or(Nak::NotReady(NotReady::Receive))?;
        let length = header.wide();
        let follows = header.b_num != 0;
        if follows && u64::from(header.b_num) != length {
            return Err(Nak::Refused(Refusal::because(Reason::ProtocolViolation)));
        }
        let room = it.payload.map_or(0, |span| span.len);
        self.receives.pop_front();
        let fits = len <= MAX_CONTROL && u64::from(len) <= it.control.len && length <= room;
        receiving.meet_message(header.sync, fits && length > 0 && !follows);
        if !fits {
            // Both ends fail, as when a Transfer exceeds its receive.
            let error = TransferError::MessageTooLarge { length, room };
            cx.events.push_back(Event::Failed { id: it.id, error });
            let reason = Reason::MessageTooLarge;
            return Err(Nak::Refused(Refusal { reason, room }));
        }
        self.note_bytes(cx, length.min(MAX_EAGER.into()));
        let mut continued = Continued::Nothing;
        match it.payload {
            Some(span) if follows => {
                continued = Continued::Message(IncomingMessage {
                    id: it.id,
                    control: len,
                    span: span.part(0, length),
                    placed: 0,
                });
            }
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
        let control = it.control.part(0, u64::from(len));
        Ok((Placement::Unannounced(control), continued))
    }

    /// Takes a part of the payload of the message before it.
    pub(super) fn take_payload(
        &mut self,
        cx: &mut Context,
        header: &Header,
        len: u32,
    ) -> Result<(Placement, Continued), Nak> {
        let Continued::Message(it) = self.continued else {
            // The receive was cancelled.
            return Err(Nak::Refused(Refusal::CANCELLED));
        };
        self.continued = Continued::Nothing;
        let (part, rest) = (u64::from(len), u64::from(header.b_num));
        if len == 0 || it.placed + part + rest != it.span.len {
            let reason = Reason::ProtocolViolation;
            let error = TransferError::Refused(reason);
            cx.events.push_back(Event::Failed { id: it.id, error });
            return Err(Nak::Refused(Refusal::because(reason)));
        }
        let place = it.span.part(it.placed, part);
        if rest > 0 {
            let placed = it.placed + part;
            let continued = Continued::Message(IncomingMessage { placed, ..it });
            return Ok((Placement::Unannounced(place), continued));
        }
        cx.events.push_back(Event::Message {
            id: it.id,
            control: it.control,
            payload: it.span.len,
        });
        Ok((Placement::Unannounced(place), Continued::Nothing))
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
        } else if number.wrapping_sub(self.sequence.expected()) > u32::MAX / 2 {
            // The receive that took the message was cancelled, or the message never had a payload.
            receiving.refuse_announcement(cx, rts, Refusal::CANCELLED);
        } else {
            cx.answer_later(rts.s_id);
        }
        cx.owe(Debt::Match);
    }
}

/// Bare messages.
impl Responder {
    /// Takes message `number`, announced by its payload as `rts`, which no message operation preceded. Returns whether
    /// that executed the message.
    pub(crate) fn on_bare_message(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        number: u32,
        rts: &RequestToSend,
        awaited: bool,
    ) -> bool {
        receiving.note_bare(rts.sequence);
        // It matches no receive of a Transfer, so later announcements may.
        cx.owe(Debt::Match);
        self.let_through(cx, receiving, number, false).is_ok()
            && self.execute_bare(cx, receiving, rts, awaited)
    }

    /// Executes the bare message that was held because it was not ready. Returns whether there was one.
    pub(super) fn execute_held(&mut self, cx: &mut Context, receiving: &mut Receiving) -> bool {
        let mut executed = false;
        while let Some(rts) = receiving.bare_message(self.sequence.expected()) {
            if !self.execute_bare(cx, receiving, &rts, true) {
                break;
            }
            executed = true;
        }
        executed
    }

    /// Executes the message that `rts` announces, whose turn it is.
    fn execute_bare(
        &mut self,
        cx: &mut Context,
        receiving: &mut Receiving,
        rts: &RequestToSend,
        awaited: bool,
    ) -> bool {
        let header = Header {
            flags: Flags::NONE.with_if(Flags::SEND_STATE, awaited),
            sync: self.sequence.expected(),
            s_id: rts.s_id,
            ..Header::new(Op::Data)
        }
        .with_wide(rts.length);
        let taken = self.take_message(cx, receiving, &header, 0);
        self.report_refusal(cx, rts.s_id, taken).is_ok_and(|_| {
            self.note_executed(cx);
            true
        })
    }
}

/// The number of the message that Data brings, or, if it is bare, a part of.
fn number_of_message(header: &Header, len: u32) -> Option<u32> {
    let has = |flag| header.flags.contains(flag);
    if has(Flags::FRAMES) {
        return None;
    }
    if has(Flags::EAGER) {
        return (has(Flags::MESSAGE) && has(Flags::MEMORY)).then_some(header.d_id);
    }
    let is_other = header.b_id == PAYLOAD || matches!(header.b_id, NOTHING | IMMEDIATE) && len == 0;
    (header.d_id == MESSAGES && !is_other).then_some(header.sync)
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
