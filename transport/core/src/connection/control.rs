//! Dispatches each control operation that arrives to the part that handles it.

use super::Connection;
use crate::counters::DropReason;
use crate::event::CloseReason;
use crate::recovery::Timed;
use crate::session::{Answered, LifeEvent};
use crate::time::Instant;
use zerolane_wire::{
    Capabilities, ConnectionAnswer, End, Operation, Packet, PrivateData, Reason, RequestAnswer,
    RequestDisconnect, RequestToSend, State, Target,
};

impl Connection {
    /// Takes a control datagram (any datagram whose header is not Data's) and its whole length in bytes. The slice
    /// holds at least its first [`MAX_CONTROL`](zerolane_wire::MAX_CONTROL) bytes and one more, or all of a shorter
    /// one.
    pub fn on_control(&mut self, now: Instant, datagram: &[u8], len: usize) {
        self.cx.enter(now);
        self.cx.counters.control_received += 1;
        let outcome = Packet::parse(datagram)
            .map_err(|_| DropReason::Malformed)
            .and_then(|packet| match &packet.operation {
                Operation::ConnectionAnswer(it) => {
                    self.on_connection_answer(&packet, it, PrivateData::of(datagram))
                }
                _ => self.on_packet(&packet, len),
            });
        if let Err(reason) = outcome {
            self.cx.counters.count_drop(reason, 1);
        }
        self.settle();
    }

    fn on_packet(&mut self, packet: &Packet, len: usize) -> Result<(), DropReason> {
        match &packet.operation {
            Operation::RequestConnection(it) => {
                if !self.session.is_request_repeated(&self.cx, packet.route, it) {
                    return Err(DropReason::Unexpected);
                }
                self.on_life(LifeEvent::RequestRepeated, CloseReason::Local);
                return Ok(());
            }
            // The peer has no key of this end.
            _ if !self.session.is_accepted() => return Err(DropReason::WrongKey),
            _ => {}
        }
        if !self
            .session
            .owns(&self.cx, packet.route.d_port, packet.route.d_key)
        {
            return Err(DropReason::WrongKey);
        }
        self.session.on_heard(&mut self.cx);
        if !matches!(packet.operation, Operation::Nop(_)) && self.cx.links.on_operation(self.cx.now)
        {
            self.cx.watch_links();
        }
        self.on_life(LifeEvent::Operation, CloseReason::Local);
        match packet.operation {
            Operation::RequestDisconnect(it) => self.on_request_disconnect(&it),
            Operation::DisconnectAnswer(_) => {
                self.on_life(LifeEvent::DisconnectAnswer, CloseReason::Local);
            }
            Operation::DisconnectComplete(_) => {
                self.on_life(LifeEvent::DisconnectComplete, CloseReason::Local);
            }
            // A probe that arrived truncated tells nothing about the path.
            Operation::Nop(nop) if !nop.reply && nop.probe != 0 && nop.probe as usize != len => {
                return Err(DropReason::Malformed);
            }
            operation if self.session.is_established() => return self.on_operation(operation),
            _ => return Err(DropReason::Unexpected),
        }
        Ok(())
    }

    fn on_operation(&mut self, operation: Operation) -> Result<(), DropReason> {
        let Connection {
            cx,
            sending,
            receiving,
            initiator,
            responder,
            ..
        } = self;
        match operation {
            Operation::RequestToSend(it) => return self.on_request_to_send(&it),
            Operation::RequestAnswer(it) => return self.on_request_answer(&it),
            Operation::ClearToSend(it) => {
                return sending.on_clear_to_send(cx, &it, initiator.next_number());
            }
            Operation::RequestToReceive(it) => return sending.on_request_to_receive(cx, &it),
            Operation::RequestState(it) => receiving.on_request_state(cx, &it),
            Operation::State(it) => return self.on_state(&it),
            Operation::End(it) => return self.on_end(&it),
            Operation::EndAck(it) => return self.on_end_ack(&it),
            Operation::Nop(it) => return self.on_nop(&it),
            Operation::RequestMemoryRegion(it) => responder.on_request_region(cx, &it),
            Operation::MemoryRegionAvailable(it) => {
                return initiator.on_region_available(cx, &it);
            }
            Operation::Get(it) => return responder.on_get(cx, sending, receiving, &it),
            Operation::FetchOp(it) => return responder.on_fetch_op(cx, receiving, &it),
            Operation::FetchOpComplete { sync, .. } => {
                return responder.on_outcome_known(cx, sync);
            }
            Operation::MemoryState(it) => {
                return initiator.on_memory_state(cx, sending, &it);
            }
            _ => return Err(DropReason::Unexpected),
        }
        Ok(())
    }

    fn on_connection_answer(
        &mut self,
        packet: &Packet,
        it: &ConnectionAnswer,
        data: Option<PrivateData>,
    ) -> Result<(), DropReason> {
        let answered = self
            .session
            .on_connection_answer(&mut self.cx, packet.route, it)?;
        self.session.set_peer_data(data);
        match answered {
            Answered::Accepted(capabilities) => self.on_accepted(capabilities),
            Answered::Rejected(why) => self.on_life(LifeEvent::Rejected, why),
            Answered::Nonsense => self.on_life(LifeEvent::Lost, CloseReason::Violation),
        }
        Ok(())
    }

    fn on_accepted(&mut self, capabilities: Capabilities) {
        let profile = self.cx.config.profiles.common(capabilities.profiles);
        let (Some(profile), true) = (profile, super::listen::acceptable(&capabilities)) else {
            return self.on_life(LifeEvent::Lost, CloseReason::Violation);
        };
        self.cx.recovery.answered(Timed::Handshake, self.cx.now);
        self.open(capabilities, profile);
        self.on_life(LifeEvent::Accepted, CloseReason::Local);
    }

    fn on_request_disconnect(&mut self, it: &RequestDisconnect) {
        let Connection {
            cx,
            session,
            sending,
            initiator,
            ..
        } = self;
        if let (true, Some(delivered)) = (session.is_established(), &it.delivered) {
            // The peer's last report of what it received from us.
            for id in sending.announced(|sequence| delivered.contains(sequence)) {
                if let Some(ended) = sending.on_delivered(cx, id) {
                    initiator.on_transfer_ended(cx, ended);
                }
            }
            initiator.on_executed(cx, sending, delivered.executed);
        }
        let why = match it.reason {
            // The peer sent what this path does not carry, and gave up.
            Reason::TimedOut if self.cx.path.is_too_narrow() => self.too_narrow(),
            reason => CloseReason::Peer(reason),
        };
        self.on_life(LifeEvent::RequestDisconnect, why);
    }

    fn on_request_to_send(&mut self, rts: &RequestToSend) -> Result<(), DropReason> {
        if self.receiving.on_request_to_send(&mut self.cx, rts)? {
            self.match_target(rts);
        }
        Ok(())
    }

    /// Matches a new announcement with its target.
    pub(super) fn match_target(&mut self, rts: &RequestToSend) {
        let Connection {
            cx,
            receiving,
            responder,
            ..
        } = self;
        match rts.target {
            Target::Receive => receiving.on_announced(cx, rts),
            Target::Read(reader) => receiving.on_read_announced(cx, reader, rts),
            Target::Region(place, immediate) => {
                responder.on_put_announced(cx, receiving, place, immediate, rts);
            }
            Target::Message(number) => {
                responder.on_payload_announced(cx, receiving, number, rts);
            }
        }
    }

    fn on_request_answer(&mut self, it: &RequestAnswer) -> Result<(), DropReason> {
        let Connection {
            cx,
            sending,
            receiving,
            initiator,
            ..
        } = self;
        let taken = receiving.on_read_answered(cx, it)
            || initiator.on_request_answered(cx, sending, receiving, it);
        if taken {
            return Ok(());
        }
        if let Some(ended) = sending.on_announcement_answered(cx, it)? {
            initiator.on_transfer_ended(cx, ended);
        }
        Ok(())
    }

    fn on_state(&mut self, it: &State) -> Result<(), DropReason> {
        let message = match it.complete {
            true => self.sending.message(it.d_id),
            false => None,
        };
        if let Some(ended) = self.sending.on_state(&mut self.cx, it)? {
            if let Some(number) = message {
                // The peer has executed a message whose payload is complete.
                let next = number.wrapping_add(1);
                self.initiator
                    .on_executed(&mut self.cx, &mut self.sending, next);
            }
            self.initiator.on_transfer_ended(&mut self.cx, ended);
        }
        Ok(())
    }

    fn on_end(&mut self, it: &End) -> Result<(), DropReason> {
        let Connection {
            cx,
            sending,
            receiving,
            initiator,
            responder,
            ..
        } = self;
        if it.from_source {
            receiving.on_end_of_source(cx, it)?;
            responder.on_payload_ended(cx, receiving, it.s_id, it.reason);
        } else if it.d_id == 0 {
            sending.on_end_of_read(cx, it)?;
        } else if let Some(ended) = sending.on_end(cx, it) {
            initiator.on_transfer_ended(cx, ended);
        }
        // Confirms even an End without effect: the other end repeats it until then.
        cx.push_control(Operation::EndAck(End {
            d_id: it.s_id,
            s_id: it.d_id,
            ..*it
        }));
        Ok(())
    }

    fn on_end_ack(&mut self, it: &End) -> Result<(), DropReason> {
        let end = self.cx.endings.confirm(it).ok_or(DropReason::Duplicate)?;
        self.cx.recovery.progress();
        if end.from_source {
            if end.reason == Reason::Finished {
                self.sending.on_finish_confirmed();
            }
            self.sending.resolve(&mut self.cx, end.sequence);
        } else if end.d_id == 0 {
            self.receiving.resolve_read(&mut self.cx, end.sequence);
        }
        Ok(())
    }
}
