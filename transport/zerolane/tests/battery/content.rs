//! Makes payload for tests that identifies its Transfer and offset.

use zerolane::Region;

/// The word at `index` of the Transfer `seed`.
fn word(seed: u64, index: u64) -> [u8; 8] {
    // SplitMix64's finaliser over both: neighbours and other Transfers differ in every byte.
    let mut z = index.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

pub fn fill(seed: u64, bytes: &mut [u8]) {
    for (index, chunk) in (0..).zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word(seed, index)[..chunk.len()]);
    }
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
    for (index, chunk) in (0..).zip(bytes.chunks(8)) {
        let expected = word(seed, index);
        assert_eq!(
            chunk,
            &expected[..chunk.len()],
            "transfer {seed}, at byte {} of {}",
            index * 8,
            bytes.len()
        );
    }
}
