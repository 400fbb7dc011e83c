//! Defines how connections are protected.

use crate::seal;
use std::io;
use std::sync::Arc;
use zerolane_handshake::{Anyone, Cipher, Ciphers, Credentials, Identity, PreShared, Trust};

/// Protection of a connection's datagrams. Both ends must choose the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Encrypted, authenticated and protected from replay.
    #[default]
    Encrypted,
    /// Authenticated and protected from replay, but readable by any machine on the path: for networks where others may
    /// read the traffic but must not change it.
    Authenticated,
    /// No protection. Any machine on the path can read and change the traffic.
    Plain,
}

/// Protection of connections, and the identities of the ends. The default encrypts with an ephemeral key and accepts
/// any peer: no third party can read the traffic, but the peer's identity is not known.
#[derive(Clone, Debug)]
pub struct Security {
    /// Protection.
    pub mode: Mode,
    /// The identity of this end. `None`: it makes a key for each connection or listener.
    pub identity: Option<Arc<Identity>>,
    /// A secret that both ends must know in addition to their keys.
    pub pre_shared: Option<PreShared>,
    /// The peers to accept.
    pub trust: Arc<dyn Trust>,
    /// The only cipher to use, for users whose rules prescribe one. `None`: the fastest that both machines have
    /// hardware for.
    pub cipher: Option<Cipher>,
}

impl Default for Security {
    fn default() -> Security {
        Security {
            mode: Mode::Encrypted,
            identity: None,
            pre_shared: None,
            trust: Arc::new(Anyone),
            cipher: None,
        }
    }
}

impl Security {
    /// No protection at all.
    pub fn plain() -> Security {
        Security {
            mode: Mode::Plain,
            ..Security::default()
        }
    }

    /// Authentication without encryption.
    pub fn authenticated() -> Security {
        Security {
            mode: Mode::Authenticated,
            ..Security::default()
        }
    }

    /// The credentials of the key exchange; `None` in plain mode.
    ///
    /// # Errors
    /// The cipher does not belong to the mode, or the system gives no random numbers.
    pub(crate) fn credentials(&self) -> io::Result<Option<Credentials>> {
        let ciphers = match (self.mode, self.cipher) {
            (Mode::Plain, None) => return Ok(None),
            (Mode::Encrypted, None) => seal::ciphers(),
            (Mode::Authenticated, None) => Ciphers::only(Cipher::Aegis128X2Mac),
            (Mode::Encrypted, Some(cipher)) if cipher.hides() => Ciphers::only(cipher),
            (Mode::Authenticated, Some(cipher)) if !cipher.hides() => Ciphers::only(cipher),
            (mode, Some(cipher)) => {
                let why = format!("{} is not a cipher of mode {mode:?}", cipher.name());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        };
        let identity = match &self.identity {
            Some(identity) => Arc::clone(identity),
            None => Arc::new(Identity::from_secret(random()?)),
        };
        Ok(Some(Credentials {
            identity,
            pre_shared: self.pre_shared.clone(),
            trust: Arc::clone(&self.trust),
            ciphers,
        }))
    }

    /// Bytes that sealing adds to each datagram.
    pub(crate) fn seal_len(&self) -> usize {
        match self.mode {
            Mode::Encrypted | Mode::Authenticated => seal::TRAILER_LEN,
            Mode::Plain => 0,
        }
    }
}

/// Unpredictable bytes.
///
/// # Errors
/// The system gives no random numbers.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Calls `act` with a source of random numbers.
///
/// # Errors
/// The system gave no random numbers; the result of `act` is discarded.
pub(crate) fn with_random<T>(act: impl FnOnce(&mut dyn FnMut() -> [u8; 32]) -> T) -> io::Result<T> {
    let mut failed = None;
    let made = act(&mut || {
        random().unwrap_or_else(|error| {
            failed = Some(error);
            [0; 32]
        })
    });
    match failed {
        None => Ok(made),
        Some(error) => Err(error),
    }
}
