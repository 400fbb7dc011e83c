//! Records which chunks a node has.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::MAX_CHUNKS;

const WORD: u32 = u64::BITS;

/// A set of chunks out of a fixed number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Packed", try_from = "Packed")]
pub struct Bitmap {
    len: u32,
    count: u32,
    words: Vec<u64>,
}

/// Why a bitmap from the network is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadBitmap {
    /// It is of more chunks than there may be.
    #[error("bitmap of {0} chunks, at most {MAX_CHUNKS}")]
    TooLong(u32),
    /// Its bytes are not as many as its chunks need.
    #[error("bitmap of {len} chunks in {bytes} bytes")]
    Length {
        /// Chunks.
        len: u32,
        /// Bytes.
        bytes: usize,
    },
    /// A bit behind the last chunk is set.
    #[error("bitmap with bits set after its last chunk")]
    Padding,
}

/// A bitmap on the wire: a byte for 8 chunks, the first in the lowest bit.
#[derive(Serialize, Deserialize)]
struct Packed {
    len: u32,
    bytes: Vec<u8>,
}

impl From<Bitmap> for Packed {
    fn from(bitmap: Bitmap) -> Packed {
        let words = bitmap.words.iter().flat_map(|it| it.to_le_bytes());
        let bytes = words.take(bitmap.len.div_ceil(8) as usize).collect();
        Packed {
            len: bitmap.len,
            bytes,
        }
    }
}

impl TryFrom<Packed> for Bitmap {
    type Error = BadBitmap;

    fn try_from(Packed { len, bytes }: Packed) -> Result<Bitmap, BadBitmap> {
        if len > MAX_CHUNKS {
            return Err(BadBitmap::TooLong(len));
        }
        if bytes.len() != len.div_ceil(8) as usize {
            let bytes = bytes.len();
            return Err(BadBitmap::Length { len, bytes });
        }
        let mut words = vec![0u64; len.div_ceil(WORD) as usize];
        for (index, byte) in bytes.iter().enumerate() {
            words[index / 8] |= u64::from(*byte) << (index % 8 * 8);
        }
        let used = len % WORD;
        if used != 0 && words.last().is_some_and(|last| last >> used != 0) {
            return Err(BadBitmap::Padding);
        }
        let count = words.iter().map(|it| it.count_ones()).sum();
        Ok(Bitmap { len, count, words })
    }
}

impl Bitmap {
    /// None of `len` chunks.
    #[must_use]
    pub fn empty(len: u32) -> Bitmap {
        let words = vec![0; len.div_ceil(WORD) as usize];
        Bitmap {
            len,
            count: 0,
            words,
        }
    }

    /// All of `len` chunks.
    #[must_use]
    pub fn full(len: u32) -> Bitmap {
        let mut all = Bitmap::empty(len);
        for chunk in 0..len {
            all.insert(chunk);
        }
        all
    }

    /// The number of chunks that it can hold.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The number of chunks in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether it holds no chunk.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it holds all chunks.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// Whether `chunk` is in it; false if the chunk does not exist.
    #[must_use]
    pub fn contains(&self, chunk: u32) -> bool {
        let word = self.words.get((chunk / WORD) as usize);
        word.is_some_and(|it| it >> (chunk % WORD) & 1 == 1)
    }

    /// Adds `chunk`, and returns whether it was new. Ignores a chunk that does not exist.
    pub fn insert(&mut self, chunk: u32) -> bool {
        if chunk >= self.len || self.contains(chunk) {
            return false;
        }
        self.words[(chunk / WORD) as usize] |= 1 << (chunk % WORD);
        self.count += 1;
        true
    }

    /// The first chunk from `start` on that is in it and not in `other`.
    #[must_use]
    pub fn first_beyond(&self, other: &Bitmap, start: u32) -> Option<u32> {
        let from = (start / WORD) as usize;
        for (index, word) in self.words.iter().enumerate().skip(from) {
            let mut left = word & !other.words.get(index).copied().unwrap_or(0);
            if index == from {
                left &= u64::MAX << (start % WORD);
            }
            if left != 0 {
                return Some(index as u32 * WORD + left.trailing_zeros());
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn first_beyond__finds_what_the_other_lacks() {
        let all = Bitmap::full(130);
        let mut some = Bitmap::empty(130);
        for chunk in 0..129 {
            assert!(some.insert(chunk) && !some.insert(chunk));
        }
        assert_eq!(all.first_beyond(&some, 0), Some(129));
        assert_eq!(all.first_beyond(&some, 129), Some(129));
        assert_eq!(some.first_beyond(&all, 0), None);
        assert_eq!(all.first_beyond(&Bitmap::empty(130), 65), Some(65));
        assert!(!some.insert(130) && !some.contains(4096));
    }

    #[test]
    fn Packed__bits_that_do_not_fit_are_refused() {
        let packed = |len, bytes: &[u8]| {
            Bitmap::try_from(Packed {
                len,
                bytes: bytes.into(),
            })
        };
        assert_eq!(packed(9, &[0xff, 1]).map(|it| it.count()), Ok(9));
        assert_eq!(packed(9, &[0xff, 2]), Err(BadBitmap::Padding));
        assert_eq!(
            packed(9, &[0xff]),
            Err(BadBitmap::Length { len: 9, bytes: 1 })
        );
        assert_eq!(
            packed(MAX_CHUNKS + 1, &[]),
            Err(BadBitmap::TooLong(MAX_CHUNKS + 1))
        );
    }
}
