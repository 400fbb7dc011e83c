//! Cuts a Block into STUs.
//!
//! The one rule (thesis, 4.3.1): an STU never crosses a boundary of the receiver's buffers. Taking the largest STU that
//! fits at every step gives the fewest STUs: each boundary restarts the choice, and between two boundaries only lengths
//! count.

/// One STU: its start within the Block, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Offset from the start of the Block, bytes.
    pub start: u32,
    /// Length, bytes.
    pub len: u32,
}

/// The STUs of `len` bytes at `address` in a receiver with buffers of `2^buffer_log2` bytes, at most `stu` bytes each.
///
/// ```
/// // The thesis's better example: 5632 bytes at offset 512 in 4 KiB buffers, second Block.
/// let tiles: Vec<_> = zerolane_core::tiles(2048, 2048, 1024, 12).collect();
/// assert_eq!(tiles.len(), 2);
/// ```
pub fn tiles(address: u64, len: u32, stu: u32, buffer_log2: u8) -> impl Iterator<Item = Tile> {
    let mut start = 0;
    core::iter::from_fn(move || {
        let rest = len - start;
        if rest == 0 {
            return None;
        }
        let tile = Tile {
            start,
            len: rest.min(stu).min(to_boundary(address, start, buffer_log2)),
        };
        start += tile.len;
        Some(tile)
    })
}

/// Bytes up to the next buffer boundary, capped at 32 bits.
fn to_boundary(address: u64, start: u32, buffer_log2: u8) -> u32 {
    let size = 1u64 << buffer_log2;
    let rest = size - ((address + u64::from(start)) & (size - 1));
    u32::try_from(rest).unwrap_or(u32::MAX)
}

/// Bytes and STUs of the next burst: STUs of exactly `stu` bytes, of which only the last may be shorter, as
/// segmentation offload requires.
pub(crate) fn burst(
    address: u64,
    len: u32,
    stu: u32,
    buffer_log2: u8,
    max_segments: u32,
) -> (u32, u32) {
    let bytes = len.min(stu.saturating_mul(max_segments));
    if to_boundary(address, 0, buffer_log2) >= bytes {
        return (bytes, bytes.div_ceil(stu));
    }
    let (mut bytes, mut segments) = (0, 0);
    for tile in tiles(address, len, stu, buffer_log2).take(max_segments as usize) {
        bytes += tile.len;
        segments += 1;
        if tile.len < stu {
            break;
        }
    }
    (bytes, segments)
}

/// The largest power of two not above `limit` (classic profile).
pub(crate) fn power_of_two_stu(limit: u32) -> u32 {
    1 << limit.max(1).ilog2()
}

/// Lengths of the Blocks of a Transfer in the classic profile. The first ends at the next multiple of the Block size,
/// so that all others start aligned.
pub(crate) fn classic_block(
    address: u64,
    transfer_offset: u64,
    length: u64,
    block_log2: u8,
) -> u32 {
    let at = address + transfer_offset;
    let rest = length - transfer_offset;
    u64::from(to_boundary(at, 0, block_log2)).min(rest) as u32
}

#[cfg(test)]
#[path = "tiling_tests.rs"]
mod tests;
