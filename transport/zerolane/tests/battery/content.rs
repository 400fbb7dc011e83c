//! Makes payload for tests that identifies its Transfer and offset.

use crate::bytes::content;
use zerolane::Region;

pub fn fill(seed: u64, bytes: &mut [u8]) {
    bytes.copy_from_slice(&content(seed, bytes.len()));
}

/// `len` bytes of the Transfer `seed`.
pub fn region(seed: u64, len: usize) -> Region {
    let mut region = Region::anonymous(len).expect("memory");
    fill(seed, &mut region);
    region
}

/// Panics with the offset of the first byte that is not of the Transfer `seed`.
#[track_caller]
pub fn verify(seed: u64, bytes: &[u8]) {
    let expected = content(seed, bytes.len());
    if bytes != expected {
        let wrong = bytes.iter().zip(&expected).position(|(is, be)| is != be);
        panic!("transfer {seed}, at byte {wrong:?} of {}", bytes.len());
    }
}
