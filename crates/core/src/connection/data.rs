//! Payload headers in, placements out. The hot path.

use super::Connection;
use crate::exports::HANDLE;
use crate::grants::{Accepted, Order};
use crate::inbound::{Happening, Inbound, Origin};
use crate::recovery::Timed;
use crate::{Delivery, DropReason, Event, Instant, Life, Placement, Span, TransferId};
use zerolane_wire::{Flags, Header, Occasion, Op, Operation, Profile, Report, State};

impl Connection {
    /// Takes the header of a Data operation whose payload has `len` bytes, and says where the
    /// payload belongs. Consecutive STUs that continue each other ([`continues`]), of which only the
    /// last may be shorter, may be shown as one run: `header` and `stu` (payload bytes) are the
    /// first one's, `len` is the sum.
    ///
    /// `landed` is where the payload lies already, if it was placed by forecast. The lane moves
    /// payload as told before it polls events or transmits.
    ///
    /// [`continues`]: Header::continues
    pub fn on_data(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
        stu: u32,
        landed: Option<Span>,
    ) -> Placement {
        let stus = len.div_ceil(stu.max(1)).max(1);
        self.counters.stus_received += u64::from(stus);
        match self.judge(now, header, len, stu) {
            Ok(Placement::Move(span)) if landed == Some(span) => Placement::InPlace,
            Ok(Placement::Move(span)) => {
                self.moved += span.len;
                Placement::Move(span)
            }
            Ok(placement) => placement,
            Err(reason) => {
                self.counters.count_drop(reason, u64::from(stus));
                Placement::Drop(reason)
            }
        }
    }

    /// Counts a datagram the lane dropped itself: a wrong checksum, or one that it could not open.
    pub fn on_dropped(&mut self, reason: DropReason) {
        self.counters.count_drop(reason, 1);
    }

    fn judge(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Placement, DropReason> {
        if header.op != Op::Data {
            return Err(DropReason::Unexpected);
        }
        if header.d_port != self.route.s_port || header.d_key != self.entropy.key {
            return Err(DropReason::WrongKey);
        }
        if self.life != Life::Established {
            return Err(DropReason::Unexpected);
        }
        if header.d_id & HANDLE != 0 {
            self.heard(now);
            return self.on_put(now, header, len);
        }
        if let Some(placement) = self.on_reply(now, header, len)? {
            self.heard(now);
            return Ok(placement);
        }
        self.accept(now, header, len, stu).map(Placement::Move)
    }

    fn accept(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Span, DropReason> {
        self.note_burst(now, header);
        let asked = header.flags.contains(Flags::SEND_STATE) && self.profile == Profile::Extended;
        let is_got = |it: &Inbound| matches!(it.origin, Origin::Got { .. });
        let got = asked && self.inbox.get(header.d_id).is_some_and(is_got);
        let placed = self.place(now, header, len, stu);
        // A Transfer that is complete has just been confirmed, progress and all; but a Get is not.
        if asked && (placed.is_err() || got || self.inbox.get(header.d_id).is_some()) {
            self.tell_progress(now, header.d_id);
        }
        placed
    }

    fn place(
        &mut self,
        now: Instant,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Span, DropReason> {
        let accepted = self.inbox.grants.accept(now, header, len)?;
        self.heard(now);
        self.recovery.progress();
        self.recovery.answered(Timed::Grant(header.d_id), now);
        self.counters.bytes_received += u64::from(accepted.new_bytes);
        let min_rtt = self.recovery.min_rtt();
        self.credit.arrived(now, accepted.new_bytes, min_rtt);
        // The last STU of a Block may be short, and so may a repair; any other shows the size.
        let expected = accepted.order == Order::Next;
        if len > stu || expected && header.flags.contains(Flags::SILENT) {
            self.peer_stu = stu;
        }
        if self.profile == Profile::Extended {
            self.note_order(now, &accepted, len);
        }
        self.note_arrival(header.d_id, header, &accepted);
        if accepted.block_complete {
            self.inbox.grants.revoke(accepted.sequence);
            self.block_complete(now, header);
        } else if self.has_room_to_grant() {
            // What is missing of the Blocks before must not hold up the next ones.
            self.grant(now);
        }
        Ok(accepted.span)
    }

    fn note_arrival(&mut self, id: TransferId, header: &Header, accepted: &Accepted) {
        let grants = &self.inbox.grants;
        let place = grants.get(accepted.sequence);
        let end =
            place.map(|it| it.transfer_offset + u64::from(accepted.start) + accepted.span.len);
        let Some(transfer) = self.inbox.get_mut(id) else {
            return;
        };
        transfer.received += u64::from(accepted.new_bytes);
        let got = matches!(transfer.origin, Origin::Got { .. });
        if !got && end == Some(transfer.span.len) && header.flags.contains(Flags::SEND_STATE) {
            transfer.delivery = delivery(header.flags);
        }
    }

    fn block_complete(&mut self, now: Instant, last: &Header) {
        let id = last.d_id;
        let done = self.inbox.get(id).is_some_and(|t| t.received == t.span.len);
        if done {
            self.transfer_complete(now, id);
        } else if last.flags.contains(Flags::SEND_STATE) && self.profile == Profile::Classic {
            self.confirm_block(id, last);
        }
        self.grant(now);
    }

    /// Answers the SEND_STATE of a Block that is complete (classic profile).
    fn confirm_block(&mut self, id: TransferId, last: &Header) {
        let state = State {
            occasion: Occasion::Reply(last.sync),
            b_num: last.b_num,
            ..self.state_of(id)
        };
        self.push_control(Operation::State(state));
    }

    pub(super) fn transfer_complete(&mut self, now: Instant, id: TransferId) {
        let Some(transfer) = self.inbox.end(id, Happening::AllArrived) else {
            return;
        };
        let length = transfer.span.len;
        if !matches!(transfer.origin, Origin::Got { .. }) {
            let state = State {
                occasion: Occasion::Seen(self.seen_burst()),
                report: self.progress(now),
                ..complete(transfer.peer, id, transfer.next_b_num)
            };
            self.push_control(Operation::State(state));
        }
        match transfer.origin {
            Origin::Region(_) => {}
            Origin::Message(control) => self.events.push_back(Event::Message {
                id,
                control,
                payload: length,
            }),
            Origin::Posted | Origin::Got { .. } => self.events.push_back(Event::Received {
                id,
                length,
                delivery: transfer.delivery,
            }),
        }
        self.grant(now);
        self.start_works(now);
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
