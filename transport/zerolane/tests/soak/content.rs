//! Makes payload for the soak that identifies its content and offset.

use crate::dice::mix;
use zerolane::Region;

/// The word at `index` of the content `seed`; content 0 is all zeros.
fn word(seed: u64, index: u64) -> [u8; 8] {
    match seed {
        0 => [0; 8],
        _ => mix(index.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_le_bytes(),
    }
}

/// Each run of bytes that lies in one word: its range in `len` bytes that begin at `at`, and the word's index.
fn words(at: u64, len: usize) -> impl Iterator<Item = (std::ops::Range<usize>, u64)> {
    let end = at + len as u64;
    (at / 8..end.div_ceil(8)).map(move |index| {
        let (from, to) = ((index * 8).max(at), (index * 8 + 8).min(end));
        ((from - at) as usize..(to - at) as usize, index)
    })
}

/// Fills bytes that begin at `at` with the content `seed`.
pub fn fill(seed: u64, at: u64, bytes: &mut [u8]) {
    for (run, index) in words(at, bytes.len()) {
        let skip = ((at + run.start as u64) % 8) as usize;
        let len = run.len();
        bytes[run].copy_from_slice(&word(seed, index)[skip..skip + len]);
    }
}

/// The first offset in `bytes`, which begin at `at`, that does not have the content `seed`.
pub fn first_wrong(seed: u64, at: u64, bytes: &[u8]) -> Option<u64> {
    let wrong = |(run, index): &(std::ops::Range<usize>, u64)| {
        let skip = ((at + run.start as u64) % 8) as usize;
        bytes[run.clone()] != word(seed, *index)[skip..skip + run.len()]
    };
    words(at, bytes.len())
        .find(wrong)
        .map(|(run, _)| at + run.start as u64)
}

/// `len` bytes of the content `seed` from `at` on.
pub fn region(seed: u64, at: u64, len: u64) -> Region {
    let mut region = Region::anonymous(len as usize).expect("memory");
    fill(seed, at, &mut region);
    region
}

/// Payload that contains its own name, if there is room for that.
pub fn named(id: u64, len: u64) -> Region {
    let mut region = region(id + 1, 0, len);
    match region.first_chunk_mut() {
        Some(name) => *name = id.to_le_bytes(),
        None => region.fill(len as u8),
    }
    region
}

/// The name in the payload, `None` if it is too short to have one.
///
/// # Panics
/// The rest does not match the name.
pub fn name_of(bytes: &[u8]) -> Option<u64> {
    let Some(name) = bytes.first_chunk() else {
        assert!(
            bytes.iter().all(|&byte| byte == bytes.len() as u8),
            "{bytes:x?}"
        );
        return None;
    };
    let id = u64::from_le_bytes(*name);
    let wrong = first_wrong(id + 1, 8, &bytes[8..]);
    assert_eq!(
        wrong,
        None,
        "payload {id} of {} bytes is wrong",
        bytes.len()
    );
    Some(id)
}
