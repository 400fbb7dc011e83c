//! What follows from silence.

use super::Connection;
use crate::life::Happening;
use crate::limits;
use crate::outbound::Outbound;
use crate::timers::Timer;
use crate::{CloseReason, Instant, Life, OutboundState, TransferId};
use zerolane_wire::{Operation, RequestState};

impl Connection {
    /// Lets the timers strike that are due.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.expired(now) {
            match timer {
                Timer::Handshake => self.on_handshake_timeout(now),
                Timer::GiveUp => self.live(now, Happening::GaveUp, CloseReason::ConnectTimeout),
                Timer::Answers => self.on_answers_timeout(now),
                Timer::Payload => self.on_payload_timeout(now),
                Timer::Confirmation => self.on_confirmation_timeout(now),
                Timer::Peer => self.on_peer_timeout(now),
                Timer::Probe => self.on_probe_timeout(now),
            }
        }
    }

    fn on_handshake_timeout(&mut self, now: Instant) {
        if self.handshake_tries > 0 {
            self.recovery.untime(self.entropy.sync);
            self.recovery.back_off();
        }
        match self.life {
            Life::Connecting => self.request_connection(now),
            Life::Disconnecting => self.ask_to_disconnect(now),
            _ => {}
        }
    }

    /// Repeats what was not answered: announcements, Reads, Ends.
    fn on_answers_timeout(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        let due: Vec<TransferId> = self
            .outbox
            .iter()
            .filter(|(_, it)| it.state == OutboundState::Announced && it.resend_at <= now)
            .map(|(id, _)| id)
            .collect();
        let reads: Vec<TransferId> = self
            .inbox
            .reads
            .iter()
            .filter(|(_, read)| !read.waiting && read.resend_at <= now)
            .map(|(&id, _)| id)
            .collect();
        let repeated = !due.is_empty() || reads.iter().any(|id| self.inbox.reads[id].tries > 0);
        if repeated {
            self.counters.timeouts += 1;
            self.recovery.back_off();
        }
        due.into_iter()
            .for_each(|id| self.send_announcement(now, id));
        reads.into_iter().for_each(|id| self.send_read(now, id));
        self.repeat_ends(now);
        self.rearm_answers();
    }

    fn repeat_ends(&mut self, now: Instant) {
        let wait = self.recovery.control_timeout();
        self.endings
            .retain(|ending| ending.tries < limits::MAX_END_TRIES);
        let mut due = vec![];
        for ending in self
            .endings
            .iter_mut()
            .filter(|ending| ending.resend_at <= now)
        {
            ending.tries += 1;
            ending.resend_at = now + wait;
            due.push(ending.end);
        }
        due.into_iter()
            .for_each(|end| self.push_control(Operation::End(end)));
    }

    fn rearm_answers(&mut self) {
        let announced = |it: &Outbound| it.state == OutboundState::Announced;
        let outbound = self
            .outbox
            .iter()
            .filter(|(_, it)| announced(it))
            .map(|(_, it)| it.resend_at);
        let reads = self
            .inbox
            .reads
            .values()
            .filter(|read| !read.waiting)
            .map(|read| read.resend_at);
        let ends = self.endings.iter().map(|ending| ending.resend_at);
        if let Some(at) = outbound.chain(reads).chain(ends).min() {
            self.timers.set_earlier(Timer::Answers, at);
        }
    }

    /// Asks for the granted payload that should have come: of every Block up to and including the
    /// first one that nothing has overtaken.
    fn on_payload_timeout(&mut self, now: Instant) {
        let wait = self.recovery.data_timeout();
        let mut late = vec![];
        let mut next = None;
        for (sequence, block) in self.inbox.grants.iter() {
            let at = block.moved + wait;
            if at <= now {
                late.push((sequence, block.reached == 0));
            } else {
                next = Some(next.map_or(at, |old: Instant| old.min(at)));
            }
            if !self.inbox.grants.overtaken(sequence) {
                break;
            }
        }
        if !late.is_empty() {
            self.counters.timeouts += 1;
            self.recovery.back_off();
        }
        for (sequence, untouched) in late {
            self.ask_again(now, sequence, untouched);
        }
        if !self.inbox.grants.is_idle() {
            let at = next.unwrap_or(now + self.recovery.data_timeout());
            self.timers.set_earlier(Timer::Payload, at);
        }
    }

    fn ask_again(&mut self, now: Instant, sequence: u32, untouched: bool) {
        self.expect_answer(now);
        if self.repairs_whole_blocks() {
            if let Some(granted) = self.inbox.regrant(now, sequence) {
                self.send_grant(granted.sequence);
            }
            return;
        }
        if untouched {
            self.send_grant(sequence);
        }
        self.report_now(now, sequence);
    }

    /// Everything granted was sent, and nothing is heard: asks how the oldest Transfer stands.
    fn on_confirmation_timeout(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        let open = self
            .outbox
            .iter()
            .find(|(_, it)| it.state == OutboundState::Sending);
        let Some((s_id, transfer)) = open else { return };
        let (d_id, b_num, all_sent) = (transfer.peer, transfer.first_open(), transfer.all_sent());
        let silent = all_sent || now - self.heard >= self.recovery.control_timeout();
        if silent && !self.outbox.has_data() {
            let sync = self.new_sync();
            self.counters.timeouts += 1;
            self.push_control(Operation::RequestState(RequestState {
                b_num,
                d_id,
                s_id,
                sync,
            }));
            self.recovery.back_off();
            self.expect_answer(now);
        }
        self.timers
            .set(Timer::Confirmation, now + self.recovery.control_timeout());
    }

    /// Pings a peer that something depends on, and declares it dead when it left requests
    /// unanswered for the idle timeout. Time in which nothing was asked does not count, so that a
    /// suspended machine does not find its peers dead.
    fn on_peer_timeout(&mut self, now: Instant) {
        if self.life != Life::Established || !self.is_busy() {
            self.unanswered = None;
            return;
        }
        if self
            .unanswered
            .is_some_and(|since| now - since >= self.config.idle_timeout)
        {
            self.live(now, Happening::Lost, CloseReason::PeerDead);
            return;
        }
        if now - self.heard >= self.keepalive() {
            self.ping();
            self.unanswered.get_or_insert(now);
        }
        self.timers.set(Timer::Peer, now + self.keepalive());
    }

    fn on_probe_timeout(&mut self, now: Instant) {
        if self.life != Life::Established || !self.is_extended() && self.outbox.len() > 0 {
            return;
        }
        if let Some(size) = self.path.next_probe() {
            self.probe = size;
            self.timers
                .set(Timer::Probe, now + self.recovery.control_timeout());
        }
    }
}
