//! Computes digests of units and files, under a key drawn for each copy.
//!
//! A file's content is hashed in units ([`UNIT_BYTES`]); the file's digest is the digest of its units' digests, in
//! order. Both ends hash under the same key and compare. The key is new for each copy, so a digest is worthless outside
//! of it, and no attacker can prepare two contents with the same digest.

use crate::error::Error;
use crate::limits::UNIT_BYTES;
use aegis::aegis128x2::Aegis128X2Mac;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

/// Digest of a unit, of a whole file, or of the content of a small one.
pub(crate) type Digest = [u8; 32];

static ZEROS: [u8; UNIT_BYTES] = [0; UNIT_BYTES];

/// Units in a file of `size` bytes; an empty file has none.
pub(crate) fn unit_count(size: u64) -> u64 {
    size.div_ceil(UNIT_BYTES as u64)
}

/// Bytes of unit `index` in a file of `size` bytes: [`UNIT_BYTES`], less only in the last.
pub(crate) fn unit_len(size: u64, index: u64) -> usize {
    let start = index * UNIT_BYTES as u64;
    size.saturating_sub(start).min(UNIT_BYTES as u64) as usize
}

/// The algorithm of the digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Algorithm {
    /// Four to five times as fast as BLAKE3 on processors with AES instructions, several times slower on others.
    Aegis128X2Mac,
    /// Keyed BLAKE3: fast everywhere.
    Blake3,
}

impl Algorithm {
    /// The fast algorithm on this machine.
    fn of_machine() -> Algorithm {
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        let aes = std::is_x86_feature_detected!("aes");
        #[cfg(target_arch = "aarch64")]
        let aes = std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
        let aes = false;
        match aes {
            true => Algorithm::Aegis128X2Mac,
            false => Algorithm::Blake3,
        }
    }

    /// The algorithm that is fast on both machines, that of `self` and that of `other`.
    fn fast_on_both(self, other: Algorithm) -> Algorithm {
        match (self, other) {
            (Algorithm::Aegis128X2Mac, Algorithm::Aegis128X2Mac) => Algorithm::Aegis128X2Mac,
            _ => Algorithm::Blake3,
        }
    }
}

/// Makes the digests of one copy. In a client's offer, `algorithm` is the one that is fast there.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Digester {
    algorithm: Algorithm,
    key: [u8; 32],
    /// Digest of a whole unit of zeros, computed when first needed: a hole has thousands of them.
    #[serde(skip)]
    unit_of_zeros: OnceLock<Digest>,
}

impl PartialEq for Digester {
    fn eq(&self, other: &Digester) -> bool {
        (self.algorithm, self.key) == (other.algorithm, other.key)
    }
}

impl Eq for Digester {}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digester")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl Digester {
    /// A client's offer: a new key, and the algorithm that is fast on this machine.
    ///
    /// # Errors
    /// [`Error::NoRandom`].
    pub(crate) fn offer() -> Result<Digester, Error> {
        let key = zerolane::security::random().map_err(|_| Error::NoRandom)?;
        Ok(Digester::new(Algorithm::of_machine(), key))
    }

    /// The server's answer to an offer: the same key, and an algorithm that is fast at both ends.
    pub(crate) fn accept(&self) -> Digester {
        let algorithm = self.algorithm.fast_on_both(Algorithm::of_machine());
        self.with(algorithm)
    }

    /// The client's digester after the server chose an algorithm.
    ///
    /// # Errors
    /// [`Error::Protocol`]: the client did not offer it.
    pub(crate) fn settle(&self, chosen: Algorithm) -> Result<Digester, Error> {
        match self.algorithm.fast_on_both(chosen) == chosen {
            true => Ok(self.with(chosen)),
            false => Err(Error::Protocol("a digest that was not offered")),
        }
    }

    /// A digester with a constant key.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn fixed() -> Digester {
        Digester::new(Algorithm::of_machine(), [7; 32])
    }

    fn new(algorithm: Algorithm, key: [u8; 32]) -> Digester {
        Digester {
            algorithm,
            key,
            unit_of_zeros: OnceLock::new(),
        }
    }

    fn with(&self, algorithm: Algorithm) -> Digester {
        Digester::new(algorithm, self.key)
    }

    /// The key of the copy.
    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// The algorithm of the digests.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Starts an incremental digest.
    pub(crate) fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Aegis128X2Mac => {
                let (key, _) = self.key.as_chunks();
                Hasher::Aegis128X2Mac(Aegis128X2Mac::new(&key[0]).into())
            }
            Algorithm::Blake3 => Hasher::Blake3(blake3::Hasher::new_keyed(&self.key).into()),
        }
    }

    /// Digest of `bytes`.
    pub(crate) fn digest(&self, bytes: &[u8]) -> Digest {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Digest of `len` zeros, at most a unit: the content of a hole.
    pub(crate) fn digest_of_zeros(&self, len: usize) -> Digest {
        match len {
            UNIT_BYTES => *self.unit_of_zeros.get_or_init(|| self.digest(&ZEROS)),
            _ => self.digest(&ZEROS[..len]),
        }
    }
}

/// An incremental digest.
#[derive(Debug)]
pub(crate) enum Hasher {
    Aegis128X2Mac(Box<Aegis128X2Mac<32>>),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Aegis128X2Mac(hasher) => hasher.update(bytes),
            Hasher::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    /// The digest of all bytes added.
    pub(crate) fn finish(self) -> Digest {
        match self {
            Hasher::Aegis128X2Mac(hasher) => hasher.finalize(),
            Hasher::Blake3(hasher) => *hasher.finalize().as_bytes(),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const ALGORITHMS: [Algorithm; 2] = [Algorithm::Aegis128X2Mac, Algorithm::Blake3];

    fn digester(algorithm: Algorithm, key: u8) -> Digester {
        Digester::new(algorithm, [key; 32])
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len)
            .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3])
            .collect()
    }

    #[test]
    fn digest__follows_from_content_and_key_alone() {
        for algorithm in ALGORITHMS {
            let digester = digester(algorithm, 7);
            let bytes = content(UNIT_BYTES + 77);
            let whole = digester.digest(&bytes);
            for step in [1000, 1 << 16, bytes.len()] {
                let mut hasher = digester.hasher();
                bytes.chunks(step).for_each(|step| hasher.update(step));
                assert_eq!(hasher.finish(), whole, "{algorithm:?} by {step}");
            }
            assert_ne!(digester.digest(&bytes[1..]), whole);
            assert_ne!(digester.digest(&bytes[..UNIT_BYTES + 76]), whole);
        }
    }

    #[test]
    fn digest__every_bit_counts() {
        for algorithm in ALGORITHMS {
            let digester = digester(algorithm, 7);
            let mut bytes = content(4000);
            let whole = digester.digest(&bytes);
            for at in 0..bytes.len() {
                bytes[at] ^= 1 << (at % 8);
                assert_ne!(digester.digest(&bytes), whole, "{algorithm:?}, byte {at}");
                bytes[at] ^= 1 << (at % 8);
            }
        }
    }

    #[test]
    fn digest__is_another_under_another_key() {
        for algorithm in ALGORITHMS {
            let of = |key| digester(algorithm, key).digest(b"content");
            assert_ne!(of(1), of(2));
        }
        assert_ne!(
            digester(ALGORITHMS[0], 1).digest(b"content"),
            digester(ALGORITHMS[1], 1).digest(b"content")
        );
    }

    #[test]
    fn digest_of_zeros__is_that_of_zeros() {
        for algorithm in ALGORITHMS {
            let digester = digester(algorithm, 7);
            for len in [5, UNIT_BYTES, 5, UNIT_BYTES] {
                assert_eq!(
                    digester.digest_of_zeros(len),
                    digester.digest(&ZEROS[..len])
                );
            }
            assert_ne!(digester.digest_of_zeros(5), digester.digest(&[0; 6]));
        }
    }

    #[test]
    fn offer__has_a_key_of_its_own() {
        let (one, another) = (Digester::offer().unwrap(), Digester::offer().unwrap());
        assert_ne!(one.key, another.key);
    }

    #[test]
    fn accept__is_fast_at_both_ends() {
        let here = Algorithm::of_machine();
        let accepted = digester(Algorithm::Aegis128X2Mac, 7).accept();
        assert_eq!((accepted.algorithm, accepted.key), (here, [7; 32]));
        let accepted = digester(Algorithm::Blake3, 7).accept();
        assert_eq!(accepted.algorithm, Algorithm::Blake3);
    }

    #[test]
    fn settle__takes_what_was_offered_only() {
        use Algorithm::{Aegis128X2Mac, Blake3};
        for (offered, chosen, taken) in [
            (Aegis128X2Mac, Aegis128X2Mac, true),
            (Aegis128X2Mac, Blake3, true),
            (Blake3, Blake3, true),
            (Blake3, Aegis128X2Mac, false),
        ] {
            let settled = digester(offered, 7).settle(chosen);
            assert_eq!(settled.is_ok(), taken, "{offered:?}, {chosen:?}");
            if let Ok(settled) = settled {
                assert_eq!(settled, digester(chosen, 7));
            }
        }
    }
}
