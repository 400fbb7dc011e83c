//! This end's part in the exchange of one connection.

use crate::initiator::{Initiator, Taken};
use crate::{Credentials, HandshakeDatagram, Session};
use core::fmt;
use zerolane_core::{Entropy, HandshakeOutcome, SERVICE_PORT};

/// What an end still has to do with a connection's key exchange.
pub struct Exchange(Part);

enum Part {
    /// It began the exchange, and has the message that is to be sent.
    Initiator(Box<Initiator>),
    /// The peer began it. This is the peer's last message, which may come again.
    Admitted(Box<[u8]>),
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Part::Initiator(_) => "Initiator",
            Part::Admitted(_) => "Admitted",
        })
    }
}

impl Exchange {
    /// Begins the exchange of the connection that has `entropy`. `ephemeral` is 32 bytes that cannot be
    /// guessed, drawn for this connection alone. `None` if the cryptography refuses the credentials.
    pub fn initiate(
        credentials: Credentials,
        ephemeral: [u8; 32],
        entropy: Entropy,
    ) -> Option<Exchange> {
        let ports = (SERVICE_PORT, entropy.port);
        let initiator = Initiator::new(credentials, ephemeral, ports, entropy.key, entropy.sync)?;
        Some(Exchange(Part::Initiator(Box::new(initiator))))
    }

    /// Of a connection whose peer finished the exchange with the message `finish`.
    pub fn admitted(finish: Box<[u8]>) -> Exchange {
        Exchange(Part::Admitted(finish))
    }

    /// The message to be sent, if it is this end's turn.
    pub fn message(&self) -> Option<HandshakeDatagram> {
        match &self.0 {
            Part::Initiator(initiator) => Some(initiator.message()),
            Part::Admitted(_) => None,
        }
    }

    /// Takes a handshake message. `request` is the Request_Connection that goes with the last message.
    /// Returns what the connection is to be told, and the session, once.
    pub fn take(
        &mut self,
        datagram: &[u8],
        request: &[u8],
    ) -> (HandshakeOutcome, Option<Box<Session>>) {
        let taken = match &mut self.0 {
            Part::Initiator(initiator) => initiator.take(datagram, request),
            Part::Admitted(finish) if **finish == *datagram => {
                return (HandshakeOutcome::Repeated, None);
            }
            Part::Admitted(_) => Taken::Nothing,
        };
        match taken {
            Taken::Nothing => (HandshakeOutcome::Nothing, None),
            Taken::SendAgain => (HandshakeOutcome::SendAgain, None),
            Taken::Done(session) => (HandshakeOutcome::Done, Some(session)),
            Taken::Refused(reason) => (HandshakeOutcome::Refused(reason), None),
            Taken::Untrusted(peer) => (HandshakeOutcome::Untrusted(peer.0), None),
        }
    }
}
