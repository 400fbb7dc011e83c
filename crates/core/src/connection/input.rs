//! Control operations in.

use super::Connection;
use super::data::complete;
use crate::flight::Sent;
use crate::inbound::{Announcement, Matched, Refusal, Slot};
use crate::life::Happening;
use crate::limits;
use crate::offers::Request;
use crate::outbound::{self, Missing};
use crate::recovery::Timed;
use crate::timers::Timer;
use crate::{CloseReason, DropReason, Event, InboundState, Instant, Life, TransferError};
use alloc::vec::Vec;
use core::time::Duration;
use zerolane_wire::{
    Answer, Capabilities, ClearToSend, ConnectionAnswer, ConnectionVerdict, Nop, Occasion,
    Operation, Packet, Progress, Reason, Report, RequestAnswer, RequestConnection, RequestState,
    RequestToReceive, RequestToSend, State, Target, VERSION, VERSION_MIN,
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
            Operation::RequestDisconnect(it) => self.on_request_disconnect(now, &it),
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
            Operation::EndAck(it) => self.on_end_ack(now, &it),
            Operation::Nop(it) => self.on_nop(now, &it),
            Operation::RequestMemoryRegion(it) => self.on_request_region(&it),
            Operation::MemoryRegionAvailable(it) => self.on_region_available(now, &it),
            Operation::Get(it) => self.on_get(now, &it),
            Operation::FetchOp(it) => self.on_fetch_op(now, &it),
            Operation::FetchOpComplete { sync, .. } => self.on_outcome_known(now, sync),
            Operation::MemoryState(it) => self.on_memory_state(now, &it),
            _ => Err(DropReason::Unexpected),
        }
    }

    /// The peer lives.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.unanswered_pings = 0;
        self.responder_heard();
    }

    fn on_request_connection(
        &mut self,
        now: Instant,
        packet: &Packet,
        it: &RequestConnection,
    ) -> Result<(), DropReason> {
        let same = it.s_key == self.route.d_key && packet.route.s_port == self.route.d_port;
        if self.initiator || !same || it.sync != self.handshake_sync {
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
            && it.sync == self.handshake_sync;
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
        self.recovery.answered(Timed::Handshake, now);
        self.open(now, capabilities, profile);
        self.live(now, Happening::Accepted, CloseReason::Local);
    }

    /// Asks for an answer of the peer.
    pub(super) fn ping(&mut self, now: Instant) {
        let sync = self.new_sync();
        self.recovery.time(Timed::Nop(sync), now);
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
            Announcement::Repeated(slot) => self.answer_again(rts, slot),
            Announcement::Old => return Err(DropReason::Duplicate),
            Announcement::TooMany => return Err(DropReason::Limit),
        }
        Ok(())
    }

    fn answer_again(&mut self, rts: &RequestToSend, slot: Slot) {
        match slot.state {
            InboundState::Announced | InboundState::Unheard => self.answer_later(rts.s_id),
            InboundState::Receiving if self.waits_for_grants(slot.id) => {
                self.answer_later(rts.s_id)
            }
            InboundState::Receiving => self.repeat_grants(slot.id),
            InboundState::Complete => {
                self.push_control(Operation::State(complete(rts.s_id, slot.id, u32::MAX)));
            }
            InboundState::Ended => self.refuse(rts.s_id, slot.refusal),
        }
    }

    /// Whether a Transfer that met its memory has none of it granted yet: others come first.
    fn waits_for_grants(&self, id: u32) -> bool {
        self.inbox.get(id).is_some_and(|it| it.granted == 0)
    }

    fn on_announced(&mut self, now: Instant, rts: &RequestToSend) {
        match rts.target {
            Target::Receive => {}
            Target::Read(reader) => return self.on_read_announced(now, reader, rts),
            Target::Region(place) => return self.on_put_announced(now, place, rts),
            Target::Message(number) => return self.on_payload_announced(now, number, rts),
        }
        let had_posted = !self.inbox.posted.is_empty();
        self.match_announcements(now);
        let waits = self
            .inbox
            .find(rts.s_id)
            .is_some_and(|s| s.state == InboundState::Announced);
        if waits {
            self.answer_later(rts.s_id);
            // One hint is enough until the user looks: a peer must not fill our memory with them.
            let hinted = |event: &Event| matches!(event, Event::Announced { .. });
            if !had_posted && !self.events.iter().any(hinted) {
                self.events
                    .push_back(Event::Announced { length: rts.length });
            }
        }
    }

    fn on_read_announced(&mut self, now: Instant, reader: u32, rts: &RequestToSend) {
        match self.inbox.match_read(reader, rts) {
            Some(matched) => self.matched(now, matched),
            None => self.refuse_announcement(rts, Refusal::CANCELLED),
        }
        self.ask_reads(now);
        self.match_announcements(now);
    }

    /// Refuses an announcement for good.
    pub(super) fn refuse_announcement(&mut self, rts: &RequestToSend, why: Refusal) {
        self.inbox.refuse(rts.sequence, why);
        self.refuse(rts.s_id, why);
    }

    pub(super) fn answer_later(&mut self, d_id: u32) {
        let answer = Answer::Later(Reason::NotReady);
        self.push_control(Operation::RequestAnswer(RequestAnswer {
            answer,
            d_id,
            room: 0,
            numbered: false,
        }));
    }

    pub(super) fn refuse(&mut self, d_id: u32, why: Refusal) {
        let answer = Answer::Refused(why.reason);
        self.push_control(Operation::RequestAnswer(RequestAnswer {
            answer,
            d_id,
            room: why.room,
            numbered: false,
        }));
    }

    pub(super) fn matched(&mut self, now: Instant, matched: Matched) {
        match matched {
            Matched::TooLarge { posted, rts } => {
                let room = posted.span.len;
                let reason = Reason::MessageTooLarge;
                self.refuse(rts.s_id, Refusal { reason, room });
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
            .take(limits::MAX_GRANTS_REPEATED)
            .collect();
        untouched
            .into_iter()
            .for_each(|sequence| self.send_grant(sequence));
    }

    fn on_request_answer(&mut self, now: Instant, it: &RequestAnswer) -> Result<(), DropReason> {
        if self.inbox.reads.get_mut(it.d_id).is_some() {
            self.on_read_answered(now, it);
            return Ok(());
        }
        if self.on_work_answered(now, it) {
            return Ok(());
        }
        self.recovery.answered(Timed::Announcement(it.d_id), now);
        let Some(length) = self.outbox.get(it.d_id).map(|t| t.span.len) else {
            return Err(DropReason::Unexpected);
        };
        match it.answer {
            Answer::Later(_) => {
                self.outbox
                    .happen(it.d_id, outbound::Happening::AnsweredLater);
                if let Some(transfer) = self.outbox.get_mut(it.d_id) {
                    transfer.resend_at = now + limits::WAITING_INTERVAL;
                }
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

    fn on_read_answered(&mut self, now: Instant, it: &RequestAnswer) {
        match it.answer {
            Answer::Later(_) => {
                if let Some(read) = self.inbox.reads.get_mut(it.d_id) {
                    read.waiting = true;
                    read.resend_at = now + limits::WAITING_INTERVAL;
                }
            }
            Answer::Refused(reason) => {
                let read = self.inbox.reads.remove(it.d_id);
                if let Some(sequence) = read.and_then(|read| read.sequence) {
                    self.inbox.reads.resolve(sequence);
                }
                let error = TransferError::Refused(reason);
                self.events.push_back(Event::Failed { id: it.d_id, error });
                self.ask_reads(now);
            }
        }
    }

    /// Ends an outgoing Transfer that the peer knows to be over, tells the user, and announces what its slot was needed for.
    pub(super) fn end_outbound(
        &mut self,
        now: Instant,
        id: u32,
        happening: outbound::Happening,
        error: Option<TransferError>,
    ) {
        if let Some(transfer) = self.outbox.happen(id, happening) {
            self.outbox.resolve(transfer.sequence);
            self.recovery.untime(Timed::Announcement(id));
            self.recovery.progress();
            match error {
                None => self.sent(now, id),
                Some(error) => {
                    self.unsent(id);
                    self.events.push_back(Event::Failed { id, error });
                }
            }
            self.announce(now);
            self.start_works(now);
        }
    }

    fn on_clear_to_send(&mut self, now: Instant, it: &ClearToSend) -> Result<(), DropReason> {
        self.recovery.answered(Timed::Announcement(it.d_id), now);
        let log2 = self.peer.map_or(0, |peer| peer.buffer_log2);
        let missing = self.outbox.grant(it, self.profile, log2)?;
        self.recovery.progress();
        self.note_missing(now, missing);
        Ok(())
    }

    fn on_request_to_receive(
        &mut self,
        now: Instant,
        it: &RequestToReceive,
    ) -> Result<(), DropReason> {
        match self.offers.want(it, self.slots()) {
            Request::TooMany => return Err(DropReason::Limit),
            Request::Kept => self.match_offers(now),
            Request::Old => {
                // Its Request_To_Send has a timer of its own. If there is none any more, the offer
                // that the Read met was cancelled before the peer heard of it.
                if self
                    .outbox
                    .iter()
                    .all(|(_, t)| t.target != Target::Read(it.s_id))
                {
                    self.refuse(it.s_id, Refusal::CANCELLED);
                }
            }
        }
        if self.offers.waits(it.sequence) {
            self.answer_later(it.s_id);
        }
        Ok(())
    }

    fn on_request_state(&mut self, it: &RequestState) -> Result<(), DropReason> {
        let occasion = Occasion::Reply(it.sync);
        let state = match self.inbox.find(it.s_id) {
            Some(slot) if slot.state == InboundState::Complete => State {
                occasion,
                ..complete(it.s_id, slot.id, u32::MAX)
            },
            Some(slot) if slot.state == InboundState::Receiving => {
                self.answer_state(slot.id, it.sync);
                return Ok(());
            }
            Some(slot) if slot.state == InboundState::Announced => {
                self.answer_later(it.s_id);
                return Ok(());
            }
            Some(slot) if slot.state == InboundState::Ended => {
                self.refuse(it.s_id, slot.refusal);
                return Ok(());
            }
            _ => State {
                occasion,
                complete: false,
                unknown: true,
                ..complete(it.s_id, 0, 0)
            },
        };
        self.push_control(Operation::State(state));
        Ok(())
    }

    /// Tells how a Transfer that is being received stands, and asks for what is missing.
    fn answer_state(&mut self, id: u32, sync: u32) {
        let state = State {
            occasion: Occasion::Reply(sync),
            ..self.state_of(id)
        };
        self.push_control(Operation::State(state));
        // What the sender does not know of was granted in vain; what it does know of is reported by
        // the payload timer, whose patience is the recovery's business.
        self.repeat_grants(id);
    }

    fn on_state(&mut self, now: Instant, it: &State) -> Result<(), DropReason> {
        self.note_seen(now, it)?;
        if matches!(it.report, Report::Progress(_)) && !it.complete {
            return Ok(());
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
        let ranges = match &it.report {
            Report::Missing(ranges) => ranges.as_slice(),
            Report::Progress(_) => &[],
        };
        let flight_time = self.recovery.flight_time();
        let missing = self.outbox.report(now, it, ranges, flight_time);
        self.note_missing(now, missing.ok_or(DropReason::Unexpected)?);
        Ok(())
    }

    /// What the receiver has seen of our bursts.
    fn note_seen(&mut self, now: Instant, it: &State) -> Result<(), DropReason> {
        let number = match (it.occasion, &it.report) {
            (Occasion::Seen(number), _) | (Occasion::Reply(number), Report::Progress(_)) => number,
            (Occasion::Reply(_), Report::Missing(_)) => return Ok(()),
        };
        let sent = self.outbox.flight.saw(now, number)?;
        if let (Some(sent), Report::Progress(progress)) = (sent, &it.report) {
            self.note_progress(now, &sent, progress);
        }
        Ok(())
    }

    fn note_progress(&mut self, now: Instant, sent: &Sent, progress: &Progress) {
        let delay = Duration::from_micros(progress.delay_us.into());
        let rtt = self.recovery.less_delay(now - sent.at, delay);
        if rtt > limits::MAX_RTT {
            return;
        }
        self.recovery.sample(now, rtt);
        let min_rtt = self.recovery.min_rtt().unwrap_or(rtt);
        let flight = &mut self.outbox.flight;
        if let Some(sample) = flight.sample(now, sent, progress, rtt, min_rtt) {
            self.congestion.on_progress(now, &sample);
            let (wanted, stu) = (self.congestion.wants_marks(), self.stu());
            self.marks.note(now, wanted, sent.at, stu, progress);
        }
    }

    fn note_missing(&mut self, now: Instant, missing: Missing) {
        self.counters.count_drop(DropReason::Limit, missing.beyond);
        if missing.bytes > 0 {
            self.congestion.on_lost(now, missing.bytes);
        }
        if missing.black_hole && self.path.black_hole() {
            self.timers.set(Timer::Probe, now);
        }
    }

    fn on_nop(&mut self, now: Instant, it: &Nop) -> Result<(), DropReason> {
        if it.reply {
            self.recovery.answered(Timed::Nop(it.sync), now);
            if it.probe != 0 && self.path.probe_passed(it.probe as usize) && self.path.is_settled()
            {
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
}
