//! Protection of a connection: on the Initiator's side the key exchange takes the place of the bare
//! Request_Connection, which travels inside its last message; on the Responder's side it is over
//! before there is a connection, and only a repetition of that message is still to be recognized.
//!
//! The exchange itself is not the core's. The core times and repeats its messages
//! ([`Transmit::Handshake`](crate::Transmit::Handshake)), and is told what came of those that arrive.

use super::{Connection, listen};
use crate::session::{LifeEvent, Protection};
use crate::{CloseReason, Config, DropReason, Entropy, Instant, Life};
use zerolane_wire::{HEADER_LEN, OPTIONS_LEN, Packet, Reason};

/// What came of a message of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// It does not belong to this exchange, or is forged.
    Nothing,
    /// The message to be sent is another one now.
    SendAgain,
    /// The keys are there; the message to be sent is the last one.
    Done,
    /// The last message of the peer came again: it has not heard the answer.
    Repeated,
    /// The peer says no. Any machine on the path could have said so.
    Refused(Reason),
    /// The peer proved to be the owner of this public key, which is not trusted.
    Untrusted([u8; 32]),
}

impl Connection {
    /// An Initiator that proves its identity and wants the same of the Responder. What runs the
    /// exchange sends its messages ([`Transmit::Handshake`](crate::Transmit::Handshake)) and tells what
    /// comes of those that arrive ([`Connection::on_handshake`]).
    pub fn connect_protected(now: Instant, config: Config, entropy: Entropy) -> Connection {
        Connection::initiate(now, config, entropy, Protection::Exchanging)
    }

    /// The connection of a stranger whom the gate admitted.
    ///
    /// # Errors
    /// As of [`listen`](crate::listen()): the rejection to be sent back, sealed.
    #[allow(
        clippy::result_large_err,
        reason = "the rejection is the answer, made once a connection"
    )]
    pub fn admit(
        now: Instant,
        config: Config,
        entropy: Entropy,
        request: &Packet,
    ) -> Result<Connection, Option<Packet>> {
        listen::respond(now, config, entropy, request, Protection::Admitted)
    }

    /// The Request_Connection, which the last message of the exchange carries, and its length in bytes.
    pub fn request(&self) -> ([u8; HEADER_LEN + OPTIONS_LEN], usize) {
        self.session.request_packet(&self.cx).emit()
    }

    /// Takes what came of a handshake message, the one kind of datagram of a protected connection that
    /// is not sealed.
    pub fn on_handshake(&mut self, now: Instant, outcome: HandshakeOutcome) {
        self.cx.enter(now);
        self.cx.counters.control_received += 1;
        match (self.session.protection(), outcome) {
            (Protection::Exchanging, outcome) if self.life() == Life::Connecting => {
                self.on_exchange(outcome);
            }
            (Protection::Admitted, HandshakeOutcome::Repeated) => {
                self.on_life(LifeEvent::RequestRepeated, CloseReason::Local);
            }
            _ => self.cx.counters.count_drop(DropReason::Unexpected, 1),
        }
        self.settle();
    }

    fn on_exchange(&mut self, outcome: HandshakeOutcome) {
        match outcome {
            HandshakeOutcome::Nothing | HandshakeOutcome::Repeated => {
                self.cx.counters.count_drop(DropReason::Malformed, 1);
            }
            HandshakeOutcome::SendAgain => self.session.send_handshake_again(),
            HandshakeOutcome::Done => {
                self.session.exchange_done(&mut self.cx);
            }
            HandshakeOutcome::Refused(reason) => {
                let why = CloseReason::ExchangeRefused(reason);
                self.on_life(LifeEvent::Rejected, why);
            }
            HandshakeOutcome::Untrusted(peer) => {
                self.on_life(LifeEvent::Lost, CloseReason::Untrusted(peer));
            }
        }
    }
}
