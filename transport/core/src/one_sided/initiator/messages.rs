//! Sends bare messages: short payloads that are themselves the message.
//!
//! The payload announces its Transfer and has the message's number, so one burst says everything. If it cannot leave at
//! once, or is lost, the message leaves on its own, like any other.

use super::Initiator;
use crate::context::Context;
use crate::one_sided::responder::Responder;
use crate::request::{Request, RequestKind};
use crate::sending::{BareMessage, Sending};
use crate::transmit::{BurstLimit, DataBurst};

/// Whether the message has payload but no control.
pub(super) fn is_bare(request: &Request) -> bool {
    matches!(&request.kind, RequestKind::Message { control, payload: Some(_) } if control.len() == 0)
}

impl Initiator {
    /// The next numbered operation as a burst, if it is a bare message.
    pub(crate) fn next_bare_message(
        &mut self,
        cx: &mut Context,
        responder: &mut Responder,
        sending: &mut Sending,
        limit: BurstLimit,
    ) -> Option<DataBurst> {
        let request = self.send_queue.upcoming().filter(|it| is_bare(it))?;
        if self.send_queue.is_repeat(self.send_queue.next_unsent()) {
            return None;
        }
        let message = BareMessage {
            id: request.id,
            executed: responder.expected() as u16,
            awaited: request.flags.awaited,
        };
        let burst = sending.next_message(cx, limit, &message, responder.is_answering())?;
        self.take(cx, 1);
        responder.on_confirmation_left(cx);
        Some(burst)
    }
}
