//! Receives the peer's Transfers: matches, grants, places and confirms them, and asks for missing payload.
//!
//! Also sends this end's Reads and long Gets; a long Get is its own grant.

mod admission;
mod announcements;
mod confirmations;
mod data;
mod datagrams;
mod eager;
mod forecast;
mod gaps;
mod grant;
mod inbound;
mod loss_detector;
mod placement;
mod predictor;
mod reads;
mod receive_window;
mod repair;
mod trains;

pub use self::datagrams::DatagramSlot;
pub use self::eager::{Hold, HoldOrder};
pub use self::forecast::{Forecast, Run, pattern_holds};
pub(crate) use self::inbound::{Finished, InboundState, Origin};
pub use self::placement::{Claim, Placement};
pub use self::predictor::Predictor;

use self::confirmations::Confirmations;
use self::datagrams::Datagrams;
use self::inbound::{Inbound, InboundEvent, Inbox, Posted};
use self::loss_detector::LossDetector;
use self::receive_window::ReceiveWindow;
use self::trains::Trains;
use crate::admission::Admission;
use crate::context::{Context, Debt, Refusal};
use crate::counters::{DropReason, PathState};
use crate::event::{Event, TransferError};
use crate::limits;
use crate::profile::Conduct;
use crate::recovery::Timed;
use crate::request::RemotePlace;
use crate::span::Span;
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::boxed::Box;
use zerolane_wire::{Delivered, End, Header, Immediate, Place, Reason, RequestToSend};

/// State of receiving.
#[derive(Debug)]
pub(crate) struct Receiving {
    inbox: Inbox,
    confirmations: Confirmations,
    /// Overtaken ranges.
    loss_detector: LossDetector,
    seen: repair::Seen,
    receive_window: ReceiveWindow,
    trains: Trains,
    datagrams: Datagrams,
    /// Membership among the connections that receive here; `None` without a scheduler.
    admission: Option<Box<dyn Admission>>,
    /// The peer's STU payload, learned from arrivals.
    peer_stu: u32,
    /// Window of the last grants.
    granted_window: u32,
    /// Payload bytes that had to be moved.
    moved: u64,
    /// Payload bytes found missing after later ones had come.
    overtaken: u64,
}

impl Receiving {
    pub(crate) fn new(cx: &Context) -> Receiving {
        Receiving {
            inbox: Inbox::new(cx.slots(), cx.config.buffer_log2),
            confirmations: Confirmations::default(),
            loss_detector: LossDetector::default(),
            seen: repair::Seen::default(),
            receive_window: ReceiveWindow::new(cx.config.window, cx.config.max_window),
            trains: Trains::default(),
            datagrams: Datagrams::default(),
            admission: None,
            peer_stu: 0,
            granted_window: 0,
            moved: 0,
            overtaken: 0,
        }
    }

    /// Sets the window for another lane: nothing was granted yet.
    pub(crate) fn set_window(&mut self, cx: &Context) {
        self.receive_window = ReceiveWindow::new(cx.config.window, cx.config.max_window);
    }

    /// The profile is known: creates the placement table for its buffer size.
    pub(crate) fn open(&mut self, cx: &Context) {
        self.inbox.grants = placement::PlacementTable::new(cx.buffer_log2());
        if !cx.is_scheduled() {
            self.admission = None;
        }
    }

    /// Pending Transfers posted here.
    pub(crate) fn len(&self) -> usize {
        self.inbox.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = TransferId> + '_ {
        self.inbox.ids().into_iter()
    }

    /// The lane's next order for held payload.
    pub(crate) fn next_order(&mut self) -> Option<HoldOrder> {
        self.inbox.arrivals.next_order()
    }

    /// Whether a Get is in flight as a Transfer.
    pub(crate) fn is_getting(&self) -> bool {
        self.inbox.is_getting()
    }

    /// Whether Gets were repeated, and nothing came. A grant may be unanswered because the sender has no payload for it.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_getting() && self.inbox.grants.is_stuck()
    }

    /// Whether the Transfer is a put of the peer, which is not reported to the user here.
    pub(crate) fn is_put_of_peer(&self, id: TransferId) -> bool {
        self.inbox.is_put_of_peer(id)
    }

    /// Payload granted and not received yet, bytes.
    pub(crate) fn expected_payload(&self) -> u64 {
        self.inbox.grants.outstanding()
    }

    /// Sets whether the lane accepts trains.
    pub(crate) fn set_takes_trains(&mut self, cx: &Context, takes: bool) {
        self.trains.set_taken(takes && cx.profile.carries_trains());
    }

    /// Sets whether the lane accepts trains of operations that show whether datagrams are merged.
    pub(crate) fn set_tries_trains(&mut self, cx: &Context, tries: bool) {
        self.trains.set_tried(tries && cx.profile.carries_trains());
    }

    /// Whether operations may come as trains from now on, as far as the path is concerned.
    pub(crate) fn offers_trains(&self) -> bool {
        self.trains.are_offered_to_operations()
    }

    /// Whether payload may come as trains.
    pub(crate) fn expects_trains(&self) -> bool {
        self.inbox.grants.expects_trains() || self.expects_datagram_trains()
    }

    /// Finds the place of `len` bytes of payload, if `header` names a live grant that covers them.
    pub(crate) fn claim(&self, header: &Header, len: u32) -> Result<Claim, DropReason> {
        self.inbox.grants.claim(header, len)
    }

    /// Whether none of the claimed bytes has arrived.
    pub(crate) fn is_missing(&self, claim: &Claim) -> bool {
        self.inbox.grants.is_missing(claim)
    }

    /// Predicts where the next `stus` STUs belong.
    pub(crate) fn forecast(&self, cx: &Context, stus: u32, out: &mut Forecast) {
        self.inbox.grants.forecast(self.expected_stu(cx), stus, out);
    }

    /// Payload bytes of the STU expected next.
    pub(crate) fn expected_stu(&self, cx: &Context) -> u32 {
        match self.peer_stu {
            0 => cx.stu(),
            stu => stu,
        }
    }

    /// Bytes at the start of what `id` receives that are in place, and will not be written again.
    pub(crate) fn arrived(&self, cx: &Context, id: TransferId) -> Option<u64> {
        match cx.profile.repairs_ranges() {
            true => self.inbox.arrived(id),
            false => self.inbox.arrived_in_blocks(id),
        }
    }

    /// The same for a failed Transfer; available once.
    pub(crate) fn take_arrived(&mut self, id: TransferId) -> u64 {
        self.inbox.take_failed(id)
    }

    /// Length of the announced Transfer that waits for a receive, if one does.
    pub(crate) fn announced(&self) -> Option<u64> {
        match self.inbox.posted.is_empty() {
            true => self.inbox.waiting(),
            false => None,
        }
    }

    /// The latest announcements whose Transfers arrived whole.
    pub(crate) fn delivered(&self) -> Delivered {
        self.inbox.delivered()
    }

    /// The socket buffer overflowed: more was granted than this end could receive in time.
    pub(crate) fn on_overrun(&mut self, now: Instant) {
        self.receive_window.overrun(now);
    }

    /// Describes the path from the receiver's side.
    pub(crate) fn describe(&self, now: Instant, state: &mut PathState) {
        state.reordering = self.loss_detector.reordering(now);
        state.granted_ahead = self.receive_window.window();
    }

    /// Continues as if `number` Transfers had been announced, and `blocks` granted, before.
    #[cfg(test)]
    pub(crate) fn age(&mut self, number: u32, blocks: u32) {
        self.inbox.age(number, blocks);
    }

    #[cfg(test)]
    pub(crate) fn loss_detector_mut(&mut self) -> &mut LossDetector {
        &mut self.loss_detector
    }

    /// Panics unless there are `receives` receives of messages whose payload is not announced.
    pub(crate) fn assert_messages(&self, receives: usize) {
        assert_eq!(self.inbox.messages(), receives);
    }

    pub(crate) fn assert_bounded(&self, cx: &Context) {
        assert!(self.inbox.len() <= 2 * limits::MAX_POSTED);
        assert!(self.loss_detector.len() <= limits::MAX_OVERTAKEN);
        self.inbox.assert_bounded(cx.eager().credit);
    }
}

/// Transfers that begin, or end early.
impl Receiving {
    /// Queues a receive.
    pub(crate) fn post(&mut self, cx: &mut Context, span: Span) -> TransferId {
        let id = cx.new_id();
        self.inbox.posted.push_back(Posted::new(id, span));
        cx.owe(Debt::Match);
        cx.owe(Debt::Peer);
        id
    }

    /// Queues a Read.
    pub(crate) fn post_read(&mut self, cx: &mut Context, span: Span) -> TransferId {
        let id = cx.new_id();
        self.inbox.reads.post(id, span);
        cx.owe(Debt::Read);
        cx.owe(Debt::Peer);
        id
    }

    /// Queues a receive of a message, whose payload goes to `span`.
    pub(crate) fn post_message(&mut self, cx: &mut Context, id: TransferId, span: Span) {
        self.inbox.post_message(Posted::new(id, span));
        cx.owe(Debt::Grant);
    }

    /// Operation `number` of the peer is a message, and matched the first receive of messages.
    pub(crate) fn meet_message(&mut self, number: u32, has_payload: bool) {
        self.inbox.meet_message(number, has_payload);
    }

    /// The payload of a received message will not be received.
    pub(crate) fn forget_payload(&mut self, id: TransferId) {
        self.inbox.forget_payload(id);
    }

    /// Fails the receives of messages: none will be matched.
    pub(crate) fn clear_messages(&mut self) {
        self.inbox.clear_messages();
    }

    /// Begins a long Get from `place` on, behind all numbered operations below `after`.
    pub(crate) fn begin_get(
        &mut self,
        cx: &mut Context,
        id: TransferId,
        span: Span,
        place: RemotePlace,
        after: u32,
    ) {
        self.inbox.begin_got(id, span, place, after);
        cx.owe(Debt::Grant);
    }

    /// Begins to receive a Transfer for an exported region, or the payload of a message.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context,
        id: TransferId,
        span: Span,
        rts: &RequestToSend,
        origin: Origin,
    ) {
        self.inbox.begin(id, span, rts, origin);
        if matches!(origin, Origin::Message { .. }) {
            self.inbox.adopt_payload(cx.now, id, rts);
        }
        self.on_receiving(cx, id, rts);
    }

    /// The first announced put that waits to be received.
    pub(crate) fn waiting_put(&self) -> Option<(Place, Option<Immediate>, RequestToSend)> {
        self.inbox.waiting_put()
    }

    /// The state of announcement `sequence`; `None` if it is not remembered.
    pub(crate) fn state_of_announcement(&self, sequence: u32) -> Option<InboundState> {
        self.inbox.state(sequence)
    }

    /// Whether all puts announced before `sequence` are over.
    pub(crate) fn are_puts_over_before(&self, sequence: u32) -> bool {
        self.inbox.are_puts_over_before(sequence)
    }

    /// The announcement of the payload of message `number`, if it waits.
    pub(crate) fn announcement_of_message(&self, number: u32) -> Option<RequestToSend> {
        self.inbox.message(number)
    }

    /// The payload with announcement `sequence` is a bare message.
    pub(crate) fn note_bare(&mut self, sequence: u32) {
        if let Some(arrival) = self.inbox.arrivals.get_mut(sequence) {
            arrival.bare = true;
        }
    }

    /// The announcement of message `number`, if it is a held bare message.
    pub(crate) fn bare_message(&mut self, number: u32) -> Option<RequestToSend> {
        let rts = self.inbox.message(number)?;
        let arrival = self.inbox.arrivals.get_mut(rts.sequence)?;
        arrival.bare.then_some(rts)
    }

    /// Cancels a Transfer, a receive or a Read. False if it is none of those.
    pub(crate) fn cancel(&mut self, cx: &mut Context, id: TransferId, reason: Reason) -> bool {
        self.inbox.take_posted(id)
            || self.inbox.forget_payload(id)
            || self.cancel_transfer(cx, id, reason)
            || self.cancel_read(cx, id, reason)
    }

    fn cancel_transfer(&mut self, cx: &mut Context, id: TransferId, reason: Reason) -> bool {
        let Some(transfer) = self.inbox.end(id, InboundEvent::Cancelled) else {
            return false;
        };
        cx.recovery.untime(Timed::Grant(id));
        cx.owe(Debt::Show);
        if matches!(transfer.origin, Origin::Got { .. }) {
            return true;
        }
        // The answer to a later question.
        self.inbox
            .refuse(transfer.sequence, Refusal::because(reason));
        cx.send_end(End {
            reason,
            from_source: false,
            sequence: transfer.sequence,
            d_id: transfer.peer,
            s_id: id,
        });
        true
    }

    fn cancel_read(&mut self, cx: &mut Context, id: TransferId, reason: Reason) -> bool {
        let Some(read) = self.inbox.reads.remove(id) else {
            return false;
        };
        if let Some(sequence) = read.sequence {
            cx.send_end(End {
                reason,
                from_source: false,
                sequence,
                d_id: 0,
                s_id: id,
            });
        }
        true
    }

    /// Cancels all Transfers into region `handle`.
    pub(crate) fn revoke(&mut self, cx: &mut Context, handle: u32) {
        while let Some(id) = self.inbox.of_region(handle) {
            self.cancel_transfer(cx, id, Reason::Revoked);
        }
        cx.owe(Debt::Grant);
    }

    /// The peer refused a long Get. Returns whether `id` was one.
    pub(crate) fn on_get_refused(&mut self, cx: &mut Context, id: TransferId) -> bool {
        let getting = |it: &Inbound| matches!(it.origin, Origin::Got { .. });
        if !self.inbox.get(id).is_some_and(getting) {
            return false;
        }
        self.inbox.end(id, InboundEvent::Cancelled);
        cx.owe(Debt::Grant);
        true
    }

    /// The peer aborted its own Transfer.
    pub(crate) fn on_end_of_source(
        &mut self,
        cx: &mut Context,
        it: &End,
    ) -> Result<(), DropReason> {
        let ended = self.inbox.ended_by_peer(it.sequence);
        let ended = ended.map_err(|_| DropReason::Limit)?;
        if it.reason == Reason::Finished {
            self.inbox.revoke_all_advance_grants();
            self.inbox.finish(Finished {
                announcement: it.sequence,
                operation: it.d_id,
            });
        }
        if let Some(id) = ended {
            let ended = self.inbox.end(id, InboundEvent::EndedByPeer);
            cx.recovery.untime(Timed::Grant(id));
            let ours = |it: Inbound| !matches!(it.origin, Origin::Region(_));
            if ended.is_some_and(ours) {
                let error = TransferError::Refused(it.reason);
                cx.events.push_back(Event::Failed { id, error });
            }
        }
        cx.owe(Debt::Show);
        cx.owe(Debt::Match);
        Ok(())
    }

    /// Where the peer finished sending, if it did.
    pub(crate) fn finished(&self) -> Option<Finished> {
        self.inbox.finished()
    }

    /// Fails the receives that no Transfer will match, once everything the peer sent has arrived.
    pub(crate) fn finish_receives(&mut self, cx: &mut Context) {
        if self.inbox.is_finished() {
            cx.fail_finished(self.inbox.posted.drain(..).map(|it| it.id));
        }
    }

    /// Whether the payload of a message is being received.
    pub(crate) fn is_receiving_message(&self) -> bool {
        let message = |origin| matches!(origin, Origin::Message { .. });
        self.inbox.is_receiving(message)
    }

    /// The peer confirmed the End of Read `sequence`: its slot is free.
    pub(crate) fn resolve_read(&mut self, cx: &mut Context, sequence: u32) {
        self.inbox.reads.resolve(sequence);
        cx.owe(Debt::Read);
    }

    /// Forgets a Transfer, a receive or a Read: the connection is over.
    pub(crate) fn forget(&mut self, id: TransferId) {
        self.inbox.take_posted(id);
        self.inbox.forget_payload(id);
        self.inbox.end(id, InboundEvent::Cancelled);
        self.inbox.reads.remove(id);
    }

    /// Clears everything, and leaves the connection's share of the link to others.
    pub(crate) fn clear(&mut self, cx: &mut Context) {
        self.confirm_waiting(cx);
        self.admission = None;
        self.inbox.arrivals.clear();
    }
}
