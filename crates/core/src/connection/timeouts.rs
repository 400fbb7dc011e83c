//! What follows from silence.

use super::Connection;
use super::abort::Ending;
use crate::life::Happening;
use crate::limits;
use crate::outbound::Outbound;
use crate::timers::Timer;
use crate::{CloseReason, Instant, Life, OutboundState, TransferId};
use alloc::vec;
use alloc::vec::Vec;
use core::mem::discriminant;
use zerolane_wire::{Operation, RequestState};

impl Connection {
    /// Lets the timers strike that are due, each once: one that is set to `now` meanwhile strikes with the next
    /// call, so that no state of a connection can keep the caller here.
    pub fn on_timeout(&mut self, now: Instant) {
        for timer in Timer::ALL {
            if !self.timers.take_expired(timer, now) {
                continue;
            }
            match timer {
                Timer::Handshake => self.on_handshake_timeout(now),
                Timer::GiveUp => self.on_give_up_timeout(now),
                Timer::Answers => self.on_answers_timeout(now),
                Timer::Payload => self.on_payload_timeout(now),
                Timer::Lost => self.on_lost_timeout(now),
                // It was only to be asked again for what there is to send.
                Timer::Pace => {}
                Timer::Admission => self.grant(now),
                Timer::Confirmation => self.on_confirmation_timeout(now),
                Timer::Peer => self.on_peer_timeout(now),
                Timer::Probe => self.on_probe_timeout(now),
                Timer::Memory => self.on_memory_timeout(now),
                Timer::Confirm => self.confirm_now(),
            }
        }
    }

    fn on_give_up_timeout(&mut self, now: Instant) {
        if self.life == Life::Established {
            // The Responder was never heard using our key. If it lives, keep-alives will find out.
            self.timers.stop(Timer::Handshake);
        }
        self.live(now, Happening::GaveUp, CloseReason::ConnectTimeout);
    }

    fn on_handshake_timeout(&mut self, now: Instant) {
        if self.handshake_tries > 0 {
            self.recovery.back_off();
        }
        match self.life {
            Life::Connecting => self.request_connection(now),
            Life::Established => self.prove_address(now),
            Life::Disconnecting => self.ask_to_disconnect(now),
            Life::Answered | Life::Answering | Life::Closed => {}
        }
    }

    /// Third step of the handshake: shows the Responder that we have its key.
    fn prove_address(&mut self, now: Instant) {
        self.ping(now);
        self.handshake_tries += 1;
        self.repeat_handshake(now);
    }

    /// Repeats what was not answered: announcements, Reads, Ends.
    fn on_answers_timeout(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        let announced = self.announcements_due(now);
        let reads: Vec<(TransferId, bool)> = self
            .inbox
            .reads
            .asked()
            .filter(|(_, read)| read.resend_at <= now)
            .map(|(id, read)| (id, !read.waiting))
            .collect();
        let ended = self.repeat_ends(now);
        // Who was told to wait asks again just in case: that is no sign of loss.
        if ended || announced.iter().chain(&reads).any(|&(_, lost)| lost) {
            self.counters.timeouts += 1;
            self.recovery.back_off();
        }
        for (id, _) in announced {
            self.send_announcement(now, id);
        }
        for (id, _) in reads {
            self.send_read(now, id);
        }
        self.rearm_answers();
    }

    /// Announcements to be repeated, and whether nothing was heard of them. Of those that were told to
    /// wait, the first of each kind asks for all: none behind it has its turn before.
    fn announcements_due(&mut self, now: Instant) -> Vec<(TransferId, bool)> {
        let mut due = vec![];
        let mut waiting = vec![];
        for (id, it) in self.outbox.iter_mut().filter(|(_, it)| is_asking(it)) {
            let waits = it.state == OutboundState::Waiting;
            let kind = discriminant(&it.target);
            if waits && waiting.contains(&kind) {
                it.resend_at = now + limits::WAITING_INTERVAL;
                continue;
            }
            if waits {
                waiting.push(kind);
            }
            if it.resend_at <= now {
                due.push((id, !waits));
            }
        }
        due
    }

    fn rearm_answers(&mut self) {
        let outbound = self
            .outbox
            .iter()
            .filter(|(_, it)| is_asking(it))
            .map(|(_, it)| it.resend_at);
        let reads = self.inbox.reads.asked().map(|(_, read)| read.resend_at);
        let stream = &self.memory.stream;
        let may_leave = |ending: &&Ending| ending.may_leave(stream);
        let ends = self.endings.iter().filter(may_leave);
        let ends = ends.map(|ending| ending.resend_at);
        if let Some(at) = outbound.chain(reads).chain(ends).min() {
            self.timers.set_earlier(Timer::Answers, at);
        }
    }

    /// Everything granted was sent, and nothing is heard: asks how the Transfers stand.
    fn on_confirmation_timeout(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        let open = |it: &Outbound| it.state == OutboundState::Sending;
        let answering = self.memory.replies.is_next_numbered().is_some();
        if !answering && !self.outbox.iter().any(|(_, it)| open(it)) {
            return;
        }
        let silent = now - self.heard >= self.recovery.data_timeout();
        if answering || self.outbox.has_data() {
            self.give_up_flight(now);
        }
        if !self.outbox.has_data() {
            let asked: Vec<(TransferId, u32, u32)> = self
                .outbox
                .iter()
                .filter(|(_, it)| it.all_sent() || open(it) && silent)
                .map(|(id, it)| (id, it.peer, it.first_open()))
                .take(limits::MAX_STATE_REQUESTS)
                .collect();
            self.ask_states(now, &asked);
        }
        self.timers
            .set(Timer::Confirmation, now + self.confirmation_timeout());
    }

    /// There is something to send and no room, for nothing new was seen for long: whatever was under
    /// way is gone, and the path is to be learned anew (RFC 9002, 7.6: persistent congestion).
    fn give_up_flight(&mut self, now: Instant) {
        let flight = &mut self.outbox.flight;
        let patience = self.recovery.data_timeout() * limits::PERSISTENT_TIMEOUTS;
        if flight.bytes_under_way() > 0 && now - flight.quiet_since() >= patience {
            flight.give_up();
            self.congestion.on_silence(now);
        }
    }

    fn ask_states(&mut self, now: Instant, transfers: &[(TransferId, u32, u32)]) {
        if transfers.is_empty() {
            return;
        }
        for &(s_id, d_id, b_num) in transfers {
            let sync = self.new_sync();
            self.push_control(Operation::RequestState(RequestState {
                b_num,
                d_id,
                s_id,
                sync,
            }));
        }
        self.counters.timeouts += 1;
        self.recovery.back_off();
        self.expect_peer(now);
    }

    /// Pings a peer that something depends on, and declares it dead when it left every keep-alive
    /// of an idle timeout unanswered. Silences are counted, not measured: a machine that was
    /// suspended has missed one, however long it slept.
    fn on_peer_timeout(&mut self, now: Instant) {
        if self.life != Life::Established || !self.is_busy() {
            return;
        }
        let silence = now - self.heard;
        if silence < self.keepalive() {
            self.timers.set(Timer::Peer, self.heard + self.keepalive());
            return;
        }
        if self.unanswered_pings + 1 >= limits::KEEPALIVES_PER_IDLE_TIMEOUT {
            self.live(now, Happening::Lost, CloseReason::PeerDead);
            return;
        }
        self.unanswered_pings += 1;
        self.ping(now);
        self.timers.set(Timer::Peer, now + self.keepalive());
    }

    fn on_probe_timeout(&mut self, now: Instant) {
        if self.life != Life::Established {
            return;
        }
        if let Some(size) = self.path.next_probe() {
            self.probe = size;
            self.timers
                .set(Timer::Probe, now + self.recovery.control_timeout());
        }
    }
}

/// Whether the Transfer asks the peer for a grant.
fn is_asking(it: &Outbound) -> bool {
    matches!(it.state, OutboundState::Announced | OutboundState::Waiting)
}
