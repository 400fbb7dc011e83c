//! Handles each timer of the connection when it expires.

use super::Connection;
use crate::event::CloseReason;
use crate::session::LifeEvent;
use crate::time::Instant;
use crate::timers::Timer;
use zerolane_wire::{Operation, Reason};

impl Connection {
    /// Handles the expired timers, each once. A timer that is set to `now` meanwhile is handled by the next call, so
    /// that no state of a connection can keep the caller here.
    pub fn on_timeout(&mut self, now: Instant) {
        self.cx.enter(now);
        for timer in Timer::ALL {
            if self.cx.timers.take_expired(timer, now) {
                self.on_timer(timer);
                self.settle();
            }
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Handshake => self.on_handshake_timeout(),
            Timer::GiveUp => self.on_give_up_timeout(),
            _ if self.session.is_established() => self.on_open_timer(timer),
            _ => {}
        }
    }

    fn on_open_timer(&mut self, timer: Timer) {
        let Connection {
            cx,
            session,
            sending,
            receiving,
            initiator,
            responder,
        } = self;
        match timer {
            Timer::Answers => self.on_answers_timeout(),
            Timer::Payload => receiving.on_payload_timeout(cx),
            Timer::LossDetection => receiving.on_loss_detection_timeout(cx),
            Timer::Admission => receiving.grant(cx, responder.expected()),
            Timer::ProbeTimeout => {
                let silent = cx.now - session.last_heard() >= cx.longest_data_timeout();
                sending.on_probe_timeout(cx, silent, responder.is_answering());
            }
            Timer::Peer => self.on_peer_timeout(),
            Timer::PathProbe => self.on_path_probe_timeout(),
            Timer::Memory => initiator.on_memory_timeout(cx),
            Timer::DelayedAck => responder.confirm_now(),
            Timer::Confirmations => receiving.on_confirmations_timeout(cx),
            Timer::Links => self.on_links_timeout(),
            // These only make the caller poll for transmissions again.
            Timer::Pace | Timer::Handshake | Timer::GiveUp => {}
        }
    }

    fn on_give_up_timeout(&mut self) {
        if self.session.is_established() {
            // The Responder was never heard to use our key. Keep-alives will find out whether it lives.
            self.cx.timers.stop(Timer::Handshake);
        }
        self.on_life(LifeEvent::GaveUp, CloseReason::ConnectTimeout);
    }

    fn on_handshake_timeout(&mut self) {
        if self.session.misses_disconnect_answer() {
            // No other timer checks paths any more, and the path of the last question may be dead.
            self.turn_control();
        }
        let delivered = self.delivered();
        self.session.on_handshake_timeout(&mut self.cx, delivered);
    }

    /// Pings a peer that is watched or reported unreachable, and declares it dead if it stays silent.
    fn on_peer_timeout(&mut self) {
        let watched = self.watches_peer();
        if !self.session.on_peer_timeout(&mut self.cx, watched) {
            self.on_life(LifeEvent::Lost, CloseReason::PeerDead);
        }
    }

    /// Probes the first path, and closes if it is too narrow for what waits.
    fn on_path_probe_timeout(&mut self) {
        let narrow = self.session.on_path_probe_timeout(&mut self.cx);
        // Other paths may carry it.
        if narrow && !self.cx.links.is_several() && self.is_stuck() {
            self.session.set_disconnect_reason(Reason::TimedOut);
            let why = self.too_narrow();
            self.on_life(LifeEvent::Close, why);
        }
    }

    /// Whether payload longer than half a datagram was requested or sent repeatedly, and nothing of it arrived.
    fn is_stuck(&self) -> bool {
        let room = self.cx.room();
        self.sending.is_stuck(room) || self.receiving.is_stuck() || self.initiator.is_stuck(room)
    }

    /// Repeats unanswered announcements, Reads and Ends.
    fn on_answers_timeout(&mut self) {
        let Connection {
            cx,
            sending,
            receiving,
            initiator,
            ..
        } = self;
        let announced = sending.announcements_due(cx);
        let reads = receiving.reads_due(cx.now);
        let executed = |number| initiator.has_executed(number);
        let resend_at = cx.now + cx.recovery.control_timeout();
        let (ends, ended) = cx.endings.take_due(cx.now, resend_at, executed);
        for end in ends {
            cx.push_control(Operation::End(end));
        }
        // A deferred Transfer asks again as a precaution: that is no sign of loss.
        if ended || announced.iter().chain(&reads).any(|&(_, lost)| lost) {
            cx.counters.timeouts += 1;
            cx.recovery.back_off();
            cx.doubt_path(cx.links.control);
        }
        for (id, _) in announced {
            sending.send_announcement(cx, id);
        }
        for (id, _) in reads {
            receiving.send_read(cx, id);
        }
        let next = [
            sending.next_answer_due(),
            receiving.next_answer_due(),
            cx.endings.next_due(executed),
        ];
        if let Some(at) = next.into_iter().flatten().min() {
            cx.timers.set_earlier(Timer::Answers, at);
        }
    }

    /// Makes the next transmission confirm the peer's operations and Transfers, instead of waiting for other traffic to
    /// carry the confirmation. Must be called before a lane sleeps.
    pub fn confirm_now(&mut self) {
        self.cx.mark_dirty();
        self.responder.confirm_now();
        self.receiving.confirm_waiting(&mut self.cx);
    }
}
