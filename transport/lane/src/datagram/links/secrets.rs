//! Derives the keys of paths beyond the first, separate ones for each.

use zeroize::Zeroizing;
use zerolane_handshake::{Cipher, PublicKey, Session};

/// The secrets from which paths' keys are derived.
#[derive(Debug)]
pub(super) struct PathSecrets {
    send: Zeroizing<[u8; 32]>,
    receive: Zeroizing<[u8; 32]>,
    cipher: Cipher,
    peer: PublicKey,
}

impl PathSecrets {
    /// The secrets of the connection with the keys of `session`.
    pub(super) fn of(session: &Session) -> PathSecrets {
        let root = |secret: &[u8; 32]| {
            Zeroizing::new(blake3::derive_key("Zerolane 1, secret of paths", secret))
        };
        PathSecrets {
            send: root(&session.send),
            receive: root(&session.receive),
            cipher: session.cipher,
            peer: session.peer,
        }
    }

    /// The keys of `path`, which is not the first.
    pub(super) fn of_path(&self, path: usize) -> Session {
        let of = |root: &[u8; 32]| {
            let mut hasher = blake3::Hasher::new_derive_key("Zerolane 1, secret of a path");
            hasher.update(root).update(&[path as u8]);
            Zeroizing::new(*hasher.finalize().as_bytes())
        };
        Session {
            send: of(&self.send),
            receive: of(&self.receive),
            cipher: self.cipher,
            peer: self.peer,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn of_path__other_keys_for_each_and_none_of_the_connection() {
        let secrets = PathSecrets {
            send: Zeroizing::new([1; 32]),
            receive: Zeroizing::new([2; 32]),
            cipher: Cipher::Aes128Gcm,
            peer: PublicKey([3; 32]),
        };
        let mut seen = vec![[1; 32], [2; 32]];
        for path in 1..8 {
            let session = secrets.of_path(path);
            for secret in [session.send, session.receive] {
                assert!(!seen.contains(&secret), "path {path}");
                seen.push(*secret);
            }
        }
    }
}
