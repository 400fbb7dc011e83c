//! Tests that Blocks are cut into the fewest STUs, as in the thesis's figures.
#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;

fn lengths(address: u64, len: u32) -> Vec<u32> {
    tiles(address, len, 1024, 12).map(|t| t.len).collect()
}

#[test]
fn tiles__thesis_figure_11() {
    // Blocks of 2048, 2048, 1536 into offset 512 of 4 KiB buffers: the second needs three STUs.
    assert_eq!(lengths(512, 2048), [1024, 1024]);
    assert_eq!(lengths(2560, 2048), [1024, 512, 512]);
    assert_eq!(lengths(4608, 1536), [1024, 512]);
}

#[test]
fn classic_block__thesis_better_way() {
    // 5632 bytes at offset 512: Blocks of 1536, 2048, 2048, one STU fewer.
    let mut blocks = vec![];
    let mut at = 0;
    while at < 5632 {
        let len = classic_block(512, at, 5632, 11);
        blocks.push((len, lengths(512 + at, len)));
        at += u64::from(len);
    }
    let sizes: Vec<u32> = blocks.iter().map(|b| b.0).collect();
    assert_eq!(sizes, [1536, 2048, 2048]);
    assert_eq!(blocks.iter().map(|b| b.1.len()).sum::<usize>(), 6);
}

/// The fewest STUs, by dynamic programming over every cut.
fn fewest(address: u64, len: u32, stu: u32, log2: u8) -> usize {
    let size = 1u64 << log2;
    let mut best = vec![usize::MAX; len as usize + 1];
    best[0] = 0;
    for end in 1..=len as usize {
        for start in end.saturating_sub(stu as usize)..end {
            let (a, b) = (address + start as u64, address + end as u64 - 1);
            if a / size == b / size && best[start] != usize::MAX {
                best[end] = best[end].min(best[start] + 1);
            }
        }
    }
    best[len as usize]
}

proptest! {
    #[test]
    fn tiles__every_byte_once_no_boundary_fewest(
        address in 0u64..300, len in 1u32..400, stu in 1u32..120, log2 in 3u8..9,
    ) {
        let all: Vec<Tile> = tiles(address, len, stu, log2).collect();
        let mut at = 0;
        for tile in &all {
            prop_assert_eq!(tile.start, at);
            prop_assert!(tile.len >= 1 && tile.len <= stu);
            let first = address + u64::from(tile.start);
            prop_assert_eq!(first >> log2, (first + u64::from(tile.len) - 1) >> log2);
            at += tile.len;
        }
        prop_assert_eq!(at, len);
        prop_assert_eq!(all.len(), fewest(address, len, stu, log2));
    }

    #[test]
    fn burst__is_a_prefix_of_the_tiling(
        address in 0u64..5000, len in 1u32..9000, stu in 1u32..1500, log2 in 9u8..14, max in 1u32..64,
    ) {
        let (bytes, segments) = burst(address, len, stu, log2, max);
        let prefix: Vec<Tile> = tiles(address, len, stu, log2).take(segments as usize).collect();
        prop_assert!(segments >= 1 && segments <= max);
        prop_assert_eq!(prefix.iter().map(|t| t.len).sum::<u32>(), bytes);
        prop_assert!(prefix[..prefix.len() - 1].iter().all(|t| t.len == stu));
    }

    #[test]
    fn classic_block__tiles_the_transfer(address in 0u64..10_000, length in 1u64..20_000, log2 in 9u8..13) {
        let (mut at, mut sizes) = (0, vec![]);
        while at < length {
            let len = classic_block(address, at, length, log2);
            prop_assert!(len > 0);
            sizes.push(len);
            at += u64::from(len);
        }
        prop_assert_eq!(at, length);
        if sizes.len() > 2 {
            prop_assert!(sizes[1..sizes.len() - 1].iter().all(|&s| s == 1 << log2));
        }
    }
}
