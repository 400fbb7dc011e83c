//! Selects the next transmission whenever the lane can send, in priority order.

use super::Connection;
use crate::links::PathLife;
use crate::time::Instant;
use crate::transmit::{BurstLimit, ControlDatagram, OperationBurst, Transmit};
use zerolane_wire::{Operation, Packet, Route};

impl Connection {
    /// The next transmission, if any. A burst is at most as large as `limit`.
    pub fn poll_transmit(&mut self, now: Instant, limit: BurstLimit) -> Option<Transmit> {
        self.cx.enter(now);
        self.sending.settle_datagrams(&mut self.cx);
        let Some(transmit) = self.next_transmit(limit) else {
            self.cx.found_nothing();
            self.settle();
            return None;
        };
        let answers = matches!(transmit, Transmit::Data(_) | Transmit::Operations(_));
        // The payload of a message follows it.
        if answers && !self.sending.has_eager() {
            self.receiving.on_departed(&mut self.cx);
        }
        self.settle();
        Some(transmit)
    }

    /// Whether [`Connection::poll_transmit`] returns nothing until the next entry: the last call returned nothing, and
    /// everything that waits for a time has a timer.
    pub fn is_quiet(&self) -> bool {
        self.cx.is_quiet()
    }

    /// Each step checks cheaply whether it has anything to send: most calls find nothing.
    #[inline]
    fn next_transmit(&mut self, limit: BurstLimit) -> Option<Transmit> {
        if self.path_life(self.cx.links.selected) == PathLife::Absent {
            return None;
        }
        if self.session.take_handshake() {
            self.cx.counters.control_sent += 1;
            return Some(Transmit::Handshake);
        }
        let several = self.cx.links.is_several();
        if several && let Some(operation) = self.cx.links.take_owed() {
            return Some(self.path_control(operation));
        }
        let control = self.cx.links.carries_control();
        if control && self.cx.has_control() {
            return self.next_control();
        }
        let Connection {
            cx,
            session,
            sending,
            receiving,
            initiator,
            responder,
        } = self;
        if cx.links.selected == 0
            && let Some((packet, size)) = session.next_probe(cx)
        {
            cx.counters.control_sent += 1;
            return Some(Transmit::Control(ControlDatagram::new(&packet, size)));
        }
        if !session.is_established() {
            return None;
        }
        if !control {
            return self.next_payload(limit);
        }
        if initiator.has_unsent() {
            if let Some(burst) = initiator.next_bare_message(cx, responder, sending, limit) {
                return Some(Transmit::Data(burst));
            }
            if let Some(burst) = initiator.next_operations(cx, responder, limit) {
                return Some(Transmit::Operations(burst));
            }
        }
        if let Some(value) = responder.next_value(cx) {
            return Some(Transmit::Control(value));
        }
        if responder.next_confirmation(cx, receiving) {
            return self.next_control();
        }
        self.next_payload(limit)
    }

    /// Payload that any carrying path may take: datagrams, in turns with all else; then answers to Gets.
    fn next_payload(&mut self, limit: BurstLimit) -> Option<Transmit> {
        let Connection {
            cx,
            sending,
            responder,
            ..
        } = self;
        let answering = responder.is_answering();
        if sending.is_datagrams_turn(answering || sending.has_data())
            && sending.may_carry(cx, |most| responder.unsent_answers(most))
            && let Some(burst) = sending.next_datagram(cx, limit, answering)
        {
            return Some(Transmit::Data(burst));
        }
        sending.end_datagrams_turn();
        if let Some(burst) = responder.next_answer(cx, sending, limit) {
            return Some(Transmit::Data(burst));
        }
        if !sending.has_data() {
            if cx.links.is_several() && !responder.is_answering() {
                sending.on_path_idle(cx);
            }
            return None;
        }
        if !sending.may_carry(cx, |most| responder.unsent_answers(most)) {
            return None;
        }
        let burst = sending.next_burst(cx, limit, responder.is_answering())?;
        Some(Transmit::Data(burst))
    }

    /// Takes back a burst of small operations for which the lane had no room; a later poll returns it again. Must be
    /// called before any other entry.
    pub fn take_back(&mut self, burst: &OperationBurst) {
        self.cx.mark_dirty();
        self.initiator.take_back(burst);
    }

    fn next_control(&mut self) -> Option<Transmit> {
        let operation = self.cx.pop_control()?;
        self.cx.counters.control_sent += 1;
        if matches!(operation, Operation::ConnectionAnswer(_)) {
            // The Initiator's next operation gives the round trip.
            self.session.time_handshake(&mut self.cx);
        }
        let d_key = match operation {
            Operation::RequestConnection(_) => 0,
            _ => self.cx.route.d_key,
        };
        let packet = Packet {
            route: Route {
                d_key,
                ..self.cx.route
            },
            operation,
        };
        let data = self.session.private_data(&self.cx, &packet.operation);
        Some(Transmit::Control(
            ControlDatagram::new(&packet, 0).with(data),
        ))
    }
}
