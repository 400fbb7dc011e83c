//! Describes the content of a cast: its chunks, the digest of each, and one root over all.
//!
//! The digest of a chunk is BLAKE3 of its bytes, so a node can verify chunks alone and in any order. The root is BLAKE3 of
//! the header's fields and all digests: a node that has the root from the source needs to trust no other node.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bitmap::Bitmap;
use crate::limits::{MAX_ARITY, MAX_CHUNKS};

/// A BLAKE3 digest.
pub type Hash = [u8; 32];

/// Identifies the content and the layout of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Digest of these fields and of the digests of all chunks.
    pub root: Hash,
    /// Bytes of the content.
    pub bytes: u64,
    /// Bytes of each chunk except the last.
    pub chunk_bytes: u32,
    /// Stripes of the content, and children of a node in its own stripe: 1 is a chain.
    pub arity: u32,
}

/// Why a header, a list of digests or a chunk does not match the announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// There are too many chunks, or they have no bytes.
    #[error("content of {bytes} bytes in chunks of {chunk_bytes}: more than {MAX_CHUNKS} chunks")]
    Chunks {
        /// Bytes of the content.
        bytes: u64,
        /// Bytes of a chunk.
        chunk_bytes: u32,
    },
    /// The arity is none.
    #[error("arity {0}: it must be 1 to {MAX_ARITY}")]
    Arity(u32),
    /// The digests are not those of the root.
    #[error("digests that the root does not cover")]
    Root,
    /// The chunk does not exist.
    #[error("chunk {0} does not exist")]
    NoSuchChunk(u32),
    /// The chunk's bytes are not as many as they should be.
    #[error("chunk {chunk} has {found} bytes, not {wanted}")]
    Length {
        /// Which.
        chunk: u32,
        /// Bytes that came.
        found: usize,
        /// Bytes that it has.
        wanted: usize,
    },
    /// The chunk's bytes are others.
    #[error("chunk {0} has a wrong digest")]
    Content(u32),
}

impl Header {
    /// The number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        let chunks = self.bytes.div_ceil(u64::from(self.chunk_bytes.max(1)));
        u32::try_from(chunks).unwrap_or(u32::MAX)
    }

    /// Bytes of `chunk`; 0 if it does not exist.
    #[must_use]
    pub fn bytes_of(&self, chunk: u32) -> usize {
        let begin = u64::from(chunk) * u64::from(self.chunk_bytes);
        self.bytes
            .saturating_sub(begin)
            .min(u64::from(self.chunk_bytes)) as usize
    }

    /// The stripe of `chunk`.
    #[must_use]
    pub fn stripe_of(&self, chunk: u32) -> usize {
        (chunk % self.arity) as usize
    }

    /// The number of chunks in `stripe`.
    #[must_use]
    pub fn chunks_of(&self, stripe: usize) -> u32 {
        (self.chunks() + self.arity - 1).saturating_sub(stripe as u32) / self.arity
    }

    /// Whether such a content can be cast. One without bytes has no chunks.
    ///
    /// # Errors
    /// There are too many chunks, or the arity is out of range.
    pub fn check(&self) -> Result<(), Mismatch> {
        if !(1..=MAX_ARITY).contains(&self.arity) {
            return Err(Mismatch::Arity(self.arity));
        }
        if self.chunk_bytes == 0 || self.chunks() > MAX_CHUNKS {
            let (bytes, chunk_bytes) = (self.bytes, self.chunk_bytes);
            return Err(Mismatch::Chunks { bytes, chunk_bytes });
        }
        Ok(())
    }

    fn root_of(&self, hashes: &[Hash]) -> Hash {
        let mut hasher = blake3::Hasher::new_derive_key("zerolane cast manifest 1");
        hasher.update(&self.bytes.to_le_bytes());
        hasher.update(&self.chunk_bytes.to_le_bytes());
        hasher.update(&self.arity.to_le_bytes());
        for hash in hashes {
            hasher.update(hash);
        }
        *hasher.finalize().as_bytes()
    }
}

/// A header with the digests that its root covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    header: Header,
    hashes: Vec<Hash>,
}

impl Manifest {
    /// That of a content of `bytes` bytes, of whose chunks `hashes` are the digests, in order.
    ///
    /// # Errors
    /// As [`Header::check`]; or the number of digests differs from the number of chunks.
    pub fn new(
        bytes: u64,
        chunk_bytes: u32,
        arity: u32,
        hashes: Vec<Hash>,
    ) -> Result<Manifest, Mismatch> {
        let root = Hash::default();
        let mut header = Header {
            root,
            bytes,
            chunk_bytes,
            arity,
        };
        header.check()?;
        header.root = header.root_of(&hashes);
        Manifest::covered(header, hashes)
    }

    /// The digests that came for `header`.
    ///
    /// # Errors
    /// As [`Header::check`]; or the root does not cover the digests.
    pub fn covered(header: Header, hashes: Vec<Hash>) -> Result<Manifest, Mismatch> {
        header.check()?;
        if hashes.len() != header.chunks() as usize || header.root_of(&hashes) != header.root {
            return Err(Mismatch::Root);
        }
        Ok(Manifest { header, hashes })
    }

    /// That of a content in memory.
    ///
    /// # Errors
    /// As [`Header::check`].
    pub fn of(content: &[u8], chunk_bytes: u32, arity: u32) -> Result<Manifest, Mismatch> {
        let chunks = content.chunks(chunk_bytes.max(1) as usize);
        let hashes = chunks.map(|it| *blake3::hash(it).as_bytes()).collect();
        Manifest::new(content.len() as u64, chunk_bytes, arity, hashes)
    }

    /// Its header.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// The digests of all chunks, in order.
    #[must_use]
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// The chunks whose bytes are all zero, as their digests tell.
    #[must_use]
    pub fn zeros(&self) -> Bitmap {
        let chunks = self.header.chunks();
        let mut zeros = Bitmap::empty(chunks);
        let Some(last) = chunks.checked_sub(1) else {
            return zeros;
        };
        let hash_of = |chunk| hash_of_zeros(self.header.bytes_of(chunk));
        let (first, rest) = (hash_of(0), hash_of(last));
        for (chunk, hash) in (0..).zip(&self.hashes) {
            if *hash == if chunk == last { rest } else { first } {
                zeros.insert(chunk);
            }
        }
        zeros
    }

    /// Whether `content` is that of `chunk`.
    ///
    /// # Errors
    /// The chunk does not exist, or has other bytes.
    pub fn check(&self, chunk: u32, content: &[u8]) -> Result<(), Mismatch> {
        let hash = self
            .hashes
            .get(chunk as usize)
            .ok_or(Mismatch::NoSuchChunk(chunk))?;
        let (found, wanted) = (content.len(), self.header.bytes_of(chunk));
        if found != wanted {
            return Err(Mismatch::Length {
                chunk,
                found,
                wanted,
            });
        }
        match blake3::hash(content).as_bytes() == hash {
            true => Ok(()),
            false => Err(Mismatch::Content(chunk)),
        }
    }
}

/// The digest of a chunk of `len` zeros.
#[must_use]
pub fn hash_of_zeros(len: usize) -> Hash {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut hasher = blake3::Hasher::new();
    let mut left = len;
    while left > 0 {
        let piece = left.min(ZEROS.len());
        hasher.update(&ZEROS[..piece]);
        left -= piece;
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn check__every_chunk_by_its_content_and_length() {
        let content: Vec<u8> = (0..1000u32).map(|it| (it * 7) as u8).collect();
        let manifest = Manifest::of(&content, 300, 2).unwrap();
        let header = manifest.header();
        assert_eq!(
            (header.chunks(), header.bytes_of(3), header.bytes_of(4)),
            (4, 100, 0)
        );
        assert_eq!((header.chunks_of(0), header.chunks_of(1)), (2, 2));
        for (chunk, bytes) in (0..).zip(content.chunks(300)) {
            assert_eq!(manifest.check(chunk, bytes), Ok(()));
            let mut wrong = bytes.to_vec();
            wrong[50] ^= 1;
            assert_eq!(manifest.check(chunk, &wrong), Err(Mismatch::Content(chunk)));
        }
        assert!(matches!(
            manifest.check(0, &content[..299]),
            Err(Mismatch::Length { .. })
        ));
        assert_eq!(manifest.check(4, &[]), Err(Mismatch::NoSuchChunk(4)));
    }

    #[test]
    fn covered__a_root_covers_each_digest_and_each_figure() {
        let manifest = Manifest::of(&[7; 1000], 300, 2).unwrap();
        let header = manifest.header();
        assert_eq!(
            Manifest::covered(header, manifest.hashes.clone()).as_ref(),
            Ok(&manifest)
        );
        let mut hashes = manifest.hashes.clone();
        hashes[2][0] ^= 1;
        assert_eq!(Manifest::covered(header, hashes), Err(Mismatch::Root));
        for wrong in [
            Header {
                bytes: 999,
                ..header
            },
            Header {
                chunk_bytes: 301,
                ..header
            },
            Header { arity: 1, ..header },
        ] {
            assert_eq!(
                Manifest::covered(wrong, manifest.hashes.clone()),
                Err(Mismatch::Root)
            );
        }
        let none = Header {
            chunk_bytes: 0,
            ..header
        };
        assert!(matches!(none.check(), Err(Mismatch::Chunks { .. })));
        assert!(Header { arity: 0, ..header }.check().is_err());
        assert!(
            Header {
                bytes: u64::MAX,
                chunk_bytes: 1,
                ..header
            }
            .check()
            .is_err()
        );
    }

    #[test]
    fn covered__a_content_without_bytes_has_no_chunks() {
        let manifest = Manifest::of(&[], 300, 2).unwrap();
        assert_eq!(
            (manifest.header().chunks(), manifest.hashes().len()),
            (0, 0)
        );
        assert_eq!(
            Manifest::covered(manifest.header(), Vec::new()).as_ref(),
            Ok(&manifest)
        );
        assert!(manifest.zeros().is_empty());
    }

    #[test]
    fn zeros__are_whole_chunks_of_them_and_the_last_is_shorter() {
        let zeros = |change: &[usize]| {
            let mut content = [0; 1000];
            change.iter().for_each(|it| content[*it] = 1);
            let zeros = Manifest::of(&content, 300, 2).unwrap().zeros();
            (0..5).filter(|it| zeros.contains(*it)).collect::<Vec<_>>()
        };
        assert_eq!(zeros(&[]), [0, 1, 2, 3]);
        assert_eq!(zeros(&[299, 600]), [1, 3]);
        assert_eq!(zeros(&[999]), [0, 1, 2]);
    }
}
