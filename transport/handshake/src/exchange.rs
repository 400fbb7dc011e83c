//! Runs this end's part of a connection's key exchange, and repeats it where the peer may have forgotten it.

use crate::initiator::{Initiator, Taken};
use crate::limits::HANDSHAKE_LIFETIME;
use crate::{Credentials, HandshakeDatagram, Session};
use core::fmt;
use zerolane_core::{Entropy, HandshakeOutcome, Instant};

/// An end's remaining part of a connection's key exchange.
pub struct Exchange(Part);

enum Part {
    /// This end began the exchange, and holds the message to send.
    Initiator(Box<Attempts>),
    /// The peer began it. This is the peer's last message, which may be repeated.
    Admitted(Box<[u8]>),
}

/// The Initiator's attempts at one exchange.
///
/// A Responder forgets an exchange whose last message does not come within [`HANDSHAKE_LIFETIME`], and ignores that
/// message from then on. It is also silent if it admitted the Initiator and its Connection_Answer is lost. The
/// Initiator cannot distinguish the two, so it repeats both the last message and the first message of another exchange.
struct Attempts {
    current: Initiator,
    /// When the last message of `current` was first sent.
    finished: Option<Instant>,
    /// Begun because the Responder may have forgotten `current`.
    again: Option<Initiator>,
    /// The message to send belongs to `again`.
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
    /// Begins the exchange of the connection with `entropy`, with the Responder for the port `service`. `ephemeral` is
    /// 32 unpredictable bytes, drawn for this connection alone. `None` if the cryptography rejects the credentials.
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

    /// For a connection whose peer finished the exchange with the message `finish`.
    pub fn admitted(finish: Box<[u8]>) -> Exchange {
        Exchange(Part::Admitted(finish))
    }

    /// The message to send, if it is this end's turn. If the last message had no answer for [`HANDSHAKE_LIFETIME`], it
    /// alternates with the first message of another exchange, if one is possible; `draw` returns 32 unpredictable bytes
    /// for it.
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

    /// Takes a handshake message. `request` is the Request_Connection that travels with the last message. Returns the
    /// outcome for the connection, and the session: once, or once more for a restarted exchange, whose session replaces
    /// the previous one.
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
