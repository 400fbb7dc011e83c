//! What is owed to the peer, drained in priority order: control operations, a path probe, repairs,
//! fresh Data.

use super::Connection;
use crate::outbound::Shape;
use crate::recovery::Timed;
use crate::timers::Timer;
use crate::transmit::{BurstLimit, ControlDatagram, Transmit};
use crate::{Instant, Life, TransferId};
use std::time::Duration;
use zerolane_wire::{Nop, Operation, Packet, Profile, RequestToReceive, RequestToSend, Route};

impl Connection {
    /// The next thing to send, if any. A burst is at most as large as `limit`.
    pub fn poll_transmit(&mut self, now: Instant, limit: BurstLimit) -> Option<Transmit> {
        self.next_handshake()
            .or_else(|| self.next_control(now))
            .or_else(|| self.next_probe(now))
            .or_else(|| self.next_operations(now, limit))
            .or_else(|| self.next_value())
            .or_else(|| self.next_confirmation(now))
            .or_else(|| self.next_reply(now, limit))
            .or_else(|| self.next_data(now, limit))
    }

    /// Whether granted payload waits to be sent.
    pub fn has_data(&self) -> bool {
        self.life == Life::Established && self.outbox.has_data()
    }

    fn next_handshake(&mut self) -> Option<Transmit> {
        if !core::mem::take(&mut self.handshake_owed) {
            return None;
        }
        self.counters.control_sent += 1;
        Some(Transmit::Handshake)
    }

    pub(super) fn next_control(&mut self, now: Instant) -> Option<Transmit> {
        let operation = self.control.pop_front()?;
        self.counters.control_sent += 1;
        if matches!(operation, Operation::ConnectionAnswer(_)) {
            self.time_answer(now);
        }
        let d_key = match operation {
            Operation::RequestConnection(_) => 0,
            _ => self.route.d_key,
        };
        let packet = Packet {
            route: Route {
                d_key,
                ..self.route
            },
            operation,
        };
        Some(Transmit::Control(ControlDatagram::new(&packet, 0)))
    }

    /// The answer to a Request_Connection leaves: the Initiator's next word tells the round trip,
    /// unless it answers one of several.
    fn time_answer(&mut self, now: Instant) {
        if self.handshake_tries == 0 {
            self.recovery.time(Timed::Handshake, now);
        } else {
            self.recovery.untime(Timed::Handshake);
        }
        self.handshake_tries += 1;
    }

    fn next_probe(&mut self, now: Instant) -> Option<Transmit> {
        let size = core::mem::take(&mut self.probe);
        if size == 0 {
            return None;
        }
        self.counters.control_sent += 1;
        let sync = self.new_sync();
        self.recovery.time(Timed::Nop(sync), now);
        let nop = Nop {
            send_state: true,
            probe: size as u32,
            sync,
            ..Nop::default()
        };
        let packet = Packet {
            route: self.route,
            operation: Operation::Nop(nop),
        };
        Some(Transmit::Control(ControlDatagram::new(&packet, size)))
    }

    fn next_data(&mut self, now: Instant, limit: BurstLimit) -> Option<Transmit> {
        if !self.has_data() {
            return None;
        }
        let shape = self.controlled_shape(now, limit)?;
        let next = self.outbox.next_burst(now, &shape);
        if !self.outbox.has_data() {
            let wait = self.confirmation_timeout();
            self.timers.set(Timer::Confirmation, now + wait);
        }
        let next = next?;
        let len = next.burst.span.len;
        self.counters.bytes_sent += len;
        self.counters.bytes_resent += if next.repair { len } else { 0 };
        self.note_departure(now, len);
        Some(Transmit::Data(next.burst))
    }

    /// What a burst of payload is to be like that leaves now. `None`: the congestion controller lets
    /// none go, and it does leave otherwise.
    pub(super) fn controlled_shape(&mut self, now: Instant, limit: BurstLimit) -> Option<Shape> {
        let bytes = self.allowance(now, self.stu())?.min(limit.bytes.into());
        Some(Shape {
            ask: self.asks_progress(),
            ..self.shape(BurstLimit {
                bytes: bytes as u32,
                ..limit
            })
        })
    }

    /// What a burst is like that waits for nobody.
    pub(super) fn shape(&self, limit: BurstLimit) -> Shape {
        Shape {
            route: self.route,
            stu: self.stu(),
            profile: self.profile,
            buffer_log2: self.peer.map_or(0, |peer| peer.buffer_log2),
            limit,
            around: self.around(),
            ask: false,
        }
    }

    /// A numbered burst of `len` bytes leaves.
    pub(super) fn note_departure(&mut self, now: Instant, len: u64) {
        if !self.outbox.has_data() && self.memory.replies.is_next_numbered().is_none() {
            self.outbox.flight.limited();
        }
        self.counters.forgotten += self.outbox.flight.take_forgotten();
        if let Some(pace) = self.congestion.pace() {
            let quantum = self.congestion.quantum();
            self.pacer.sent(now, len, pace, quantum);
        }
    }

    /// Bytes, headers included, that the congestion controller lets leave now; if none, a timer or
    /// an answer of the receiver will say when.
    fn allowance(&mut self, now: Instant, stu: u32) -> Option<u64> {
        let pair = 2 * u64::from(stu);
        let under_way = self.outbox.flight.bytes_under_way();
        let room = self.congestion.window().saturating_sub(under_way);
        // An STU on its own costs as much as a burst. Something may always be under way.
        if room < pair && under_way > 0 {
            let wait = self.confirmation_timeout();
            self.timers.set_earlier(Timer::Confirmation, now + wait);
            return None;
        }
        if self.congestion.pace().is_some() && self.pacer.next() > now {
            self.timers.set(Timer::Pace, self.pacer.next());
            return None;
        }
        let bytes = room.min(self.congestion.quantum()).max(pair);
        // Without a controller both may be as large as a number can be.
        let headers = (bytes / u64::from(stu)).saturating_mul(self.around().into());
        Some(bytes.saturating_add(headers))
    }

    /// Whether the next burst asks the receiver how it gets on.
    fn asks_progress(&mut self) -> bool {
        if self.profile == Profile::Classic {
            return false;
        }
        let known = self.recovery.is_known();
        let interval = if known {
            self.congestion.question_interval()
        } else {
            0
        };
        self.outbox.flight.ask(interval)
    }

    /// How long to wait for word of what was sent: the receiver, which knows what it misses, asks
    /// first.
    pub(super) fn confirmation_timeout(&self) -> Duration {
        match self.profile {
            Profile::Classic => self.recovery.control_timeout(),
            Profile::Extended => self.recovery.data_timeout() * 2,
        }
    }

    /// Sends, or repeats, the announcement of a Transfer.
    pub(super) fn send_announcement(&mut self, now: Instant, id: TransferId) {
        let wait = self.recovery.control_timeout();
        let Some(transfer) = self.outbox.get_mut(id) else {
            return;
        };
        transfer.tries = transfer.tries.saturating_add(1);
        transfer.resend_at = now + wait;
        let first = transfer.tries == 1;
        let rts = RequestToSend {
            length: transfer.span.len,
            s_id: id,
            target: transfer.target,
            sequence: transfer.sequence,
            send_state: true,
        };
        self.push_control(Operation::RequestToSend(rts));
        if first {
            self.recovery.time(Timed::Announcement(id), now);
        } else {
            self.recovery.untime(Timed::Announcement(id));
        }
        self.timers.set_earlier(Timer::Answers, now + wait);
        self.expect_peer(now);
    }

    /// Sends, or repeats, the request of a Read.
    pub(super) fn send_read(&mut self, now: Instant, id: TransferId) {
        let wait = self.recovery.control_timeout();
        let Some(read) = self.inbox.reads.get_mut(id) else {
            return;
        };
        let Some(sequence) = read.sequence else {
            return;
        };
        read.resend_at = now + wait;
        let rtr = RequestToReceive {
            capacity: read.span.len,
            s_id: id,
            sequence,
        };
        self.push_control(Operation::RequestToReceive(rtr));
        self.timers.set_earlier(Timer::Answers, now + wait);
        self.expect_peer(now);
    }
}
