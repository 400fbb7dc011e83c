//! Tests that gaps are filled in any order, and that their number is limited.
#![allow(non_snake_case)]
use super::*;
use proptest::prelude::*;

#[test]
fn fill__in_order_duplicate_and_hole() {
    let mut gaps = Gaps::whole(100);
    assert_eq!(gaps.fill(0, 10), Filled::New(10));
    assert_eq!(gaps.fill(0, 10), Filled::Duplicate);
    assert_eq!(gaps.fill(20, 30), Filled::New(10));
    assert_eq!(
        gaps.fill(5, 25),
        Filled::New(10),
        "overlaps both ways count once"
    );
    assert_eq!(gaps.from(0), Some((30, 100)));
    assert_eq!(gaps.fill(30, 100), Filled::New(70));
    assert!(gaps.is_empty());
}

#[test]
fn fill__too_fragmented_changes_nothing() {
    let mut gaps = Gaps::whole(u32::MAX);
    for i in 1..MAX_GAPS_PER_BLOCK as u32 {
        assert_eq!(gaps.fill(i * 10, i * 10 + 1), Filled::New(1));
    }
    let before = gaps.missing();
    assert_eq!(gaps.fill(1_000_000, 1_000_001), Filled::TooFragmented);
    assert_eq!(gaps.missing(), before);
    assert_eq!(
        gaps.fill(0, 10),
        Filled::New(10),
        "filling without a new gap still works"
    );
}

proptest! {
    #[test]
    fn fill__agrees_with_a_bitmap(ops in prop::collection::vec((0u32..200, 1u32..40), 0..60)) {
        let mut gaps = Gaps::whole(200);
        let mut missing = [true; 200];
        for (start, len) in ops {
            let end = (start + len).min(200);
            let new = (start..end).filter(|&i| missing[i as usize]).count() as u32;
            let expect = if new == 0 { Filled::Duplicate } else { Filled::New(new) };
            prop_assert_eq!(gaps.fill(start, end), expect);
            missing[start as usize..end as usize].fill(false);
            let mut seen = [false; 200];
            for (a, b) in gaps.iter() {
                prop_assert!(a < b);
                seen[a as usize..b as usize].fill(true);
            }
            prop_assert_eq!(seen, missing);
            prop_assert_eq!(gaps.missing() as usize, missing.iter().filter(|m| **m).count());
        }
    }
}
