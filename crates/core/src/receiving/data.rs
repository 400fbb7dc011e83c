//! Payload headers in, placements out. The hot path.

use super::Receiving;
use super::inbound::{Inbound, InboundEvent, Origin};
use super::placement::{Accepted, Arrival};
use crate::context::{Context, Debt};
use crate::recovery::Timed;
use crate::{Delivery, DropReason, Event, Span, TransferId};
use zerolane_wire::{Flags, Header, Occasion, Operation, Profile, Report, State};

impl Receiving {
    /// Whether the placement table holds the grant that `header` names.
    pub(crate) fn is_granted(&self, header: &Header) -> bool {
        self.inbox.grants.find(header).is_some()
    }

    /// Takes the header of a run of STUs whose payload has `len` bytes, and says where it belongs.
    pub(crate) fn on_data(
        &mut self,
        cx: &mut Context,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Span, DropReason> {
        self.note_burst(cx.now, header);
        let asked = header.flags.contains(Flags::SEND_STATE) && cx.profile == Profile::Extended;
        let is_got = |it: &Inbound| matches!(it.origin, Origin::Got { .. });
        let got = asked && self.inbox.get(header.d_id).is_some_and(is_got);
        let placed = self.place(cx, header, len, stu);
        // A Transfer that is complete has just been confirmed, progress and all; but a Get is not.
        if asked && (placed.is_err() || got || self.inbox.get(header.d_id).is_some()) {
            self.tell_progress(cx, header.d_id);
        }
        placed
    }

    fn place(
        &mut self,
        cx: &mut Context,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Span, DropReason> {
        let accepted = self.inbox.grants.accept(cx.now, header, len)?;
        cx.recovery.progress();
        cx.recovery.answered(Timed::Grant(header.d_id), cx.now);
        cx.counters.bytes_received += u64::from(accepted.new_bytes);
        let min_rtt = cx.recovery.min_rtt();
        self.receive_window
            .arrived(cx.now, accepted.new_bytes, min_rtt);
        // The last STU of a Block may be short, and so may a repair; any other shows the size.
        let expected = accepted.order == Arrival::Next;
        if len > stu || expected && header.flags.contains(Flags::SILENT) {
            self.peer_stu = stu;
        }
        if cx.profile == Profile::Extended {
            self.note_order(cx, &accepted, len);
        }
        self.note_arrival(header, &accepted);
        if accepted.block_complete {
            self.inbox.grants.revoke(accepted.sequence);
            self.block_complete(cx, header);
        } else if self.has_room_to_grant(cx) {
            // What is missing of the Blocks before must not hold up the next ones.
            cx.owe(Debt::Grant);
        }
        Ok(accepted.span)
    }

    /// Payload that a forecast placed elsewhere, or nowhere, is moved.
    pub(crate) fn on_moved(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    fn note_arrival(&mut self, header: &Header, accepted: &Accepted) {
        let grants = &self.inbox.grants;
        let place = grants.get(accepted.sequence);
        let end =
            place.map(|it| it.transfer_offset + u64::from(accepted.start) + accepted.span.len);
        let Some(transfer) = self.inbox.get_mut(header.d_id) else {
            return;
        };
        transfer.received += u64::from(accepted.new_bytes);
        let got = matches!(transfer.origin, Origin::Got { .. });
        if !got && end == Some(transfer.span.len) && header.flags.contains(Flags::SEND_STATE) {
            transfer.delivery = delivery(header.flags);
        }
    }

    fn block_complete(&mut self, cx: &mut Context, last: &Header) {
        let id = last.d_id;
        let done = self.inbox.get(id).is_some_and(|t| t.received == t.span.len);
        if done {
            self.transfer_complete(cx, id);
        } else if last.flags.contains(Flags::SEND_STATE) && cx.profile == Profile::Classic {
            self.confirm_block(cx, id, last);
        }
        cx.owe(Debt::Grant);
    }

    /// Answers the SEND_STATE of a Block that is complete (classic profile).
    fn confirm_block(&mut self, cx: &mut Context, id: TransferId, last: &Header) {
        let state = State {
            occasion: Occasion::Reply(last.sync),
            b_num: last.b_num,
            ..self.state_of(id)
        };
        cx.push_control(Operation::State(state));
    }

    /// All of a Transfer arrived: the sender and the user are told.
    pub(super) fn transfer_complete(&mut self, cx: &mut Context, id: TransferId) {
        let Some(transfer) = self.inbox.end(id, InboundEvent::AllArrived) else {
            return;
        };
        let length = transfer.span.len;
        if !matches!(transfer.origin, Origin::Got { .. }) {
            let state = State {
                occasion: Occasion::Seen(self.seen_burst()),
                report: self.progress(cx),
                ..complete(transfer.peer, id, transfer.next_b_num)
            };
            cx.push_control(Operation::State(state));
        }
        match transfer.origin {
            Origin::Region(_) => cx.owe(Debt::Show),
            Origin::Message(control) => cx.events.push_back(Event::Message {
                id,
                control,
                payload: length,
            }),
            Origin::Posted | Origin::Got { .. } => cx.events.push_back(Event::Received {
                id,
                length,
                delivery: transfer.delivery,
            }),
        }
        cx.owe(Debt::Grant);
        cx.owe(Debt::Start);
    }
}

fn delivery(flags: Flags) -> Delivery {
    if flags.contains(Flags::SILENT) {
        Delivery::Silent
    } else if flags.contains(Flags::INTERRUPT) {
        Delivery::Interrupt
    } else {
        Delivery::Polled
    }
}

/// The State that confirms a whole Transfer of `blocks` Blocks.
pub(super) fn complete(peer: u32, id: TransferId, blocks: u32) -> State {
    State {
        occasion: Occasion::Seen(0),
        complete: true,
        unknown: false,
        blocks_complete: blocks,
        b_num: blocks,
        reached: 0,
        d_id: peer,
        s_id: id,
        report: Report::NOTHING,
    }
}
