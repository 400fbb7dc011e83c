//! Which disk this is: what an initiator knows it by when it comes back.

use std::fmt;

/// Bytes of an identity.
const BYTES: usize = 16;

/// Separates these digests from all others.
const CONTEXT: &str = "zerolane 2026-11 identity of a disk";

/// The name of a disk that stays the same over restarts, moves of its target and other paths to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity([u8; BYTES]);

impl Identity {
    /// The identity that follows from `parts`, in this order: the first 16 bytes of a BLAKE3 digest of them. Each part has its
    /// length before it, so that no two lists are alike.
    pub fn of(parts: &[&[u8]]) -> Identity {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let mut bytes = [0; BYTES];
        hasher.finalize_xof().fill(&mut bytes);
        Identity(bytes)
    }

    /// NAA 3h, locally assigned (SPC-4, 7.8.6.6.4): no registered company made this disk. 60 bits of the identity.
    pub fn naa(&self) -> [u8; 8] {
        let mut naa = [0; 8];
        naa.copy_from_slice(&self.0[..8]);
        naa[0] = 0x30 | (naa[0] & 0xf);
        naa
    }
}

/// The serial number: 32 hexadecimal digits.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
