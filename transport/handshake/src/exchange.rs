//! This end's part in the exchange of one connection.

use crate::initiator::{Initiator, Taken};
use crate::limits::HANDSHAKE_LIFETIME;
use crate::{Credentials, HandshakeDatagram, Session};
use core::fmt;
use zerolane_core::{Entropy, HandshakeOutcome, Instant};

/// What an end still has to do with a connection's key exchange.
pub struct Exchange(Part);

enum Part {
    /// It began the exchange, and has the message that is to be sent.
    Initiator(Box<Attempts>),
    /// The peer began it. This is the peer's last message, which may come again.
    Admitted(Box<[u8]>),
}

/// The Initiator's attempts at one exchange.
///
/// A Responder forgets an exchange whose last message does not come within [`HANDSHAKE_LIFETIME`], and is silent to that
/// message from then on. It is silent, too, while it let the Initiator in and its Connection_Answer is lost. The
/// Initiator cannot tell the two apart, so it repeats both: the last message, and the first of another exchange.
struct Attempts {
    current: Initiator,
    /// When the last message of `current` was first sent.
    finished: Option<Instant>,
    /// Begun because `current` may be forgotten.
    again: Option<Initiator>,
    /// The message to be sent is the one of `again`.
    is_turn_of_again: bool,
}

impl Attempts {
    fn message(
        &mut self,
        now: Instant,
        draw: impl FnOnce() -> Option<[u8; 32]>,
    ) -> HandshakeDatagram {
        if self.current.is_finished() {
            let finished = *self.finished.get_or_insert(now);
            if now - finished > HANDSHAKE_LIFETIME && self.again.is_none() {
                self.again = draw().and_then(|it| self.current.anew(it));
                self.is_turn_of_again = self.again.is_some();
            }
        }
        match &self.again {
            Some(again) if self.is_turn_of_again => {
                self.is_turn_of_again = false;
                again.message()
            }
            again => {
                self.is_turn_of_again = again.is_some();
                self.current.message()
            }
        }
    }

    fn take(&mut self, datagram: &[u8], request: &[u8]) -> Taken {
        let taken = self.current.take(datagram, request);
        let (Taken::Nothing, Some(again)) = (&taken, &mut self.again) else {
            return taken;
        };
        let taken = again.take(datagram, request);
        match taken {
            Taken::SendAgain => self.is_turn_of_again = true,
            Taken::Done(_) => {
                if let Some(again) = self.again.take() {
                    self.current = again;
                    self.finished = None;
                }
            }
            Taken::Nothing | Taken::Refused(_) | Taken::Untrusted(_) => {}
        }
        taken
    }
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
    /// Begins the exchange of the connection that has `entropy`, with what answers for the port `service`. `ephemeral` is 32 bytes that cannot be
    /// guessed, drawn for this connection alone. `None` if the cryptography refuses the credentials.
    pub fn initiate(
        credentials: Credentials,
        ephemeral: [u8; 32],
        service: u16,
        entropy: Entropy,
    ) -> Option<Exchange> {
        let ports = (service, entropy.port);
        let initiator = Initiator::new(credentials, ephemeral, ports, entropy.key, entropy.sync)?;
        Some(Exchange(Part::Initiator(Box::new(Attempts {
            current: initiator,
            finished: None,
            again: None,
            is_turn_of_again: false,
        }))))
    }

    /// Of a connection whose peer finished the exchange with the message `finish`.
    pub fn admitted(finish: Box<[u8]>) -> Exchange {
        Exchange(Part::Admitted(finish))
    }

    /// The message to be sent, if it is this end's turn. Where the last message had no answer for [`HANDSHAKE_LIFETIME`],
    /// it alternates with the first one of another exchange, for which `draw` gives 32 bytes that cannot be guessed, if it can.
    pub fn message(
        &mut self,
        now: Instant,
        draw: impl FnOnce() -> Option<[u8; 32]>,
    ) -> Option<HandshakeDatagram> {
        match &mut self.0 {
            Part::Initiator(attempts) => Some(attempts.message(now, draw)),
            Part::Admitted(_) => None,
        }
    }

    /// Takes a handshake message. `request` is the Request_Connection that goes with the last message.
    /// Returns what the connection is to be told, and the session: once, or once more for an exchange that was begun
    /// again, whose session takes the place of the one before.
    pub fn take(
        &mut self,
        datagram: &[u8],
        request: &[u8],
    ) -> (HandshakeOutcome, Option<Box<Session>>) {
        let taken = match &mut self.0 {
            Part::Initiator(attempts) => attempts.take(datagram, request),
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
