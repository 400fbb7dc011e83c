//! What begins when: in order, as far as order and room permit.

use super::OneSided;
use crate::Delivery;
use crate::context::{Context, Debt};
use crate::limits::{MAX_FETCHES, MAX_POSTED, MAX_SMALL};
use crate::receiving::Receiving;
use crate::request::{Request, RequestKind};
use crate::sending::Sending;
use zerolane_wire::{Immediate, Profile, Target};

impl OneSided {
    /// Begins what was asked for, in order, as far as order and room permit.
    pub(crate) fn start(
        &mut self,
        cx: &mut Context,
        sending: &mut Sending,
        receiving: &mut Receiving,
    ) {
        while let Some(&request) = self.queued.front() {
            if !self.may_start(cx, &request, sending, receiving) {
                break;
            }
            self.queued.pop_front();
            self.begin(cx, request, sending, receiving);
            cx.owe(Debt::Peer);
        }
    }

    fn may_start(
        &self,
        cx: &Context,
        request: &Request,
        sending: &Sending,
        receiving: &Receiving,
    ) -> bool {
        let putting = sending.is_putting();
        if request.flags.fence && (putting || receiving.is_getting() || self.has_outstanding()) {
            return false;
        }
        match &request.kind {
            kind if is_transfer(cx, kind, putting) => sending.len() < MAX_POSTED,
            // A get sees the puts before it, and so does the receiver of a message.
            RequestKind::Get { .. } | RequestKind::Message { .. } if putting => false,
            RequestKind::Get { span, .. } if !is_short(cx, span.len) => {
                receiving.len() < MAX_POSTED
            }
            RequestKind::Get { .. } => self.gets.has_room(),
            kind => self.send_queue.has_room(kind, max_fetches(cx)),
        }
    }

    /// Whether a small operation or a short Get is not complete.
    fn has_outstanding(&self) -> bool {
        !self.send_queue.is_empty() || !self.gets.is_empty()
    }

    fn begin(
        &mut self,
        cx: &mut Context,
        request: Request,
        sending: &mut Sending,
        receiving: &mut Receiving,
    ) {
        let Request { id, kind, .. } = request;
        match kind {
            RequestKind::Put {
                place,
                span,
                immediate,
            } if is_transfer(cx, &kind, sending.is_putting()) => {
                let immediate = immediate.map(|value| Immediate {
                    value,
                    after: self.send_queue.next_number(),
                });
                let target = Target::Region(cx.wire_place(place), immediate);
                sending.post_as(cx, id, span, Delivery::Silent, target);
            }
            RequestKind::Get { span, .. } if span.len == 0 => super::get::got(cx, id, 0),
            RequestKind::Get { place, span } if !is_short(cx, span.len) => {
                receiving.begin_get(cx, id, span, place, self.send_queue.next_number());
            }
            RequestKind::Get { place, span } => self.ask(cx, id, place, span),
            RequestKind::Message {
                payload: Some(payload),
                ..
            } => {
                let number = self.send_queue.push(cx.now, request);
                let target = Target::Message(number);
                sending.post_as(cx, id, payload, Delivery::Interrupt, target);
            }
            _ => {
                self.send_queue.push(cx.now, request);
            }
        }
    }
}

/// The thesis's Responder takes one FetchOp at a time.
fn max_fetches(cx: &Context) -> usize {
    match cx.profile {
        Profile::Classic => 1,
        Profile::Extended => MAX_FETCHES,
    }
}

/// Whether it is a put that is announced as a Transfer: too long for one datagram, or with an immediate that
/// is to follow puts which are in flight as Transfers.
fn is_transfer(cx: &Context, kind: &RequestKind, putting: bool) -> bool {
    match kind {
        RequestKind::Put {
            place,
            span,
            immediate,
        } => putting && immediate.is_some() || !is_small(cx, place.address, span.len),
        _ => false,
    }
}

/// Whether a put is one datagram: short, and within one buffer of the peer.
fn is_small(cx: &Context, address: u64, len: u64) -> bool {
    let max_stu = cx.peer.map_or(MAX_SMALL, |peer| peer.max_stu);
    let buffer = 1u64 << cx.peer_buffer_log2();
    let in_buffer = address & (buffer - 1);
    is_short(cx, len) && len <= u64::from(max_stu) && in_buffer + len <= buffer
}

/// Whether so many bytes and what is around them fit a datagram that every path carries.
fn is_short(cx: &Context, len: u64) -> bool {
    len + cx.config.seal as u64 <= u64::from(MAX_SMALL)
}
