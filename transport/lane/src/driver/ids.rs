//! Requests by their identifiers.

use std::hash::Hasher;

/// A hash of identifiers that this end gives out one after the other: no peer chooses them. It spreads them over the
/// table; that of the standard library, which nobody can foresee, takes a hundred instructions more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdHasher(u64);

/// 2^64 over the golden ratio: its multiples are spread evenly (Fibonacci hashing).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(SPREAD);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::collections::HashSet;

    /// A table looks at the lowest bits for the place, and at the highest seven for the entry.
    #[test]
    fn hash__tells_ids_in_a_row_apart() {
        let hash = |id: u32| {
            let mut hasher = IdHasher::default();
            hasher.write_u32(id);
            hasher.finish()
        };
        let places: HashSet<_> = (1_000..1_256).map(|id| hash(id) & 0xFF).collect();
        assert_eq!(places.len(), 256);
        let entries: HashSet<_> = (1_000..1_256).map(|id| hash(id) >> 57).collect();
        assert!(entries.len() > 100, "{}", entries.len());
    }
}
