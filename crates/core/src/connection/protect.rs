//! Protection of a connection: on the Initiator's side the key exchange takes the place of the bare
//! Request_Connection, which travels inside its last message; on the Responder's side it is over
//! before there is a connection, and only a repetition of that message is still to be recognized.

use super::{Connection, listen};
use crate::handshake::{Credentials, Initiator, Session, Taken};
use crate::life::Happening;
use crate::recovery::Timed;
use crate::{CloseReason, Config, DropReason, Entropy, Instant, Life};
use zerolane_wire::{Operation, Packet};

/// How the connection's datagrams are protected.
pub(super) enum Protection {
    /// Not at all: both ends asked for that.
    Plain,
    /// This end began the key exchange, and repeats its messages.
    Exchanging(Box<Initiator>),
    /// The peer did, and finished it with this datagram.
    Admitted(Box<[u8]>),
}

impl Connection {
    /// An Initiator that proves who it is and wants the same of the Responder: see
    /// [`Connection::take_session`]. `ephemeral` is 32 bytes that nobody can guess, drawn for this
    /// connection alone. `None` if the cryptography refuses the credentials.
    pub fn connect_protected(
        now: Instant,
        config: Config,
        entropy: Entropy,
        credentials: Credentials,
        ephemeral: [u8; 32],
    ) -> Option<Connection> {
        let ports = (listen::SERVICE_PORT, entropy.port);
        let exchange = Initiator::new(credentials, ephemeral, ports, entropy.key, entropy.sync)?;
        let protection = Protection::Exchanging(Box::new(exchange));
        Some(Connection::initiate(now, config, entropy, protection))
    }

    /// The connection of a stranger whom the gate admitted. Its session is the lane's.
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
        finish: Box<[u8]>,
    ) -> Result<Connection, Option<Packet>> {
        let mut connection = listen::listen(now, config, entropy, request)?;
        connection.protection = Protection::Admitted(finish);
        Ok(connection)
    }

    /// The keys, once, when the exchange gave them. From then on the lane seals everything but
    /// handshake messages, and opens everything before it shows it.
    pub fn take_session(&mut self) -> Option<Session> {
        self.session.take().map(|session| *session)
    }

    /// Whether this end's datagrams are to be sealed, now or as soon as there are keys.
    pub fn is_protected(&self) -> bool {
        !matches!(self.protection, Protection::Plain)
    }

    /// Takes a handshake message, the one kind of datagram of a protected connection that is not
    /// sealed.
    pub fn on_handshake(&mut self, now: Instant, datagram: &[u8]) {
        self.counters.control_received += 1;
        let request = self.request_packet().emit();
        match &mut self.protection {
            Protection::Exchanging(exchange) if self.life == Life::Connecting => {
                let taken = exchange.take(datagram, &request.0[..request.1]);
                self.exchanged(now, taken);
            }
            Protection::Admitted(finish) if **finish == *datagram => {
                self.live(now, Happening::RequestRepeated, CloseReason::Local);
            }
            _ => self.counters.count_drop(DropReason::Unexpected, 1),
        }
    }

    fn exchanged(&mut self, now: Instant, taken: Taken) {
        match taken {
            Taken::Nothing => self.counters.count_drop(DropReason::Malformed, 1),
            Taken::SendAgain => self.queue_handshake(),
            Taken::Done(session) => {
                self.session = Some(session);
                self.recovery.answered(Timed::Handshake, now);
                self.handshake_tries = 0;
                self.request_connection(now);
            }
            Taken::Refused(reason) => {
                let why = CloseReason::ExchangeRefused(reason);
                self.live(now, Happening::Rejected, why);
            }
            Taken::Untrusted(peer) => {
                self.live(now, Happening::Lost, CloseReason::Untrusted(peer));
            }
        }
    }

    /// The message of the exchange that it is time for is to be sent.
    fn queue_handshake(&mut self) {
        if let Protection::Exchanging(exchange) = &self.protection {
            self.handshake = Some(exchange.message());
        }
    }

    /// Sends the Request_Connection, or the message of the key exchange that stands for it.
    pub(super) fn ask_for_connection(&mut self) {
        match self.protection {
            Protection::Plain => {
                let request = self.request_packet().operation;
                self.push_control(request);
            }
            Protection::Exchanging(_) | Protection::Admitted(_) => self.queue_handshake(),
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
