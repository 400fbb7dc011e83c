//! Generates bytes for tests to move.

/// Bytes without repetition, so that misplaced parts show. A digest's output, because its code is optimised in tests too:
/// a loop of their own would cost more than the library.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}
