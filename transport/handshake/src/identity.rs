//! Represents the identity of an end: an X25519 key pair.

use core::fmt;
use core::str::FromStr;
use data_encoding::BASE64URL_NOPAD;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use zeroize::Zeroizing;

/// Prefix of every public key in text, which distinguishes it from other base64.
const PREFIX: &str = "zl:";

/// The public identity of an end: an X25519 public key. In text, `zl:` and 43 characters of URL-safe base64, short
/// enough to be its own fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a key: expected zl: and 43 characters of base64")
    }
}

impl std::error::Error for KeyError {}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(KeyError)?;
        let bytes = BASE64URL_NOPAD
            .decode(encoded.as_bytes())
            .map_err(|_| KeyError)?;
        bytes.try_into().map(PublicKey).map_err(|_| KeyError)
    }
}

/// A key pair. Wiped from memory when dropped, never shown by `Debug`.
pub struct Identity {
    secret: Zeroizing<[u8; 32]>,
    public: PublicKey,
}

impl Identity {
    /// The pair with this secret: 32 unpredictable bytes.
    pub fn from_secret(secret: [u8; 32]) -> Identity {
        let secret = Zeroizing::new(secret);
        let mut public = [0; 32];
        // This crate's features compile it in, so it is present. Without it there would be no key to prove, and every
        // handshake would fail.
        if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
            dh.set(&secret[..]);
            public.copy_from_slice(dh.pubkey());
        }
        Identity {
            secret,
            public: PublicKey(public),
        }
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The secret half. Store it in a file that only its owner may read.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}
