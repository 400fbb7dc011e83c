//! Sends this end's Transfers under congestion control, from announcement to confirmation.
//!
//! Also offers memory to the peer's Reads.

mod answers;
mod bursts;
mod datagrams;
mod ecn;
mod offers;
mod outbound;
mod paths;
mod sent_log;

pub(crate) use self::answers::Ended;
pub(crate) use self::bursts::shape;
pub(crate) use self::outbound::{BareMessage, Cut, Lost, OutboundState, Shape, without};
use self::paths::SendPath;
pub(crate) use self::sent_log::{SentLog, is_after};

use self::answers::waiting_interval;
use self::datagrams::Datagrams;
use self::offers::{Offer, Offers, ReadRequest};
use self::outbound::{Announcement, Outbound, OutboundEvent, Outbox, Withdrawal, Withdrawn};
use crate::congestion::{Congestion, GrantsOnly};
use crate::context::{Context, Debt};
use crate::counters::{DropReason, PathState};
use crate::event::{Event, TransferError};
use crate::limits;
use crate::recovery::Timed;
use crate::span::Span;
use crate::time::Instant;
use crate::timers::Timer;
use crate::transfer::{Delivery, TransferId};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::discriminant;
use smallvec::{SmallVec, smallvec};
use zerolane_wire::{End, Operation, Reason, RequestToSend, Target};

/// State of sending.
#[derive(Debug)]
pub(crate) struct Sending {
    outbox: Outbox,
    offers: Offers,
    datagrams: Datagrams,
    /// Limits of payload, per path.
    paths: SmallVec<[SendPath; 1]>,
    max_rate: Option<u64>,
    finish: Finish,
    /// Payload bytes sent for the first time.
    left: u64,
}

/// The end of sending, after which nothing matches the peer's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    No,
    /// Requested: waits until everything posted before is announced.
    Asked,
    /// The peer is told until it confirms.
    Told,
    /// The peer confirmed.
    Confirmed,
}

impl Sending {
    /// Nothing to send yet. Limits payload to `max_rate` bytes per second.
    pub(crate) fn new(max_rate: Option<u64>) -> Sending {
        Sending {
            outbox: Outbox::new(),
            offers: Offers::default(),
            datagrams: Datagrams::default(),
            paths: smallvec![SendPath::new(Box::new(GrantsOnly), max_rate)],
            max_rate,
            finish: Finish::No,
            left: 0,
        }
    }

    /// Transfers that are not over, or whose end the peer does not know.
    pub(crate) fn len(&self) -> usize {
        self.outbox.len()
    }

    /// Payload bytes sent for the first time. The peer granted them, except short payloads.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// As [`Sending::len`], including offers to Reads.
    pub(crate) fn posted(&self) -> usize {
        self.outbox.len() + self.offers.queue.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        let offers = self.offers.queue.iter().map(|offer| offer.id);
        offers.chain(self.outbox.ids())
    }

    pub(crate) fn has(&self, id: TransferId) -> bool {
        self.outbox.get(id).is_some()
    }

    /// The number of the message whose payload is Transfer `id`.
    pub(crate) fn message(&self, id: TransferId) -> Option<u32> {
        match self.outbox.get(id)?.target {
            Target::Message(number) => Some(number),
            _ => None,
        }
    }

    /// Whether a put is in flight as a Transfer.
    pub(crate) fn is_putting(&self) -> bool {
        self.outbox.is_putting()
    }

    /// Whether payload of more than half a datagram of `room` bytes was sent repeatedly, and nothing of it arrived.
    pub(crate) fn is_stuck(&self, room: u32) -> bool {
        self.outbox.is_stuck(room)
    }

    /// Whether a Transfer waits for a slot to be announced.
    pub(crate) fn is_to_announce(&self) -> bool {
        self.outbox.is_to_announce(|_| true)
    }

    /// The number that the next announcement gets.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.outbox.next_sequence()
    }

    /// Whether granted payload waits to be sent.
    pub(crate) fn has_data(&self) -> bool {
        self.outbox.has_data()
    }

    /// Whether payload that needs no grant waits to be sent.
    pub(crate) fn has_eager(&self) -> bool {
        self.outbox.has_eager()
    }

    /// Describes the path from the sender's side.
    pub(crate) fn describe(&self, path: usize, state: &mut PathState) {
        let (Some(it), Some(sent_log)) = (self.paths.get(path), self.outbox.sent_logs.get(path))
        else {
            return;
        };
        state.controller = it.congestion.name();
        state.congestion_window = it.congestion.window();
        state.pace = it.congestion.pace();
        state.in_flight = sent_log.bytes_in_flight();
        state.bytes_sent = sent_log.total();
        state.bytes_lost = it.lost;
    }

    pub(crate) fn set_congestion(&mut self, cx: &Context, congestion: Box<dyn Congestion>) {
        self.paths[0].congestion.controller = congestion;
        self.paths[0].congestion.on_new_path(cx.recovery.min_rtt());
    }

    pub(crate) fn set_max_rate(&mut self, max_rate: Option<u64>) {
        self.max_rate = max_rate;
        self.share_max_rate();
    }

    /// Whether datagrams should leave ECN-capable.
    pub(crate) fn wants_marks(&self, cx: &Context) -> bool {
        let only = &self.paths[0];
        !cx.links.is_several() && only.congestion.wants_marks() && only.ecn.may_work()
    }

    /// The first round trip was measured.
    pub(crate) fn on_first_rtt(&mut self, cx: &Context) {
        self.paths[0].congestion.on_new_path(cx.recovery.min_rtt());
    }

    /// The path to the peer changed.
    pub(crate) fn on_new_path(&mut self) {
        let first = &mut self.paths[0];
        first.congestion.on_new_path(None);
        first.ecn.forget();
        self.outbox.sent_logs[0].give_up();
    }

    /// Bursts in flight, for payload outside Transfers.
    pub(crate) fn sent_log(&self, path: usize) -> &SentLog {
        let logs = &self.outbox.sent_logs;
        logs.get(path).unwrap_or(&logs[0])
    }

    /// The path that last carried these bytes of a Block or of an answer.
    pub(crate) fn carrier(&self, id: TransferId, b_num: u32, range: (u32, u32)) -> usize {
        self.outbox.carrier(id, b_num, range)
    }

    /// Bytes in flight on all paths.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.outbox
            .sent_logs
            .iter()
            .map(SentLog::bytes_in_flight)
            .sum()
    }

    /// Continues as if `number` Transfers had been announced, and Reads matched, before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32) {
        self.outbox.age(number);
        self.offers.age(number);
    }

    #[cfg(test)]
    pub(crate) fn sent_log_mut(&mut self) -> &mut SentLog {
        &mut self.outbox.sent_logs[0]
    }

    pub(crate) fn assert_bounded(&self, slots: u16) {
        assert!(self.outbox.len() <= 2 * limits::MAX_POSTED);
        self.outbox.assert_bounded();
        self.assert_datagrams_bounded();
        self.offers.assert_bounded(slots);
    }
}

/// Posting and announcing.
impl Sending {
    /// Operation `number` is no message.
    pub(crate) fn on_no_message(&mut self, number: u32) {
        self.outbox.on_no_message(number);
    }

    /// Queues a Transfer for `target` with the identifier of the request that it executes.
    pub(crate) fn post(
        &mut self,
        cx: &mut Context,
        id: TransferId,
        span: Span,
        delivery: Delivery,
        target: Target,
    ) {
        self.outbox.post(id, span, delivery, target);
        cx.owe(Debt::Announce);
    }

    /// Offers `span` to the peer's next Read.
    pub(crate) fn offer(&mut self, cx: &mut Context, span: Span, delivery: Delivery) -> TransferId {
        let id = cx.new_id();
        self.offers.queue.push_back(Offer { id, span, delivery });
        cx.owe(Debt::Offer);
        cx.owe(Debt::Peer);
        id
    }

    /// Matches the peer's Reads with offers.
    pub(crate) fn match_offers(&mut self, cx: &mut Context) {
        while let Some((wanted, offer)) = self.offers.match_next() {
            let target = Target::Read(wanted.s_id);
            self.post(cx, offer.id, offer.span, offer.delivery, target);
        }
    }

    /// Announces queued Transfers, as far as the peer has slots.
    pub(crate) fn announce(&mut self, cx: &mut Context) {
        if !self.outbox.has_unnumbered() {
            return;
        }
        self.end_withdrawn(cx);
        let slots = cx.peer_slots();
        while let Some(id) = self.outbox.announce_next(slots) {
            let buffer_log2 = cx.peer_buffer_log2();
            if self.outbox.begin_eagerly(id, cx.peer_eager()) {
                cx.counters.eager_sent += 1;
                self.announce_by_payload(cx, id);
                continue;
            }
            // A plain train must be forecast, and nothing is forecast for unannounced Transfers: the Transfer may be
            // shorter than the grant, and no byte behind it may be written.
            let by_train = cx.config.seal > 0;
            match self
                .outbox
                .take_advance_grants(cx.now, id, buffer_log2, by_train)
            {
                Announcement::Sent => self.send_announcement(cx, id),
                Announcement::ByTrain => self.announce_by_payload(cx, id),
                Announcement::Deferred => self.defer_announcement(cx, id),
            }
        }
    }

    /// Finishes sending: nothing posted later matches a receive.
    pub(crate) fn ask_finish(&mut self, cx: &mut Context) {
        if self.finish == Finish::No {
            self.finish = Finish::Asked;
            cx.owe(Debt::Peer);
        }
    }

    /// Whether sending is finished or finishing.
    pub(crate) fn is_finishing(&self) -> bool {
        self.finish != Finish::No
    }

    /// Whether the peer must still be told, and an earlier post is not yet announced.
    pub(crate) fn waits_to_finish(&self) -> bool {
        self.finish == Finish::Asked
    }

    /// Whether the peer has not yet confirmed that this end finished sending.
    pub(crate) fn is_finish_unconfirmed(&self) -> bool {
        matches!(self.finish, Finish::Asked | Finish::Told)
    }

    /// The peer confirmed that this end finished sending.
    pub(crate) fn on_finish_confirmed(&mut self) {
        self.finish = Finish::Confirmed;
    }

    /// Tells the peer that nothing more matches a receive, and that no message comes from operation `number` on. Uses
    /// an End for a Transfer that was never announced, numbered behind all others.
    pub(crate) fn finish(&mut self, cx: &mut Context, number: u32) {
        let meets = |target| matches!(target, Target::Receive | Target::Message(_));
        if self.outbox.is_to_announce(meets) {
            return;
        }
        self.finish = Finish::Told;
        let id = cx.new_id();
        let why = Withdrawal::Finished { number };
        self.outbox.withdraw(Withdrawn { id, why });
        self.end_withdrawn(cx);
    }

    /// Assigns numbers to payloads that were cancelled before they were announced, and to the end of sending, as far as
    /// there are slots, and sends their Ends.
    fn end_withdrawn(&mut self, cx: &mut Context) {
        let slots = cx.peer_slots();
        while let Some((withdrawn, sequence)) = self.outbox.number_withdrawn(slots) {
            let (reason, d_id, follows) = match withdrawn.why {
                Withdrawal::Payload { number, reason } => (reason, 0, Some(number)),
                Withdrawal::Finished { number } => (Reason::Finished, number, None),
            };
            let end = End {
                reason,
                from_source: true,
                sequence,
                d_id,
                s_id: withdrawn.id,
            };
            cx.send_end_behind(end, follows);
        }
    }

    /// The payload of a Transfer announces it. A separate announcement follows if nothing is heard.
    fn announce_by_payload(&mut self, cx: &mut Context, id: TransferId) {
        let wait = cx.recovery.control_timeout();
        if let Some(transfer) = self.outbox.get_mut(id) {
            transfer.tries = 1;
            transfer.resend_at = cx.now + wait;
        }
        cx.timers.set_earlier(Timer::Answers, cx.now + wait);
        cx.owe(Debt::Peer);
    }

    /// Delays the announcement of a Transfer for a moment, in case an advance grant comes.
    fn defer_announcement(&mut self, cx: &mut Context, id: TransferId) {
        let at = cx.now + limits::ANNOUNCE_DELAY;
        if let Some(transfer) = self.outbox.get_mut(id) {
            transfer.resend_at = at;
        }
        cx.timers.set_earlier(Timer::Answers, at);
        cx.owe(Debt::Peer);
    }

    /// Sends, or repeats, the announcement of a Transfer.
    pub(crate) fn send_announcement(&mut self, cx: &mut Context, id: TransferId) {
        let wait = cx.recovery.control_timeout();
        self.outbox.announce(id);
        let Some(transfer) = self.outbox.get_mut(id) else {
            return;
        };
        transfer.tries = transfer.tries.saturating_add(1);
        transfer.resend_at = cx.now + wait;
        let first = transfer.tries == 1;
        cx.push_control(Operation::RequestToSend(RequestToSend {
            length: transfer.span.len,
            s_id: id,
            target: transfer.target,
            sequence: transfer.sequence,
            send_state: true,
        }));
        if first {
            cx.recovery.time(Timed::Announcement(id), cx.now);
        } else {
            cx.recovery.untime(Timed::Announcement(id));
        }
        cx.timers.set_earlier(Timer::Answers, cx.now + wait);
        cx.owe(Debt::Peer);
    }

    /// Announcements to repeat, each with whether it may have been lost. Of deferred Transfers, the first of each kind
    /// asks for all: none behind it has its turn before.
    pub(crate) fn announcements_due(&mut self, cx: &Context) -> Vec<(TransferId, bool)> {
        let now = cx.now;
        let mut due = vec![];
        let mut waiting = vec![];
        for (id, it) in self.outbox.iter_mut().filter(|(_, it)| is_asking(it)) {
            let waits = it.state == OutboundState::Waiting;
            let kind = discriminant(&it.target);
            if waits && waiting.contains(&kind) {
                it.resend_at = now + waiting_interval(cx, it);
                continue;
            }
            if waits {
                waiting.push(kind);
            }
            if it.resend_at <= now {
                let unanswered = !waits && it.announcement != Announcement::Deferred;
                due.push((id, unanswered));
            }
        }
        due
    }

    /// When the next announcement must be repeated.
    pub(crate) fn next_answer_due(&self) -> Option<Instant> {
        let asking = self.outbox.iter().filter(|(_, it)| is_asking(it));
        asking.map(|(_, it)| it.resend_at).min()
    }
}

/// Ends of Transfers.
impl Sending {
    /// Ends a Transfer that the peer knows to be over. Returns whether this call ended it.
    pub(crate) fn end(&mut self, cx: &mut Context, id: TransferId, event: OutboundEvent) -> bool {
        let Some(transfer) = self.outbox.on_event(id, event) else {
            return false;
        };
        self.outbox.resolve(transfer.sequence);
        cx.recovery.untime(Timed::Announcement(id));
        cx.recovery.progress();
        cx.owe(Debt::Announce);
        cx.owe(Debt::Start);
        true
    }

    /// Cancels a Transfer of this end, or an offer. False if it is neither.
    pub(crate) fn cancel(&mut self, cx: &mut Context, id: TransferId, reason: Reason) -> bool {
        let offers = self.offers.queue.len();
        self.offers.queue.retain(|offer| offer.id != id);
        self.cancel_transfer(cx, id, reason) || offers != self.offers.queue.len()
    }

    /// Cancels a Transfer of this end. False if it is none.
    pub(crate) fn cancel_transfer(
        &mut self,
        cx: &mut Context,
        id: TransferId,
        reason: Reason,
    ) -> bool {
        let Some(transfer) = self.outbox.get(id) else {
            return false;
        };
        let (state, end) = (transfer.state, end_of_source(id, transfer, reason));
        let follows = match transfer.target {
            Target::Message(number) if state != OutboundState::Sending => Some(number),
            _ => None,
        };
        self.outbox.on_event(id, OutboundEvent::Cancelled);
        cx.recovery.untime(Timed::Announcement(id));
        match (state, follows) {
            (OutboundState::Queued, None) => {}
            (OutboundState::Queued, Some(message)) => {
                self.outbox.withdraw(Withdrawn {
                    id,
                    why: Withdrawal::Payload {
                        number: message,
                        reason,
                    },
                });
                self.end_withdrawn(cx);
            }
            (_, follows) => cx.send_end_behind(end, follows),
        }
        true
    }

    /// The peer aborted a Transfer of this end.
    pub(crate) fn on_end(&mut self, cx: &mut Context, it: &End) -> Option<Ended> {
        let id = it.d_id;
        let known = |transfer: &Outbound| transfer.peer == 0 || transfer.peer == it.s_id;
        let ended =
            self.outbox.get(id).is_some_and(known) && self.end(cx, id, OutboundEvent::EndedByPeer);
        ended.then_some(Ended::Failed(id, TransferError::Refused(it.reason)))
    }

    /// The peer cancelled its Read `s_id` of number `sequence`. Either end may not yet know that the Read matched an
    /// offer.
    pub(crate) fn on_end_of_read(&mut self, cx: &mut Context, it: &End) -> Result<(), DropReason> {
        let answers = |t: &Outbound| t.target == Target::Read(it.s_id);
        let answer = self.outbox.iter().find(|(_, transfer)| answers(transfer));
        let Some((id, transfer)) = answer else {
            return match self.offers.take_back(it.sequence, cx.slots()) {
                ReadRequest::TooMany => Err(DropReason::Limit),
                ReadRequest::Kept | ReadRequest::Old => {
                    cx.owe(Debt::Offer);
                    Ok(())
                }
            };
        };
        // The peer must close its slot for the announcement, whether it heard it or not.
        let (state, end) = (transfer.state, end_of_source(id, transfer, it.reason));
        self.outbox.on_event(id, OutboundEvent::Cancelled);
        if state != OutboundState::Queued {
            cx.send_end(end);
        }
        let error = TransferError::Refused(it.reason);
        cx.events.push_back(Event::Failed { id, error });
        cx.owe(Debt::Announce);
        Ok(())
    }

    /// The peer confirmed the End of announcement `sequence`: its slot is free.
    pub(crate) fn resolve(&mut self, cx: &mut Context, sequence: u32) {
        self.outbox.resolve(sequence);
        cx.owe(Debt::Announce);
        cx.owe(Debt::Start);
    }

    /// The Transfers announced under a number for which `is_named` holds.
    pub(crate) fn announced(&self, is_named: impl Fn(u32) -> bool) -> Vec<TransferId> {
        self.outbox.announced(is_named)
    }

    /// Forgets a Transfer or an offer: the connection is over.
    pub(crate) fn forget(&mut self, id: TransferId) {
        self.offers.queue.retain(|offer| offer.id != id);
        self.outbox.on_event(id, OutboundEvent::Cancelled);
    }

    /// Clears everything: the connection is over.
    pub(crate) fn clear(&mut self, cx: &mut Context) {
        self.drop_datagrams(cx);
        self.outbox.forget_withdrawn();
    }
}

/// Whether the Transfer asks the peer for a grant.
fn is_asking(it: &Outbound) -> bool {
    matches!(it.state, OutboundState::Announced | OutboundState::Waiting)
}

fn end_of_source(id: TransferId, transfer: &Outbound, reason: Reason) -> End {
    End {
        reason,
        from_source: true,
        sequence: transfer.sequence,
        d_id: transfer.peer,
        s_id: id,
    }
}
