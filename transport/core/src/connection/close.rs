//! Cancels Transfers, and ends the connection when the user, the peer or the lane asks for it.

use super::Connection;
use crate::context::Debt;
use crate::event::{CloseReason, Event, TransferError};
use crate::session::{Life, LifeEvent, Transition};
use crate::time::Instant;
use crate::timers::Timer;
use crate::transfer::TransferId;
use alloc::vec::Vec;
use zerolane_wire::{Delivered, Disconnect, Operation, Reason};

/// Cancelling Transfers.
impl Connection {
    /// Cancels a posted Transfer. Its memory is neither read nor written any more; its [`Event::Failed`] follows. False
    /// if it is already over.
    pub fn cancel(&mut self, now: Instant, id: TransferId) -> bool {
        self.give_up(now, id, Reason::Cancelled, TransferError::Cancelled)
    }

    /// Like [`Connection::cancel`], because the lane cannot access the Transfer's memory (a truncated mapped file, for
    /// example).
    pub fn fault(&mut self, now: Instant, id: TransferId) -> bool {
        let error = TransferError::Refused(Reason::MemoryFault);
        self.give_up(now, id, Reason::MemoryFault, error)
    }

    fn give_up(
        &mut self,
        now: Instant,
        id: TransferId,
        reason: Reason,
        error: TransferError,
    ) -> bool {
        self.cx.enter(now);
        let Connection {
            cx,
            sending,
            receiving,
            initiator,
            responder,
            ..
        } = self;
        let transfer = sending.cancel(cx, id, reason) || receiving.cancel(cx, id, reason);
        // A message and its payload, which is a Transfer, share the identifier: cancels both.
        let request = responder.cancel(id) || initiator.cancel(id);
        if !transfer && !request {
            return false;
        }
        cx.events.push_back(Event::Failed { id, error });
        cx.owe(Debt::Announce);
        cx.owe(Debt::Grant);
        cx.owe(Debt::Start);
        self.settle();
        true
    }

    /// All posted Transfers that are not over.
    pub fn transfers(&self) -> Vec<TransferId> {
        let beside = |&id: &TransferId| !self.sending.has(id);
        self.sending
            .ids()
            .chain(self.receiving.ids())
            .chain(self.initiator.ids().filter(beside))
            .chain(self.responder.ids())
            .collect()
    }
}

/// Ending the connection.
impl Connection {
    /// Begins the disconnect handshake. Incomplete Transfers fail; to flush, wait for them first.
    pub fn close(&mut self, now: Instant) {
        self.close_with(now, Reason::Normal);
    }

    /// Like [`Connection::close`], with a reason for the peer.
    pub fn close_with(&mut self, now: Instant, reason: Reason) {
        self.cx.enter(now);
        if self.session.is_asked() {
            return self.session.refuse(&mut self.cx);
        }
        self.session.set_disconnect_reason(reason);
        self.on_life(LifeEvent::Close, CloseReason::Local);
    }

    /// Ends the connection at once. One Request_Disconnect tells the peer why, and its answer is not awaited. If it is
    /// lost, keep-alives tell the peer.
    pub fn abandon(&mut self, now: Instant, reason: Reason) {
        self.cx.enter(now);
        let known = matches!(
            self.life(),
            Life::Answered | Life::Established | Life::Disconnecting
        );
        self.on_life(LifeEvent::Lost, CloseReason::Local);
        if known {
            let delivered = self.delivered();
            self.session
                .request_disconnect(&mut self.cx, reason, delivered);
        }
    }

    /// The network reported that the peer's address is unreachable (ICMP port unreachable).
    pub fn unreachable(&mut self, now: Instant) {
        self.cx.enter(now);
        if self.session.on_refused(&mut self.cx) {
            self.on_life(LifeEvent::Lost, CloseReason::Unreachable);
        }
    }

    /// The lane cannot continue: the peer's process is gone ([`CloseReason::PeerDead`]), or it corrupted the shared
    /// state ([`CloseReason::Violation`]).
    pub fn on_lane_lost(&mut self, now: Instant, why: CloseReason) {
        self.cx.enter(now);
        self.on_life(LifeEvent::Lost, why);
        self.settle();
    }

    /// The Transfers that arrived here, for the disconnecting peer.
    pub(super) fn delivered(&self) -> Delivered {
        let mut delivered = self.receiving.delivered();
        delivered.executed = self.responder.expected();
        delivered
    }

    /// Applies `event` to the connection's life, and handles the transition.
    pub(super) fn on_life(&mut self, event: LifeEvent, why: CloseReason) {
        let (before, transition) = self.session.step(event);
        match transition {
            Transition::Nothing => {}
            Transition::Open => self.established(),
            Transition::AnswerAgain => self.session.answer_connection(&mut self.cx),
            Transition::AskToDisconnect => {
                self.fail_all(why);
                self.session.begin_to_disconnect(&mut self.cx, why);
            }
            Transition::AgreeToDisconnect => {
                if matches!(before, Life::Answered | Life::Established) {
                    self.fail_all(why);
                }
                // The peer tries each path in turn when one is dead, so it hears this end on that path.
                self.follow_control();
                self.session.agree_to_disconnect(&mut self.cx, before, why);
            }
            Transition::Complete => {
                self.end(before, self.session.close_reason());
                self.cx
                    .push_control(Operation::DisconnectComplete(Disconnect {
                        reason: Reason::Normal,
                    }));
            }
            Transition::End => {
                let graceful = matches!(before, Life::Disconnecting | Life::Answering)
                    || self.session.is_refused();
                let why = if graceful {
                    self.session.close_reason()
                } else {
                    why
                };
                self.end(before, why);
            }
        }
    }

    fn established(&mut self) {
        let Connection {
            cx,
            session,
            sending,
            ..
        } = self;
        session.established(cx);
        if !session.is_initiator() {
            sending.on_first_rtt(cx);
        }
        cx.events.push_back(Event::Connected(cx.profile));
        cx.owe(Debt::Announce);
        cx.owe(Debt::Read);
        cx.owe(Debt::Start);
        cx.owe(Debt::Peer);
        // Sends the requests for regions that were posted earlier.
        cx.timers.set_earlier(Timer::Memory, cx.now);
    }

    fn end(&mut self, before: Life, why: CloseReason) {
        if before == Life::Closed {
            return;
        }
        self.fail_all(why);
        self.session.end(&mut self.cx);
        self.cx.events.push_back(Event::Closed(why));
    }

    /// Fails everything posted. Queued control operations still leave: one of them may confirm a complete Transfer.
    fn fail_all(&mut self, why: CloseReason) {
        for id in self.transfers() {
            let put_of_peer = self.receiving.is_put_of_peer(id);
            self.sending.forget(id);
            self.receiving.forget(id);
            if !put_of_peer {
                let error = TransferError::Closed(why);
                self.cx.events.push_back(Event::Failed { id, error });
            }
        }
        self.sending.clear(&mut self.cx);
        self.receiving.clear(&mut self.cx);
        self.initiator.clear();
        self.responder.clear();
        self.cx.endings.clear();
        self.cx.forgive_debts();
    }
}
