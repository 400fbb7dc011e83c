//! How a user wants connections protected.

use crate::seal;
use std::io;
use std::sync::Arc;
use zerolane_core::{Anyone, Credentials, Identity, PreShared, Trust};

/// Protection of a connection's datagrams. Both ends must choose the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Encrypted, authenticated, protected from repetition.
    #[default]
    Encrypted,
    /// Not at all. Whoever is on the path reads and changes what it likes.
    Plain,
}

/// Protection of connections, and who the ends are. The default encrypts with a key made for the
/// occasion and speaks to anyone: nobody can listen in, but who the peer is, is not known.
#[derive(Clone, Debug)]
pub struct Security {
    /// Protection.
    pub mode: Mode,
    /// Who this end is. `None`: nobody in particular, with a key of its own for each connection or
    /// listener.
    pub identity: Option<Arc<Identity>>,
    /// A secret that both ends must know beside their keys.
    pub pre_shared: Option<PreShared>,
    /// Whom to speak to.
    pub trust: Arc<dyn Trust>,
}

impl Default for Security {
    fn default() -> Security {
        Security {
            mode: Mode::Encrypted,
            identity: None,
            pre_shared: None,
            trust: Arc::new(Anyone),
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

    /// What to prove and to ask for, `None` in plain mode.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(crate) fn credentials(&self) -> io::Result<Option<Credentials>> {
        if self.mode == Mode::Plain {
            return Ok(None);
        }
        let identity = match &self.identity {
            Some(identity) => Arc::clone(identity),
            None => Arc::new(Identity::from_secret(random()?)),
        };
        Ok(Some(Credentials {
            identity,
            pre_shared: self.pre_shared.clone(),
            trust: Arc::clone(&self.trust),
            ciphers: seal::ciphers(),
        }))
    }

    /// Bytes that sealing adds to each datagram.
    pub(crate) fn seal_len(&self) -> usize {
        match self.mode {
            Mode::Encrypted => seal::TRAILER_LEN,
            Mode::Plain => 0,
        }
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system gives none.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
