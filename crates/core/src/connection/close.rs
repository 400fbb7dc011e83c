//! The life of a connection: what follows from each step of its table.

use super::{Connection, listen};
use crate::life::{self, Happening, Then};
use crate::limits::REFUSAL_PATIENCE;
use crate::recovery::Timed;
use crate::timers::Timer;
use crate::{CloseReason, Event, Instant, Life, TransferError, inbound, limits, outbound};
use zerolane_wire::{
    Delivered, Disconnect, Operation, Profiles, Reason, RequestConnection, RequestDisconnect,
    VERSION, VERSION_MIN,
};

impl Connection {
    /// Begins the disconnect handshake. What is not complete fails; to flush, wait for it first.
    pub fn close(&mut self, now: Instant) {
        self.close_with(now, Reason::Normal);
    }

    /// Like [`Connection::close`], telling the peer why.
    pub fn close_with(&mut self, now: Instant, reason: Reason) {
        if matches!(
            self.life,
            Life::Connecting | Life::Answered | Life::Established
        ) {
            self.disconnect_reason = reason;
        }
        self.live(now, Happening::Close, CloseReason::Local);
    }

    /// Ends the connection at once: one Request_Disconnect tells the peer why, and nobody waits for
    /// the answer. If it is lost, the peer finds out by keep-alive.
    pub fn abandon(&mut self, now: Instant, reason: Reason) {
        let known = matches!(
            self.life,
            Life::Answered | Life::Established | Life::Disconnecting
        );
        self.live(now, Happening::Lost, CloseReason::Local);
        if known {
            self.request_disconnect(reason);
        }
    }

    /// The network says that nobody is at the peer's address (ICMP port unreachable).
    pub fn unreachable(&mut self, now: Instant) {
        // Anybody can forge one such message. While the peer answers it is not believed.
        let patience = self.recovery.control_timeout().max(REFUSAL_PATIENCE);
        let silent = now - self.heard > patience;
        if self.life == Life::Connecting || silent {
            self.live(now, Happening::Lost, CloseReason::Unreachable);
        }
    }

    /// Applies `happening` to the connection's life.
    pub(super) fn live(&mut self, now: Instant, happening: Happening, why: CloseReason) {
        let before = self.life;
        let (life, then) = life::step(before, happening);
        self.life = life;
        match then {
            Then::Nothing => {}
            Then::Open => self.established(now),
            Then::AnswerAgain => self.answer_connection(),
            Then::AskToDisconnect => self.begin_to_disconnect(now, why),
            Then::AgreeToDisconnect => self.agree_to_disconnect(now, before, why),
            Then::Complete => {
                self.end(before, self.close_reason);
                self.push_control(Operation::DisconnectComplete(Disconnect {
                    reason: Reason::Normal,
                }));
            }
            Then::End => {
                let graceful = matches!(before, Life::Disconnecting | Life::Answering);
                self.end(before, if graceful { self.close_reason } else { why });
            }
        }
    }

    fn established(&mut self, now: Instant) {
        self.timers.stop(Timer::Handshake);
        self.recovery.progress();
        if self.initiator {
            // Proves our address, again and again until the Responder is heard: it is open only
            // when it heard us, and forgets us otherwise.
            self.handshake_tries = 0;
            self.timers.set(Timer::Handshake, now);
        } else {
            self.timers.stop(Timer::GiveUp);
            self.recovery.answered(Timed::Handshake, now);
            self.congestion.on_new_path(self.recovery.min_rtt());
        }
        self.timers.set(Timer::Probe, now);
        self.events.push_back(Event::Connected(self.profile));
        self.announce(now);
        self.ask_reads(now);
        self.start_works(now);
        // For regions asked for before.
        self.timers.set_earlier(Timer::Memory, now);
        self.expect_peer(now);
    }

    /// The Responder uses our key: it knows that we have its own.
    pub(super) fn responder_heard(&mut self) {
        if self.initiator && self.life == Life::Established {
            self.timers.stop(Timer::Handshake);
            self.timers.stop(Timer::GiveUp);
        }
    }

    fn begin_to_disconnect(&mut self, now: Instant, why: CloseReason) {
        self.fail_all(why);
        self.close_reason = why;
        self.handshake_tries = 0;
        self.recovery.progress();
        self.timers.stop_all();
        self.timers.set(Timer::Handshake, now);
        self.timers
            .set(Timer::GiveUp, now + self.config.connect_timeout);
    }

    fn agree_to_disconnect(&mut self, now: Instant, before: Life, why: CloseReason) {
        if matches!(before, Life::Answered | Life::Established) {
            self.fail_all(why);
            self.close_reason = why;
        }
        if before != self.life {
            self.timers.stop_all();
            self.timers
                .set(Timer::GiveUp, now + self.recovery.control_timeout() * 8);
        }
        self.push_control(Operation::DisconnectAnswer(Disconnect {
            reason: Reason::Normal,
        }));
    }

    /// What arrived here goes with it: the reports of that may have been lost, and from here on
    /// nobody answers questions.
    fn request_disconnect(&mut self, reason: Reason) {
        let mut delivered = self.inbox.delivered();
        delivered.executed = self.memory.executor.expected();
        self.push_control(Operation::RequestDisconnect(RequestDisconnect {
            reason,
            delivered: Some(delivered),
        }));
    }

    pub(super) fn on_request_disconnect(&mut self, now: Instant, it: &RequestDisconnect) {
        if let (Life::Established, Some(delivered)) = (self.life, &it.delivered) {
            self.note_delivered(now, delivered);
        }
        let why = CloseReason::Peer(it.reason);
        self.live(now, Happening::RequestDisconnect, why);
    }

    /// The peer's last word on what it received of us. A claim is worth as much as a State's.
    fn note_delivered(&mut self, now: Instant, it: &Delivered) {
        for id in self.outbox.announced(|sequence| it.contains(sequence)) {
            self.end_outbound(now, id, outbound::Happening::Confirmed, None);
        }
        self.on_executed(now, it.executed);
    }

    fn end(&mut self, before: Life, why: CloseReason) {
        if before == Life::Closed {
            return;
        }
        self.fail_all(why);
        self.control.clear();
        self.probe = 0;
        self.timers.stop_all();
        self.events.push_back(Event::Closed(why));
    }

    /// Fails what is posted. Operations that wait to be sent still go: among them may be the
    /// confirmation of a Transfer that is complete.
    fn fail_all(&mut self, why: CloseReason) {
        self.admission = None;
        for id in self.transfers() {
            let theirs = self.inbox.is_theirs(id);
            self.outbox.happen(id, outbound::Happening::Cancelled);
            self.inbox.end(id, inbound::Happening::Cancelled);
            self.inbox.reads.remove(id);
            self.remove_unmatched(id);
            self.abort_work(id);
            if !theirs {
                let error = TransferError::Closed(why);
                self.events.push_back(Event::Failed { id, error });
            }
        }
        self.endings.clear();
        self.outbox.forget_withdrawn();
        self.memory.clear();
    }

    pub(super) fn connection_request(&self) -> RequestConnection {
        RequestConnection {
            version_min: VERSION_MIN,
            version_max: VERSION,
            capabilities: self.config.capabilities(self.config.profiles),
            s_key: self.entropy.key,
            sync: self.handshake_sync,
        }
    }

    pub(super) fn request_connection(&mut self, now: Instant) {
        self.ask_for_connection();
        if self.handshake_tries == 0 {
            self.recovery.time(Timed::Handshake, now);
        } else {
            self.recovery.untime(Timed::Handshake);
        }
        self.handshake_tries += 1;
        self.repeat_handshake(now);
    }

    /// The step of the handshake just made is to be made again if nothing is heard.
    pub(super) fn repeat_handshake(&mut self, now: Instant) {
        let most = self.config.connect_timeout / limits::HANDSHAKE_TRIES;
        let wait = self
            .recovery
            .control_timeout()
            .min(most.max(limits::MIN_RTO));
        self.timers.set(Timer::Handshake, now + wait);
    }

    pub(super) fn answer_connection(&mut self) {
        let capabilities = self.config.capabilities(Profiles::only(self.profile));
        let answer = listen::accept(capabilities, self.entropy, self.handshake_sync);
        self.push_control(Operation::ConnectionAnswer(answer));
    }

    /// Asks to disconnect, again and again until answered.
    pub(super) fn ask_to_disconnect(&mut self, now: Instant) {
        self.request_disconnect(self.disconnect_reason);
        self.handshake_tries += 1;
        self.repeat_handshake(now);
    }
}
