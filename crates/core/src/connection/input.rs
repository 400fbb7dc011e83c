//! Control operations in.

use super::data::complete;
use super::{Connection, Ending};
use crate::inbound::{self, Announcement, Matched};
use crate::life::Happening;
use crate::limits;
use crate::outbound;
use crate::timers::Timer;
use crate::{CloseReason, DropReason, Event, InboundState, Instant, Life, TransferError};
use zerolane_wire::{
    Answer, Capabilities, ClearToSend, ConnectionAnswer, ConnectionVerdict, End, Nop, Operation,
    Packet, Profile, Ranges, Reason, RequestAnswer, RequestConnection, RequestState,
    RequestToReceive, RequestToSend, State, VERSION, VERSION_MIN,
};

impl Connection {
    /// Takes a control datagram (anything whose header is not Data's): at least its first 73 bytes,
    /// or all of a shorter one, and its whole length in bytes.
    pub fn on_control(&mut self, now: Instant, datagram: &[u8], len: usize) {
        self.counters.control_received += 1;
        let outcome = Packet::parse(datagram)
            .map_err(|_| DropReason::Malformed)
            .and_then(|packet| self.take(now, &packet, len));
        if let Err(reason) = outcome {
            self.counters.count_drop(reason, 1);
        }
    }

    fn take(&mut self, now: Instant, packet: &Packet, len: usize) -> Result<(), DropReason> {
        match &packet.operation {
            Operation::RequestConnection(it) => return self.on_request_connection(now, packet, it),
            Operation::ConnectionAnswer(it) => return self.on_connection_answer(now, packet, it),
            _ => {}
        }
        if packet.route.d_port != self.route.s_port || packet.route.d_key != self.entropy.key {
            return Err(DropReason::WrongKey);
        }
        self.heard(now);
        self.live(now, Happening::Operation, CloseReason::Local);
        match packet.operation {
            Operation::RequestDisconnect(it) => {
                self.live(
                    now,
                    Happening::RequestDisconnect,
                    CloseReason::Peer(it.reason),
                );
            }
            Operation::DisconnectAnswer(_) => {
                self.live(now, Happening::DisconnectAnswer, CloseReason::Local);
            }
            Operation::DisconnectComplete(_) => {
                self.live(now, Happening::DisconnectComplete, CloseReason::Local);
            }
            // A probe that arrived cut short says nothing about the path.
            Operation::Nop(nop) if !nop.reply && nop.probe != 0 && nop.probe as usize != len => {
                return Err(DropReason::Malformed);
            }
            operation if self.life == Life::Established => {
                return self.on_established(now, operation);
            }
            _ => return Err(DropReason::Unexpected),
        }
        Ok(())
    }

    fn on_established(&mut self, now: Instant, operation: Operation) -> Result<(), DropReason> {
        match operation {
            Operation::RequestToSend(it) => self.on_request_to_send(now, &it),
            Operation::RequestAnswer(it) => self.on_request_answer(now, &it),
            Operation::ClearToSend(it) => self.on_clear_to_send(now, &it),
            Operation::RequestToReceive(it) => self.on_request_to_receive(now, &it),
            Operation::RequestState(it) => self.on_request_state(&it),
            Operation::State(it) => self.on_state(now, &it),
            Operation::End(it) => self.on_end(now, &it),
            Operation::EndAck(it) => self.on_end_ack(&it),
            Operation::Nop(it) => self.on_nop(now, &it),
            _ => Err(DropReason::Unexpected),
        }
    }

    /// The peer lives.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.unanswered = None;
    }

    fn on_request_connection(
        &mut self,
        now: Instant,
        packet: &Packet,
        it: &RequestConnection,
    ) -> Result<(), DropReason> {
        let same = it.s_key == self.route.d_key && packet.route.s_port == self.route.d_port;
        if self.initiator || !same || it.sync != self.next_sync {
            return Err(DropReason::Unexpected);
        }
        self.live(now, Happening::RequestRepeated, CloseReason::Local);
        Ok(())
    }

    fn on_connection_answer(
        &mut self,
        now: Instant,
        packet: &Packet,
        it: &ConnectionAnswer,
    ) -> Result<(), DropReason> {
        let ours = packet.route.d_key == self.entropy.key
            && packet.route.d_port == self.route.s_port
            && it.sync == self.entropy.sync;
        if !ours || self.life != Life::Connecting {
            return Err(if ours {
                DropReason::Duplicate
            } else {
                DropReason::WrongKey
            });
        }
        self.heard(now);
        match it.verdict {
            ConnectionVerdict::Reject {
                reason,
                version_min,
                version_max,
            } => {
                let why = CloseReason::Rejected {
                    reason,
                    version_min,
                    version_max,
                };
                self.live(now, Happening::Rejected, why);
            }
            ConnectionVerdict::Accept {
                version,
                capabilities,
                s_key,
            } => {
                self.on_accepted(now, packet, version, capabilities, s_key);
            }
        }
        Ok(())
    }

    fn on_accepted(
        &mut self,
        now: Instant,
        packet: &Packet,
        version: u8,
        capabilities: Capabilities,
        s_key: u32,
    ) {
        let sane = super::listen::acceptable(&capabilities);
        let profile = self.config.profiles.common(capabilities.profiles);
        let (Some(profile), true, VERSION_MIN..=VERSION) = (profile, sane, version) else {
            self.live(now, Happening::Lost, CloseReason::Violation);
            return;
        };
        self.route.d_port = packet.route.s_port;
        self.route.d_key = s_key;
        self.recovery.answered(self.entropy.sync, now);
        self.open(now, capabilities, profile);
        self.live(now, Happening::Accepted, CloseReason::Local);
        // Proves our address, so that the Responder is open too.
        self.ping();
    }

    /// Asks for an answer of the peer.
    pub(super) fn ping(&mut self) {
        let sync = self.new_sync();
        self.push_control(Operation::Nop(Nop {
            send_state: true,
            sync,
            ..Nop::default()
        }));
    }

    pub(super) fn new_sync(&mut self) -> u32 {
        self.next_sync = self.next_sync.wrapping_add(1);
        self.next_sync
    }

    fn on_request_to_send(&mut self, now: Instant, rts: &RequestToSend) -> Result<(), DropReason> {
        match self.inbox.announce(rts) {
            Announcement::New => self.on_announced(now, rts),
            Announcement::Repeated(InboundState::Announced, _) => self.answer_later(rts.s_id),
            Announcement::Repeated(InboundState::Receiving, id) => self.repeat_grants(id),
            Announcement::Repeated(InboundState::Complete, id) => {
                self.push_control(Operation::State(complete(rts.s_id, id, u32::MAX)));
            }
            Announcement::Repeated(..) => self.refuse(rts.s_id, Reason::Cancelled, 0),
            Announcement::Old => return Err(DropReason::Duplicate),
            Announcement::TooMany => return Err(DropReason::Limit),
        }
        Ok(())
    }

    fn on_announced(&mut self, now: Instant, rts: &RequestToSend) {
        if let Some(reader) = rts.reader {
            match self.inbox.match_read(reader, rts) {
                Some(matched) => self.matched(now, matched),
                None => {
                    self.inbox.refuse(rts.sequence);
                    self.refuse(rts.s_id, Reason::Cancelled, 0);
                }
            }
            self.match_announcements(now);
            return;
        }
        let had_posted = !self.inbox.posted.is_empty();
        self.match_announcements(now);
        let waits = self
            .inbox
            .find(rts.s_id)
            .is_some_and(|s| s.state == InboundState::Announced);
        if waits {
            self.answer_later(rts.s_id);
            if !had_posted {
                self.events
                    .push_back(Event::Announced { length: rts.length });
            }
        }
    }

    fn answer_later(&mut self, d_id: u32) {
        let answer = Answer::Later(Reason::NotReady);
        self.push_control(Operation::RequestAnswer(RequestAnswer {
            answer,
            d_id,
            room: 0,
        }));
    }

    fn refuse(&mut self, d_id: u32, reason: Reason, room: u64) {
        let answer = Answer::Refused(reason);
        self.push_control(Operation::RequestAnswer(RequestAnswer {
            answer,
            d_id,
            room,
        }));
    }

    pub(super) fn matched(&mut self, now: Instant, matched: Matched) {
        match matched {
            Matched::TooLarge { posted, rts } => {
                let room = posted.span.len;
                self.refuse(rts.s_id, Reason::MessageTooLarge, room);
                let error = TransferError::MessageTooLarge {
                    length: rts.length,
                    room,
                };
                self.events.push_back(Event::Failed {
                    id: posted.id,
                    error,
                });
            }
            Matched::Receiving { id, rts } if rts.length == 0 => {
                if let Some(transfer) = self.inbox.get_mut(id) {
                    transfer.delivery = crate::Delivery::Interrupt;
                }
                self.transfer_complete(now, id);
            }
            Matched::Receiving { .. } => self.grant(now),
        }
    }

    /// Grants again the Blocks of a Transfer of which nothing came.
    fn repeat_grants(&mut self, id: u32) {
        let untouched: Vec<u32> = self
            .inbox
            .grants
            .iter()
            .filter(|(_, block)| block.transfer == id && block.reached == 0)
            .map(|(sequence, _)| sequence)
            .collect();
        untouched
            .into_iter()
            .for_each(|sequence| self.send_grant(sequence));
    }

    fn on_request_answer(&mut self, now: Instant, it: &RequestAnswer) -> Result<(), DropReason> {
        self.recovery.answered(it.d_id, now);
        if let Some(read) = self.inbox.reads.get_mut(&it.d_id) {
            match it.answer {
                Answer::Later(_) => read.waiting = true,
                Answer::Refused(reason) => {
                    self.inbox.reads.remove(&it.d_id);
                    let error = TransferError::Refused(reason);
                    self.events.push_back(Event::Failed { id: it.d_id, error });
                }
            }
            return Ok(());
        }
        let Some(length) = self.outbox.get(it.d_id).map(|t| t.span.len) else {
            return Err(DropReason::Unexpected);
        };
        match it.answer {
            Answer::Later(_) => {
                self.outbox
                    .happen(it.d_id, outbound::Happening::AnsweredLater);
            }
            Answer::Refused(reason) => {
                let error = match reason {
                    Reason::MessageTooLarge => TransferError::MessageTooLarge {
                        length,
                        room: it.room,
                    },
                    reason => TransferError::Refused(reason),
                };
                self.end_outbound(now, it.d_id, outbound::Happening::Refused, Some(error));
            }
        }
        Ok(())
    }

    /// Ends an outgoing Transfer, tells the user, and announces what its slot was needed for.
    pub(super) fn end_outbound(
        &mut self,
        now: Instant,
        id: u32,
        happening: outbound::Happening,
        error: Option<TransferError>,
    ) {
        if self.outbox.happen(id, happening).is_some() {
            self.recovery.untime(id);
            self.events.push_back(match error {
                None => Event::Sent { id },
                Some(error) => Event::Failed { id, error },
            });
            self.announce(now);
        }
    }

    fn on_clear_to_send(&mut self, now: Instant, it: &ClearToSend) -> Result<(), DropReason> {
        self.recovery.answered(it.d_id, now);
        let log2 = self.peer.map_or(0, |peer| peer.buffer_log2);
        self.outbox.grant(it, self.profile, log2)?;
        self.recovery.progress();
        self.fruitless_reports = 0;
        Ok(())
    }

    fn on_request_to_receive(
        &mut self,
        now: Instant,
        it: &RequestToReceive,
    ) -> Result<(), DropReason> {
        let ahead = it.sequence.wrapping_sub(self.next_wanted);
        if ahead > u32::MAX / 2 {
            // Answered by a Request_To_Send, which has a timer of its own.
            return Err(DropReason::Duplicate);
        }
        if ahead >= u32::from(self.config.slots) {
            return Err(DropReason::Limit);
        }
        self.wanted.insert(it.sequence, *it);
        self.match_offers(now);
        if self.wanted.contains_key(&it.sequence) {
            self.answer_later(it.s_id);
        }
        Ok(())
    }

    fn on_request_state(&mut self, it: &RequestState) -> Result<(), DropReason> {
        let reply_to = Some(it.sync);
        let state = match self.inbox.find(it.s_id) {
            Some(slot) if slot.state == InboundState::Complete => State {
                reply_to,
                ..complete(it.s_id, slot.id, u32::MAX)
            },
            Some(slot) if slot.state == InboundState::Receiving => {
                return self.answer_state(slot.id, it.sync);
            }
            Some(slot) if slot.state == InboundState::Announced => {
                self.answer_later(it.s_id);
                return Ok(());
            }
            _ => State {
                reply_to,
                complete: false,
                unknown: true,
                ..complete(it.s_id, 0, 0)
            },
        };
        self.push_control(Operation::State(state));
        Ok(())
    }

    /// Tells how a Transfer that is being received stands, and asks for what is missing.
    fn answer_state(&mut self, id: u32, sync: u32) -> Result<(), DropReason> {
        let transfer = self.inbox.get(id).ok_or(DropReason::Unexpected)?;
        let blocks_complete = self.inbox.blocks_complete(id, transfer);
        let d_id = transfer.peer;
        self.push_control(Operation::State(State {
            reply_to: Some(sync),
            complete: false,
            unknown: false,
            blocks_complete,
            b_num: blocks_complete,
            reached: 0,
            d_id,
            s_id: id,
            missing: Ranges::EMPTY,
        }));
        // What the sender does not know of was granted in vain; what it does know of is reported by
        // the payload timer, whose patience is the recovery's business.
        self.repeat_grants(id);
        Ok(())
    }

    fn on_state(&mut self, now: Instant, it: &State) -> Result<(), DropReason> {
        if let Some(sync) = it.reply_to {
            self.recovery.answered(sync, now);
        }
        let known = self.outbox.get(it.d_id).ok_or(DropReason::Unexpected)?;
        if known.peer != 0 && it.s_id != 0 && known.peer != it.s_id {
            return Err(DropReason::Unexpected);
        }
        if it.complete {
            self.end_outbound(now, it.d_id, outbound::Happening::Confirmed, None);
            return Ok(());
        }
        if it.unknown {
            // A Transfer still being announced may be unknown because the announcement was lost.
            if known.state == crate::OutboundState::Sending {
                let error = TransferError::Refused(Reason::Unknown);
                self.end_outbound(now, it.d_id, outbound::Happening::Refused, Some(error));
            }
            return Ok(());
        }
        let missing = self.outbox.report(it).ok_or(DropReason::Unexpected)?;
        if missing > 0 {
            self.congestion.on_missing(now, missing);
            self.note_fruitless(now);
        }
        Ok(())
    }

    /// Report after report and nothing moves: perhaps the path swallows large datagrams.
    fn note_fruitless(&mut self, now: Instant) {
        self.fruitless_reports += 1;
        if self.fruitless_reports
            >= limits::BLACK_HOLE_REPORTS * limits::MAX_STATES_PER_REPORT as u32
        {
            self.fruitless_reports = 0;
            if self.path.black_hole() {
                self.timers.set(Timer::Probe, now);
            }
        }
    }

    fn on_end(&mut self, now: Instant, it: &End) -> Result<(), DropReason> {
        // Confirmed even if it means nothing any more: the other end repeats it until then.
        self.push_control(Operation::EndAck(End {
            d_id: it.s_id,
            s_id: it.d_id,
            ..*it
        }));
        let error = TransferError::Refused(it.reason);
        if it.from_source {
            if let Some(id) = self.inbox.ended_by_peer(it.sequence) {
                self.inbox.end(id, inbound::Happening::EndedByPeer);
                self.events.push_back(Event::Failed { id, error });
            }
            self.match_announcements(now);
        } else if self
            .outbox
            .get(it.d_id)
            .is_some_and(|t| t.peer == 0 || t.peer == it.s_id)
        {
            self.end_outbound(now, it.d_id, outbound::Happening::EndedByPeer, Some(error));
        } else if it.d_id == 0 {
            self.cancel_wanted(now, it);
        }
        Ok(())
    }

    /// The peer takes back a Read.
    fn cancel_wanted(&mut self, now: Instant, it: &End) {
        let announced = self
            .outbox
            .iter()
            .find(|(_, t)| t.reader == Some(it.s_id))
            .map(|(id, _)| id);
        if let Some(id) = announced {
            let error = TransferError::Refused(it.reason);
            self.end_outbound(now, id, outbound::Happening::EndedByPeer, Some(error));
        } else if it.sequence == self.next_wanted {
            self.wanted.remove(&it.sequence);
            self.next_wanted = self.next_wanted.wrapping_add(1);
            self.match_offers(now);
        }
    }

    fn on_end_ack(&mut self, it: &End) -> Result<(), DropReason> {
        let confirmed = |ending: &Ending| {
            ending.end.from_source == it.from_source
                && ending.end.sequence == it.sequence
                && ending.end.s_id == it.d_id
        };
        let before = self.endings.len();
        self.endings.retain(|ending| !confirmed(ending));
        if self.endings.len() == before {
            Err(DropReason::Duplicate)
        } else {
            Ok(())
        }
    }

    fn on_nop(&mut self, now: Instant, it: &Nop) -> Result<(), DropReason> {
        if it.reply {
            self.recovery.answered(it.sync, now);
            if it.probe != 0 && self.path.probe_passed(it.probe as usize) {
                self.timers.stop(Timer::Probe);
            }
        } else if it.send_state {
            let answer = Nop {
                send_state: false,
                reply: true,
                options: None,
                ..*it
            };
            self.push_control(Operation::Nop(answer));
        }
        Ok(())
    }

    /// Whole-Block repair belongs to the classic profile alone.
    pub(super) fn repairs_whole_blocks(&self) -> bool {
        self.profile == Profile::Classic
    }
}
