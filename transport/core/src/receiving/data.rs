//! Records payload that is in its place or on its way there, completes Transfers, and confirms them. Hot path.

use super::Receiving;
use super::confirmations::Done;
use super::eager::Hold;
use super::inbound::{Announcement, Inbound, InboundEvent, Origin};
use super::placement::{Accepted, Claim, Placement};
use crate::context::{Context, Debt};
use crate::counters::DropReason;
use crate::event::Event;
use crate::limits;
use crate::profile::Conduct;
use crate::recovery::Timed;
use crate::span::Span;
use crate::timers::Timer;
use crate::transfer::{Delivery, TransferId};
use zerolane_wire::{Flags, Header, Occasion, Report, RequestToSend, State};

impl Receiving {
    /// Takes the header of a run of STUs of `stu` bytes, with its claim, and returns the payload's place.
    pub(crate) fn on_data(
        &mut self,
        cx: &mut Context,
        header: &Header,
        claim: Result<Claim, DropReason>,
        stu: u32,
    ) -> Result<Span, DropReason> {
        let asked = header.flags.contains(Flags::SEND_STATE) && cx.profile.reports_progress();
        let is_got = |it: &Inbound| matches!(it.origin, Origin::Got { .. });
        let got = asked && self.inbox.get(header.d_id).is_some_and(is_got);
        let placed = claim.and_then(|it| self.record(cx, header, it, stu));
        // A complete Transfer has just been confirmed, with its progress; a Get has not.
        if asked && (placed.is_err() || got || self.inbox.get(header.d_id).is_some()) {
            self.report_progress(cx, header.d_id);
        }
        placed
    }

    /// Takes a Transfer announced by its payload. True if it is new: the caller must match it with its target.
    pub(crate) fn on_eager_announced(
        &mut self,
        cx: &mut Context,
        rts: &RequestToSend,
    ) -> Result<bool, DropReason> {
        if rts.length > u64::from(cx.eager().limit) {
            return Err(DropReason::Limit);
        }
        match self.inbox.announce(rts) {
            Announcement::New => {
                self.inbox.arrivals.begin(cx.now, rts);
                Ok(true)
            }
            Announcement::Repeated(slot) if slot.is_over() => Err(DropReason::Duplicate),
            Announcement::Repeated(_) => Ok(false),
            Announcement::Old => Err(DropReason::Duplicate),
            Announcement::TooMany => Err(DropReason::Limit),
        }
    }

    /// Holds an unmatched Transfer, within the credit that this end gave its peer. A Transfer beyond the credit is
    /// dropped, and granted once a receive is posted.
    pub(crate) fn hold(&mut self, cx: &mut Context, rts: &RequestToSend) -> Result<(), DropReason> {
        let arrivals = &mut self.inbox.arrivals;
        if arrivals.get_mut(rts.sequence).is_none_or(|it| it.id() != 0) {
            return Ok(());
        }
        if arrivals.held() > u64::from(cx.eager().credit) {
            arrivals.forget(rts.sequence);
            return Err(DropReason::Limit);
        }
        cx.counters.eager_held += 1;
        Ok(())
    }

    /// Answers the SEND_STATE of eager Data, unless it completed its Transfer, which has just been confirmed with its
    /// progress.
    pub(crate) fn answer_eager(&mut self, cx: &mut Context, header: &Header, dropped: bool) {
        let arrival = self.inbox.arrivals.get_mut(header.b_num);
        if header.flags.contains(Flags::SEND_STATE) && (dropped || arrival.is_some()) {
            let id = arrival.map_or(0, |it| it.id());
            self.report_progress(cx, id);
        }
    }

    /// Takes the header of a run of eager STUs, which imply the announcement `rts`.
    pub(crate) fn on_eager(
        &mut self,
        cx: &mut Context,
        rts: &RequestToSend,
        header: &Header,
        len: u32,
        stu: u32,
    ) -> Result<Placement, DropReason> {
        let start = header.offset;
        let taken = self.inbox.arrivals.accept(rts, start, len)?;
        cx.recovery.progress();
        cx.counters.eager_received += u64::from(taken.first);
        self.note_received(cx, header, taken.new_bytes);
        if len > stu || header.flags.contains(Flags::SILENT) {
            self.peer_stu = stu;
        }
        let ends = u64::from(start) + u64::from(len) == rts.length;
        let delivery = match ends && header.flags.contains(Flags::SEND_STATE) {
            true => Some(delivery(header.flags)),
            false => None,
        };
        self.watch_rest(cx, rts.sequence);
        let Some((id, span)) = taken.place else {
            if let (Some(arrival), Some(delivery)) =
                (self.inbox.arrivals.get_mut(rts.sequence), delivery)
            {
                arrival.delivery = delivery;
            }
            return Ok(Placement::Hold(Hold {
                number: rts.sequence,
                length: rts.length as u32,
                start,
            }));
        };
        if let Some(transfer) = self.inbox.get_mut(id) {
            transfer.received += u64::from(taken.new_bytes);
            transfer.delivery = delivery.unwrap_or(transfer.delivery);
            if transfer.received == transfer.span.len {
                self.transfer_complete(cx, id);
            }
        }
        Ok(Placement::Eager(span))
    }

    /// Marks claimed payload as received, and moves nothing.
    fn record(
        &mut self,
        cx: &mut Context,
        header: &Header,
        claim: Claim,
        stu: u32,
    ) -> Result<Span, DropReason> {
        let len = claim.span().len as u32;
        let accepted = self.inbox.grants.accept(cx.now, claim)?;
        cx.recovery.progress();
        cx.recovery.answered(Timed::Grant(header.d_id), cx.now);
        self.note_received(cx, header, accepted.new_bytes);
        self.trains.on_arrived(cx.now, len.div_ceil(stu.max(1)));
        if accepted.shows_size(len, stu, header.flags.contains(Flags::SILENT)) {
            self.peer_stu = stu;
        }
        if cx.profile.repairs_ranges() {
            self.note_order(cx, &accepted, len);
        }
        self.note_arrival(header, &accepted);
        if accepted.block_complete {
            self.inbox.grants.revoke(accepted.sequence);
            self.block_complete(cx, header);
        } else if self.has_room_to_grant(cx) {
            // Payload missing of earlier Blocks must not delay the next grants.
            cx.owe(Debt::Grant);
        }
        Ok(accepted.span)
    }

    /// A train of `datagrams` datagrams was accepted.
    pub(crate) fn on_train(&mut self, datagrams: u32) {
        self.trains.on_train(datagrams);
    }

    /// Numbered operations arrived that fill so many datagrams.
    pub(crate) fn on_operations(&mut self, cx: &Context, datagrams: u32) {
        self.trains.on_arrived(cx.now, datagrams);
    }

    /// A numbered operation is missing.
    pub(crate) fn on_operation_lost(&mut self, cx: &Context) {
        self.trains.on_lost(cx.now);
    }

    /// Counts payload that a forecast misplaced, or did not place, and that was moved.
    pub(crate) fn on_moved(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    fn note_arrival(&mut self, header: &Header, accepted: &Accepted) {
        let Some(transfer) = self.inbox.get_mut(header.d_id) else {
            return;
        };
        transfer.received += u64::from(accepted.new_bytes);
        let got = matches!(transfer.origin, Origin::Got { .. });
        let is_last = accepted.transfer_end == transfer.span.len;
        if !got && is_last && header.flags.contains(Flags::SEND_STATE) {
            transfer.delivery = delivery(header.flags);
        }
    }

    fn block_complete(&mut self, cx: &mut Context, last: &Header) {
        let id = last.d_id;
        let done = self.inbox.get(id).is_some_and(|t| t.received == t.span.len);
        if done {
            self.transfer_complete(cx, id);
        } else if last.flags.contains(Flags::SEND_STATE) && cx.profile.confirms_blocks() {
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
        cx.push_state(state);
    }

    /// A Transfer arrived completely: tells the sender and the user.
    pub(super) fn transfer_complete(&mut self, cx: &mut Context, id: TransferId) {
        let Some(transfer) = self.inbox.end(id, InboundEvent::AllArrived) else {
            return;
        };
        let length = transfer.span.len;
        if !matches!(transfer.origin, Origin::Got { .. }) {
            let (message, is_awaited) = match transfer.origin {
                Origin::Message {
                    number, awaited, ..
                } => (Some(number), awaited),
                _ => (None, false),
            };
            let done = Done {
                peer: transfer.peer,
                id,
                blocks: transfer.next_b_num,
                message,
            };
            // Granted Transfers are large, so their answer is not urgent. But their memory may be posted again, and
            // granted in advance; the last Transfer of a stream is not delayed.
            let goes_on = cx.gives_advance_grants() && self.inbox.has_more();
            let may_wait = !is_awaited && (done.blocks == 0 || goes_on);
            match may_wait && self.confirmations.hold(cx.now, done) {
                true => cx
                    .timers
                    .set_earlier(Timer::Confirmations, cx.now + limits::CONFIRM_DELAY),
                false => self.confirm(cx, done),
            }
        }
        match transfer.origin {
            Origin::Region(_) => cx.owe(Debt::Show),
            Origin::Message { control, .. } => cx.events.push_back(Event::Message {
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

/// Confirmations of complete Transfers.
impl Receiving {
    fn confirm(&self, cx: &mut Context, done: Done) {
        let state = State {
            occasion: Occasion::Seen(self.seen_burst()),
            report: self.progress(cx),
            ..complete(done.peer, done.id, done.blocks)
        };
        cx.push_state(state);
        if let Some(number) = done.message {
            cx.confirmed_below = Some(number.wrapping_add(1));
        }
    }

    /// Sends the confirmations that waited for an answer.
    pub(crate) fn confirm_waiting(&mut self, cx: &mut Context) {
        cx.timers.stop(Timer::Confirmations);
        for done in self.confirmations.take() {
            self.confirm(cx, done);
        }
    }

    /// Payload, operations or advance grants leave: the waiting confirmations follow.
    pub(crate) fn on_departed(&mut self, cx: &mut Context) {
        self.confirmations.on_departed(cx.now);
        self.confirm_waiting(cx);
    }

    /// Nothing left that the waiting confirmations could have followed.
    pub(crate) fn on_confirmations_timeout(&mut self, cx: &mut Context) {
        self.confirmations.on_timeout();
        self.confirm_waiting(cx);
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

/// The State that confirms a Transfer of `blocks` Blocks.
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
