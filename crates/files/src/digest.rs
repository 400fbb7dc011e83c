//! BLAKE3 of a file, unit by unit.
//!
//! A unit ([`UNIT_BYTES`]) is a whole subtree of BLAKE3's tree, so the digests of units merge into
//! the true BLAKE3 of the file: what `b3sum` prints. Units can be hashed in any order and on any
//! thread, and the unit digests are what resume compares.

use crate::limits::UNIT_BYTES;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// BLAKE3 of a whole file, or the chaining value of one unit of it.
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

/// Digest of unit `index` of a file of `size` bytes. A file of one unit is its own root.
pub(crate) fn unit_digest(size: u64, index: u64, bytes: &[u8]) -> Digest {
    if size <= UNIT_BYTES as u64 {
        return *blake3::hash(bytes).as_bytes();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(index * UNIT_BYTES as u64);
    hasher.update(bytes).finalize_non_root()
}

/// Digest of unit `index` if it is all zeros: what a hole reads as.
pub(crate) fn zero_digest(size: u64, index: u64) -> Digest {
    unit_digest(size, index, &ZEROS[..unit_len(size, index)])
}

/// Merges the digests of units, pushed in order, into the digest of the file. Holds one digest a
/// level of the tree.
#[derive(Debug, Default)]
pub(crate) struct TreeHash {
    stack: Vec<Digest>,
    units: u64,
}

impl TreeHash {
    /// Appends the digest of the next unit.
    pub(crate) fn push(&mut self, digest: Digest) {
        self.merge_complete();
        self.stack.push(digest);
        self.units += 1;
    }

    /// Merges subtrees of equal size. Done before the next push, not after: the last merge of all
    /// is the root's and differs.
    fn merge_complete(&mut self) {
        while self.stack.len() > self.units.count_ones() as usize {
            self.merge_top();
        }
    }

    fn merge_top(&mut self) {
        if let (Some(right), Some(left)) = (self.stack.pop(), self.stack.pop()) {
            self.stack
                .push(merge_subtrees_non_root(&left, &right, Mode::Hash));
        }
    }

    /// The digest of the file whose units were pushed.
    pub(crate) fn finish(mut self) -> Digest {
        while self.stack.len() > 2 {
            self.merge_top();
        }
        match self.stack[..] {
            [] => *blake3::hash(b"").as_bytes(),
            [only] => only,
            [left, right, ..] => *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes(),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn content(len: usize) -> Vec<u8> {
        (0..len)
            .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3])
            .collect()
    }

    fn by_units(bytes: &[u8]) -> Digest {
        let size = bytes.len() as u64;
        let mut tree = TreeHash::default();
        for (index, unit) in bytes.chunks(UNIT_BYTES).enumerate() {
            assert_eq!(unit.len(), unit_len(size, index as u64));
            tree.push(unit_digest(size, index as u64, unit));
        }
        assert_eq!(tree.units, unit_count(size));
        tree.finish()
    }

    #[test]
    fn finish__is_the_true_blake3() {
        let unit = UNIT_BYTES;
        for len in [
            0,
            1,
            1024,
            unit - 1,
            unit,
            unit + 1,
            2 * unit,
            2 * unit + 1,
            3 * unit,
            5 * unit + 7,
            8 * unit,
            13 * unit + 1025,
        ] {
            let bytes = content(len);
            assert_eq!(
                by_units(&bytes),
                *blake3::hash(&bytes).as_bytes(),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn unit_digest__depends_on_position() {
        let unit = content(UNIT_BYTES);
        let size = 4 * UNIT_BYTES as u64;
        assert_ne!(unit_digest(size, 0, &unit), unit_digest(size, 1, &unit));
    }

    #[test]
    fn zero_digest__is_that_of_zeros() {
        let size = UNIT_BYTES as u64 + 5;
        assert_eq!(zero_digest(size, 1), unit_digest(size, 1, &[0; 5]));
    }
}
