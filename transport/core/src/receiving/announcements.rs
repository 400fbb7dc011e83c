//! Handles the peer's announcements: matches them with receives and Reads, answers repeats, and refuses.

use super::Receiving;
use super::data::complete;
use super::inbound::{Announcement, InboundState, Matched, Slot};
use crate::context::{Context, Debt, Refusal};
use crate::counters::DropReason;
use crate::event::{Event, TransferError};
use crate::limits;
use crate::time::Instant;
use crate::timers::Timer;
use crate::transfer::TransferId;
use alloc::vec::Vec;
use zerolane_wire::{
    Answer, Occasion, Operation, Reason, RequestAnswer, RequestState, RequestToReceive,
    RequestToSend, State, Target,
};

impl Receiving {
    /// Takes an announcement. True if it is new: the caller must match it with its target.
    pub(crate) fn on_request_to_send(
        &mut self,
        cx: &mut Context,
        rts: &RequestToSend,
    ) -> Result<bool, DropReason> {
        match self.inbox.announce(rts) {
            Announcement::New => {
                // Operations behind it may have waited for it alone.
                cx.owe(Debt::Show);
                return Ok(true);
            }
            Announcement::Repeated(slot) => self.answer_again(cx, rts, slot),
            Announcement::Old => return Err(DropReason::Duplicate),
            Announcement::TooMany => return Err(DropReason::Limit),
        }
        Ok(false)
    }

    /// The announcement that the first train of the peer's Transfer `s_id` implies: as long as Block 0, which was
    /// granted in advance to receive `id`. `None` if another announcement matched that receive.
    pub(crate) fn announced_by_train(&self, id: TransferId, s_id: u32) -> Option<RequestToSend> {
        let (sequence, length) = self.inbox.granted_as_one(id)?;
        Some(RequestToSend {
            length,
            s_id,
            target: Target::Receive,
            sequence,
            send_state: true,
        })
    }

    fn answer_again(&mut self, cx: &mut Context, rts: &RequestToSend, slot: Slot) {
        match slot.state {
            InboundState::Announced | InboundState::Unheard => cx.answer_later(rts.s_id),
            InboundState::Receiving if self.waits_for_grants(slot.id) => {
                cx.answer_later(rts.s_id);
            }
            InboundState::Receiving => {
                if self.inbox.get(slot.id).is_some_and(|it| it.in_advance) {
                    // Its source asks until it knows that the announcement was heard.
                    self.report_progress(cx, slot.id);
                }
                self.repeat_grants(cx, slot.id);
                self.ask_for_rest(cx, rts.sequence);
            }
            InboundState::Complete => {
                let state = complete(rts.s_id, slot.id, u32::MAX);
                cx.push_state(state);
            }
            InboundState::Ended => cx.refuse(rts.s_id, slot.refusal),
        }
    }

    /// Whether a matched Transfer has no grant yet because others come first.
    fn waits_for_grants(&self, id: TransferId) -> bool {
        self.inbox.get(id).is_some_and(|it| it.granted == 0)
    }

    /// Takes a new announcement for the next receive: matches it, or keeps it until one is posted.
    pub(crate) fn on_announced(&mut self, cx: &mut Context, rts: &RequestToSend) {
        let had_posted = !self.inbox.posted.is_empty();
        self.match_announcements(cx);
        let slot = self.inbox.find(rts.s_id);
        if !slot.is_some_and(|it| it.state == InboundState::Announced) {
            return;
        }
        cx.answer_later(rts.s_id);
        // One hint is enough until the user reads it: a peer must not fill our memory with them.
        let hinted = |event: &Event| matches!(event, Event::Announced { .. });
        if !had_posted && !cx.events.iter().any(hinted) {
            let length = rts.length;
            cx.events.push_back(Event::Announced { length });
        }
    }

    /// Takes a new announcement that answers Read `reader` of this end.
    pub(crate) fn on_read_announced(
        &mut self,
        cx: &mut Context,
        reader: TransferId,
        rts: &RequestToSend,
    ) {
        match self.inbox.match_read(reader, rts) {
            Some(matched) => self.on_matched(cx, matched),
            None => self.refuse_announcement(cx, rts, Refusal::CANCELLED),
        }
        cx.owe(Debt::Match);
        cx.owe(Debt::Read);
    }

    /// Refuses an announcement permanently.
    pub(crate) fn refuse_announcement(
        &mut self,
        cx: &mut Context,
        rts: &RequestToSend,
        why: Refusal,
    ) {
        self.inbox.refuse(rts.sequence, why);
        cx.refuse(rts.s_id, why);
    }

    /// Matches announcements with posted receives.
    pub(crate) fn match_announcements(&mut self, cx: &mut Context) {
        while let Some(matched) = self.inbox.match_next(cx.now) {
            self.on_matched(cx, matched);
        }
        cx.owe(Debt::Grant);
    }

    fn on_matched(&mut self, cx: &mut Context, matched: Matched) {
        match matched {
            Matched::TooLarge { posted, rts } => {
                let (length, room) = (rts.length, posted.span.len);
                let reason = Reason::MessageTooLarge;
                cx.refuse(rts.s_id, Refusal { reason, room });
                cx.events.push_back(Event::Failed {
                    id: posted.id,
                    error: TransferError::MessageTooLarge { length, room },
                });
            }
            Matched::Receiving { id, rts } => self.on_receiving(cx, id, &rts),
        }
    }

    /// A Transfer matched its memory: grants it, or completes it if all its bytes are here, as for one of no bytes.
    pub(super) fn on_receiving(&mut self, cx: &mut Context, id: TransferId, rts: &RequestToSend) {
        let received = self.inbox.get(id).map_or(0, |it| it.received);
        if received < rts.length {
            if self.inbox.grants.outstanding() > 0 {
                // Some of it may have been granted in advance.
                let due = cx.now + cx.recovery.data_timeout();
                cx.timers.set_earlier(Timer::Payload, due);
            }
            return cx.owe(Debt::Grant);
        }
        self.transfer_complete(cx, id);
    }

    /// Repeats the grants of a Transfer of which nothing came.
    fn repeat_grants(&mut self, cx: &mut Context, id: TransferId) {
        let untouched: Vec<u32> = self
            .inbox
            .grants
            .iter()
            .filter(|(_, block)| block.transfer == id && block.reached == 0)
            .map(|(sequence, _)| sequence)
            .take(limits::MAX_GRANTS_REPEATED)
            .collect();
        for sequence in untouched {
            self.send_grant(cx, sequence);
        }
    }

    /// Takes a question about a Transfer of the peer.
    pub(crate) fn on_request_state(&mut self, cx: &mut Context, it: &RequestState) {
        let occasion = Occasion::Reply(it.sync);
        let slot = self.inbox.find(it.s_id);
        let state = match slot.map(|slot| (slot.state, slot)) {
            Some((InboundState::Complete, slot)) => State {
                occasion,
                ..complete(it.s_id, slot.id, u32::MAX)
            },
            Some((InboundState::Receiving, slot)) => {
                return self.answer_state(cx, slot.id, occasion);
            }
            Some((InboundState::Announced, _)) => return cx.answer_later(it.s_id),
            Some((InboundState::Ended, slot)) => return cx.refuse(it.s_id, slot.refusal),
            Some((InboundState::Unheard, _)) | None => State {
                occasion,
                complete: false,
                unknown: true,
                ..complete(it.s_id, 0, 0)
            },
        };
        cx.push_state(state);
    }

    /// Reports the state of a Transfer being received, and asks for missing payload.
    fn answer_state(&mut self, cx: &mut Context, id: TransferId, occasion: Occasion) {
        let state = State {
            occasion,
            ..self.state_of(id)
        };
        cx.push_state(state);
        // Grants that the sender does not know of are repeated. Payload missing of known grants is left to the payload
        // timer, whose patience follows from the recovery.
        self.repeat_grants(cx, id);
    }
}

/// Reads of this end.
impl Receiving {
    /// Sends queued Reads, as far as the peer has slots.
    pub(crate) fn ask_reads(&mut self, cx: &mut Context) {
        let slots = cx.peer_slots();
        while let Some(id) = self.inbox.reads.ask_next(slots) {
            self.send_read(cx, id);
        }
    }

    /// Sends, or repeats, a Read.
    pub(crate) fn send_read(&mut self, cx: &mut Context, id: TransferId) {
        let wait = cx.recovery.control_timeout();
        let Some(read) = self.inbox.reads.get_mut(id) else {
            return;
        };
        let Some(sequence) = read.sequence else {
            return;
        };
        read.resend_at = cx.now + wait;
        cx.push_control(Operation::RequestToReceive(RequestToReceive {
            capacity: read.span.len,
            s_id: id,
            sequence,
        }));
        cx.timers.set_earlier(Timer::Answers, cx.now + wait);
        cx.owe(Debt::Peer);
    }

    /// Reads to repeat, each with whether it is unanswered.
    pub(crate) fn reads_due(&self, now: Instant) -> Vec<(TransferId, bool)> {
        let asked = self.inbox.reads.asked();
        let due = asked.filter(|(_, read)| read.resend_at <= now);
        due.map(|(id, read)| (id, !read.waiting)).collect()
    }

    /// When the next Read must be repeated.
    pub(crate) fn next_answer_due(&self) -> Option<Instant> {
        let asked = self.inbox.reads.asked();
        asked.map(|(_, read)| read.resend_at).min()
    }

    /// Takes the answer to a Read. False if it answers something else.
    pub(crate) fn on_read_answered(&mut self, cx: &mut Context, it: &RequestAnswer) -> bool {
        let Some(read) = self.inbox.reads.get_mut(it.d_id) else {
            return false;
        };
        match it.answer {
            Answer::Later(_) => {
                read.waiting = true;
                read.resend_at = cx.now + limits::WAITING_INTERVAL;
            }
            Answer::Refused(reason) => {
                let read = self.inbox.reads.remove(it.d_id);
                if let Some(sequence) = read.and_then(|read| read.sequence) {
                    self.inbox.reads.resolve(sequence);
                }
                let error = TransferError::Refused(reason);
                cx.events.push_back(Event::Failed { id: it.d_id, error });
                cx.owe(Debt::Read);
            }
        }
        true
    }
}
