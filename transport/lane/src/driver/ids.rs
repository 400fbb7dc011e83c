//! Hashes request identifiers for the table of requests.

use std::hash::Hasher;

/// A hash of identifiers that this end assigns in sequence, so no peer can choose them. It spreads them over the table.
/// The standard library's hash resists chosen keys, and takes a hundred instructions more.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

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

    /// A table takes the slot from the lowest bits, and compares the highest seven with the entry.
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
