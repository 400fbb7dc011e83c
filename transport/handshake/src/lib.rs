//! Runs the key exchange: Noise XX, optionally with a pre-shared key, over an unreliable network.
//!
//! Datagrams may be lost, repeated, reordered and forged.
//!
//! Sans-IO like the core: takes datagrams, time and randomness; returns datagrams and finally a [`Session`]. An
//! [`Exchange`] belongs to one connection, which times and repeats its messages. A [`Gate`] precedes all connections of
//! a listening end and answers unauthenticated peers. Until a peer proves its address, it costs the gate one entry of a
//! bounded list, and under load no memory.
//!
//! Only the lane knows what the session's keys seal, and how.
#![forbid(unsafe_code)]

mod code;
mod cookie;
mod exchange;
mod gate;
mod identity;
mod initiator;
pub mod limits;
mod noise;
mod pace;
mod responder;

pub use code::{Code, CodeError};
pub use exchange::Exchange;
pub use gate::{Gate, GateCounters, Reply};
pub use identity::{Identity, KeyError, PublicKey};
pub use pace::{GateLimit, Origin};
pub use responder::{Admitted, refuse_hello};

use core::fmt;
use std::collections::HashSet;
use std::sync::Arc;
use zeroize::Zeroizing;
use zerolane_wire::handshake::{HandshakeMessage, Proof};

/// Oldest and newest supported version of the key exchange.
const VERSION: u8 = 1;

/// The cipher that seals a session's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-128-GCM: fast where the processor has AES, and required by standards bodies.
    Aes128Gcm = 1,
    /// ChaCha20-Poly1305: fast enough everywhere, and constant-time without hardware support.
    ChaCha20Poly1305 = 2,
    /// AEGIS-128X2 (CFRG's draft-irtf-cfrg-aegis-aead): the fastest where the processor has AES.
    Aegis128X2 = 4,
    /// AEGISMAC of AEGIS-128X2: authenticates, does not encrypt.
    Aegis128X2Mac = 8,
}

impl Cipher {
    /// All ciphers, best first.
    pub const ALL: [Cipher; 4] = [
        Cipher::Aegis128X2,
        Cipher::Aes128Gcm,
        Cipher::ChaCha20Poly1305,
        Cipher::Aegis128X2Mac,
    ];

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Cipher::Aes128Gcm => "aes-128-gcm",
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305",
            Cipher::Aegis128X2 => "aegis-128x2",
            Cipher::Aegis128X2Mac => "aegis-128x2-mac",
        }
    }

    /// Whether it encrypts, so that an observer learns nothing of payload and options.
    pub const fn hides(self) -> bool {
        !matches!(self, Cipher::Aegis128X2Mac)
    }
}

/// A set of ciphers. An end offers ciphers that encrypt, or ciphers that only authenticate, never both: so the ends
/// cannot agree on less protection by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ciphers(u8);

impl Ciphers {
    /// The ciphers that an end offers: those based on AES only where the processor has it (`aes`), ChaCha20 always.
    pub const fn of_machine(aes: bool) -> Ciphers {
        let chacha = Ciphers::only(Cipher::ChaCha20Poly1305).0;
        Ciphers(if aes {
            chacha | Cipher::Aes128Gcm as u8 | Cipher::Aegis128X2 as u8
        } else {
            chacha
        })
    }

    /// Only `cipher`.
    pub const fn only(cipher: Cipher) -> Ciphers {
        Ciphers(cipher as u8)
    }

    /// The best cipher in both sets.
    fn common(self, other: Ciphers) -> Option<Cipher> {
        Cipher::ALL
            .into_iter()
            .find(|&cipher| self.0 & other.0 & cipher as u8 != 0)
    }
}

/// Decides whether the owner of a key is trusted. Called once per connection, after the key is proven, on the thread
/// that drives the connection or the listener.
pub trait Trust: fmt::Debug + Send + Sync {
    /// Whether the connection may continue.
    fn trusts(&self, peer: &PublicKey) -> bool;
}

/// Trusts every peer that proves a key: the connection is private, but the peer's identity is unknown.
#[derive(Clone, Copy, Debug)]
pub struct Anyone;

impl Trust for Anyone {
    fn trusts(&self, _peer: &PublicKey) -> bool {
        true
    }
}

/// Trusts only the owners of these keys.
impl Trust for HashSet<PublicKey> {
    fn trusts(&self, peer: &PublicKey) -> bool {
        self.contains(peer)
    }
}

/// A secret that both ends must know besides their keys.
#[derive(Clone)]
pub enum PreShared {
    /// An unpredictable key: 32 random bytes, for any number of connections.
    Key(Zeroizing<[u8; 32]>),
    /// A code for one connection. A gate admits the first client that proves it, and no other; after
    /// [`CODE_GUESSES`](crate::limits::CODE_GUESSES) wrong guesses it admits none.
    Code(Code),
}

impl PreShared {
    fn proof(this: Option<&PreShared>) -> Proof {
        match this {
            None => Proof::None,
            Some(PreShared::Key(_)) => Proof::PreSharedKey,
            Some(PreShared::Code(_)) => Proof::Code,
        }
    }
}

impl From<[u8; 32]> for PreShared {
    fn from(key: [u8; 32]) -> PreShared {
        PreShared::Key(Zeroizing::new(key))
    }
}

impl From<Code> for PreShared {
    fn from(code: Code) -> PreShared {
        PreShared::Code(code)
    }
}

impl fmt::Debug for PreShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PreShared::Key(_) => "Key",
            PreShared::Code(_) => "Code",
        })
    }
}

/// What an end proves, and what it requires the peer to prove.
#[derive(Clone)]
pub struct Credentials {
    /// The identity of this end.
    pub identity: Arc<Identity>,
    /// A secret that both ends must know besides their keys.
    pub pre_shared: Option<PreShared>,
    /// The trusted peers.
    pub trust: Arc<dyn Trust>,
    /// The ciphers that are fast on this end's machine.
    pub ciphers: Ciphers,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("identity", &self.identity)
            .field("pre_shared", &self.pre_shared)
            .field("trust", &self.trust)
            .field("ciphers", &self.ciphers)
            .finish()
    }
}

/// The result of a key exchange. The secrets serve one connection only, one for each direction.
pub struct Session {
    /// Seals the datagrams that this end sends.
    pub send: Zeroizing<[u8; 32]>,
    /// Opens the datagrams that this end receives.
    pub receive: Zeroizing<[u8; 32]>,
    /// The cipher of both directions.
    pub cipher: Cipher,
    /// The peer's proven key.
    pub peer: PublicKey,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("cipher", &self.cipher)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A handshake message on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct HandshakeDatagram(Arc<[u8]>);

impl HandshakeDatagram {
    fn new(message: &HandshakeMessage<'_>) -> HandshakeDatagram {
        let (bytes, len) = message.emit();
        HandshakeDatagram(bytes[..len].into())
    }

    /// The whole datagram.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for HandshakeDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HandshakeMessage::parse(self.bytes()).fmt(f)
    }
}

#[cfg(test)]
mod tests;
