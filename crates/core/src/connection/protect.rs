//! Protection of a connection: on the Initiator's side the key exchange takes the place of the bare
//! Request_Connection, which travels inside its last message; on the Responder's side it is over
//! before there is a connection, and only a repetition of that message is still to be recognized.
//!
//! The exchange itself is not the core's. The core times and repeats its messages
//! ([`Transmit::Handshake`](crate::Transmit::Handshake)), and is told what came of those that arrive.

use super::{Connection, listen};
use crate::life::Happening;
use crate::recovery::Timed;
use crate::{CloseReason, Config, DropReason, Entropy, Instant, Life};
use zerolane_wire::{HEADER_LEN, OPTIONS_LEN, Operation, Packet, Reason};

/// How the connection's datagrams are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// Not at all: both ends asked for that.
    Plain,
    /// This end began the key exchange, and repeats its messages.
    Exchanging,
    /// The peer did, and finished it.
    Admitted,
}

/// What came of a message of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// It was none of this exchange, or forged.
    Nothing,
    /// The message to be sent is another one now.
    SendAgain,
    /// The keys are there; the message to be sent is the last one.
    Done,
    /// The last message of the peer came again: it has not heard the answer.
    Repeated,
    /// The peer says no. Anybody on the path could have said so.
    Refused(Reason),
    /// The peer proved to be the owner of this public key, who is not trusted.
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
        let mut connection = listen::listen(now, config, entropy, request)?;
        connection.protection = Protection::Admitted;
        Ok(connection)
    }

    /// The Request_Connection, which the last message of the exchange carries, and its length in bytes.
    pub fn request(&self) -> ([u8; HEADER_LEN + OPTIONS_LEN], usize) {
        self.request_packet().emit()
    }

    /// Takes what came of a handshake message, the one kind of datagram of a protected connection that
    /// is not sealed.
    pub fn on_handshake(&mut self, now: Instant, outcome: HandshakeOutcome) {
        self.counters.control_received += 1;
        match (self.protection, outcome) {
            (Protection::Exchanging, outcome) if self.life == Life::Connecting => {
                self.exchanged(now, outcome);
            }
            (Protection::Admitted, HandshakeOutcome::Repeated) => {
                self.live(now, Happening::RequestRepeated, CloseReason::Local);
            }
            _ => self.counters.count_drop(DropReason::Unexpected, 1),
        }
    }

    fn exchanged(&mut self, now: Instant, outcome: HandshakeOutcome) {
        match outcome {
            HandshakeOutcome::Nothing | HandshakeOutcome::Repeated => {
                self.counters.count_drop(DropReason::Malformed, 1);
            }
            HandshakeOutcome::SendAgain => self.handshake_owed = true,
            HandshakeOutcome::Done => {
                self.recovery.answered(Timed::Handshake, now);
                self.handshake_tries = 0;
                self.request_connection(now);
            }
            HandshakeOutcome::Refused(reason) => {
                let why = CloseReason::ExchangeRefused(reason);
                self.live(now, Happening::Rejected, why);
            }
            HandshakeOutcome::Untrusted(peer) => {
                self.live(now, Happening::Lost, CloseReason::Untrusted(peer));
            }
        }
    }

    /// Sends the Request_Connection, or the message of the key exchange that stands for it.
    pub(super) fn ask_for_connection(&mut self) {
        match self.protection {
            Protection::Plain => {
                let request = self.request_packet().operation;
                self.push_control(request);
            }
            Protection::Exchanging => self.handshake_owed = true,
            Protection::Admitted => {}
        }
    }

    fn request_packet(&self) -> Packet {
        Packet {
            route: zerolane_wire::Route {
                d_key: 0,
                ..self.route
            },
            operation: Operation::RequestConnection(self.connection_request()),
        }
    }
}
