//! What is owed to the peer, drained in priority order: control operations, a path probe, repairs,
//! fresh Data.

use super::Connection;
use crate::outbound::Shape;
use crate::recovery::Timed;
use crate::timers::Timer;
use crate::transmit::{BurstLimit, ControlDatagram, Transmit};
use crate::{Instant, Life, TransferId};
use zerolane_wire::{Nop, Operation, Packet, RequestToReceive, RequestToSend, Route};

impl Connection {
    /// The next thing to send, if any. A burst is at most as large as `limit`.
    pub fn poll_transmit(&mut self, now: Instant, limit: BurstLimit) -> Option<Transmit> {
        self.next_handshake()
            .or_else(|| self.next_control())
            .or_else(|| self.next_probe(now))
            .or_else(|| self.next_data(now, limit))
    }

    /// Whether granted payload waits to be sent.
    pub fn has_data(&self) -> bool {
        self.life == Life::Established && self.outbox.has_data()
    }

    fn next_handshake(&mut self) -> Option<Transmit> {
        let message = self.handshake.take()?;
        self.counters.control_sent += 1;
        Some(Transmit::Handshake(message))
    }

    fn next_control(&mut self) -> Option<Transmit> {
        let operation = self.control.pop_front()?;
        self.counters.control_sent += 1;
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
        let stu = self.stu();
        let allowance = self.congestion.allowance(now);
        if allowance < u64::from(stu) {
            return None;
        }
        let bytes = limit
            .bytes
            .min(u32::try_from(allowance).unwrap_or(u32::MAX));
        let shape = Shape {
            route: self.route,
            stu,
            profile: self.profile,
            buffer_log2: self.peer.map_or(0, |peer| peer.buffer_log2),
            limit: BurstLimit { bytes, ..limit },
            around: self.around(),
        };
        let next = self.outbox.next_burst(&shape);
        if !self.outbox.has_data() {
            self.timers
                .set(Timer::Confirmation, now + self.recovery.control_timeout());
        }
        let next = next?;
        let len = next.burst.span.len;
        self.counters.bytes_sent += len;
        self.counters.bytes_resent += if next.repair { len } else { 0 };
        self.congestion.on_sent(now, len);
        Some(Transmit::Data(next.burst))
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
            reader: transfer.reader,
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
