//! Runs the connection's side of the key exchange, on protected connections.
//!
//! On the Initiator, the key exchange replaces the bare Request_Connection, which travels inside its last message. On
//! the Responder, the exchange is over before the connection exists, and only a repetition of that message must be
//! recognized.
//!
//! The exchange itself lies outside the core. The core times and repeats its messages
//! ([`Transmit::Handshake`](crate::Transmit::Handshake)), and takes the outcome of those that arrive.

use super::{Connection, listen};
use crate::config::{Config, Entropy};
use crate::counters::DropReason;
use crate::event::CloseReason;
use crate::session::{Life, LifeEvent, Protection};
use crate::time::Instant;
use crate::transmit::ControlDatagram;
use zerolane_wire::{Packet, Reason};

/// Outcome of a message of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// It belongs to another exchange, or is forged.
    Nothing,
    /// This end must now send another message.
    SendAgain,
    /// The keys are known; this end must now send the last message.
    Done,
    /// The peer's last message came again: the peer has not heard the answer.
    Repeated,
    /// The peer refuses. Not authenticated: any machine on the path can forge this.
    Refused(Reason),
    /// The peer proved that it owns this public key, which is not trusted.
    Untrusted([u8; 32]),
}

impl Connection {
    /// An Initiator that proves its identity, and requires the same of the Responder. The caller runs the exchange: it
    /// sends the messages ([`Transmit::Handshake`](crate::Transmit::Handshake)), and reports the outcome of those that
    /// arrive ([`Connection::on_handshake`]).
    pub fn connect_protected(now: Instant, config: Config, entropy: Entropy) -> Connection {
        Connection::initiate(now, config, entropy, Protection::Exchanging)
    }

    /// The connection of a peer that the gate admitted.
    ///
    /// # Errors
    /// As of [`listen`](crate::listen()): the rejection to send back, sealed.
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

    /// The Request_Connection, carried by the last message of the exchange.
    pub fn request(&self) -> ControlDatagram {
        let packet = self.session.request_packet(&self.cx);
        let data = self.session.private_data(&self.cx, &packet.operation);
        ControlDatagram::new(&packet, 0).with(data)
    }

    /// Takes the outcome of a handshake message, the only datagrams of a protected connection that are not sealed.
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
