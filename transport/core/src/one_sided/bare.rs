//! Sends and receives bare messages: short payloads that are themselves the message.
//!
//! The payload announces its Transfer and has the message's number, so one burst says everything. If it cannot leave at
//! once, or is lost, the message leaves on its own, like any other.

use super::OneSided;
use crate::context::{Context, Debt};
use crate::receiving::Receiving;
use crate::request::{Request, RequestKind};
use crate::sending::{BareMessage, Sending};
use crate::transmit::{BurstLimit, DataBurst};
use zerolane_wire::{Flags, Header, Op, RequestToSend};

/// Whether the message has payload but no control.
pub(super) fn is_bare(request: &Request) -> bool {
    matches!(&request.kind, RequestKind::Message { control, payload: Some(_) } if control.len() == 0)
}

/// Initiator.
impl OneSided {
    /// The next numbered operation as a burst, if it is a bare message.
    pub(crate) fn next_bare_message(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        limit: BurstLimit,
    ) -> Option<DataBurst> {
        let message = self.bare_message()?;
        let burst = sending.next_message(cx, limit, &message, self.is_answering())?;
        self.take(cx, 1);
        self.on_confirmation_left(cx);
        Some(burst)
    }

    fn bare_message(&self) -> Option<BareMessage> {
        if !self.send_queue.has_unsent() || self.send_queue.is_repeat(self.send_queue.next_unsent())
        {
            return None;
        }
        let request = self.send_queue.upcoming().filter(|it| is_bare(it))?;
        Some(BareMessage {
            id: request.id,
            executed: self.responder.expected() as u16,
            awaited: request.flags.awaited,
        })
    }
}

/// Responder.
impl OneSided {
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
        self.let_through(cx, number, false).is_ok()
            && self.execute_bare(cx, receiving, rts, awaited)
    }

    /// Executes the bare message that was held because it was not ready. Returns whether there was one.
    pub(super) fn execute_held(&mut self, cx: &mut Context, receiving: &mut Receiving) -> bool {
        let mut executed = false;
        while let Some(rts) = receiving.bare_message(self.responder.expected()) {
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
            sync: self.responder.expected(),
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
