//! Tests that a message's predicted layout fits exactly when the STUs lie as predicted.
#![allow(non_snake_case)]
use super::*;
use zerolane_core::{RegionId, Span};
use zerolane_wire::HEADER_LEN;

const STU: u32 = 1000;
const SEGMENT: usize = HEADER_LEN + STU as usize;

/// Runs of these lengths, in STUs of 1000 bytes.
fn layout(lens: &[u64]) -> Layout {
    let run = |&len: &u64| Run {
        span: Span {
            region: RegionId {
                index: 0,
                generation: 1,
            },
            offset: 0,
            len,
        },
        stu: STU,
        trains: false,
    };
    let runs: Vec<_> = lens.iter().map(run).collect();
    Layout {
        pairs: runs.iter().map(|run| run.stus() as usize).sum(),
        runs,
        slot: 0,
    }
}

fn fits(layout: &Layout, total: usize, segment: usize) -> bool {
    // Any number of bytes around the payload, the same for all.
    let sealed = 24;
    let more = total.div_ceil(segment.max(1)) * sealed;
    let fits = layout.fits(total, segment, HEADER_LEN);
    let same = layout.fits(total + more, segment + sealed, HEADER_LEN + sealed);
    assert_eq!(fits, same, "{total} in {segment}");
    fits
}

#[test]
fn fits__all_or_the_first_of_the_stus_predicted() {
    let layout = layout(&[3000]);
    for segments in 1..=3 {
        assert!(fits(&layout, segments * SEGMENT, SEGMENT), "{segments}");
    }
    assert!(
        !fits(&layout, 4 * SEGMENT, SEGMENT),
        "more than were predicted"
    );
}

#[test]
fn fits__a_short_one_only_at_the_end() {
    let layout = layout(&[3000]);
    assert!(fits(&layout, 2 * SEGMENT + HEADER_LEN + 1, SEGMENT));
    assert!(
        fits(&layout, 2 * SEGMENT + HEADER_LEN, SEGMENT),
        "a control operation"
    );
    assert!(
        fits(&layout, HEADER_LEN + 300, HEADER_LEN + 300),
        "a single one"
    );
    let short = SEGMENT - 1;
    assert!(
        !fits(&layout, 2 * short, short),
        "the second would start one byte early"
    );
}

#[test]
fn fits__another_stu_size_does_not() {
    let layout = layout(&[3000]);
    assert!(!fits(&layout, 2 * (SEGMENT + 1), SEGMENT + 1));
    assert!(
        !fits(&layout, SEGMENT + 1, SEGMENT + 1),
        "longer than its place"
    );
}

#[test]
fn fits__less_than_a_header_a_segment_does_not() {
    let layout = layout(&[3000]);
    assert!(!fits(&layout, 2 * (HEADER_LEN - 1), HEADER_LEN - 1));
    assert!(!fits(&layout, 0, 1), "nothing");
}

#[test]
fn fits__over_several_runs() {
    let layout = layout(&[2000, 1000, 2500]);
    assert!(fits(&layout, 5 * SEGMENT, SEGMENT));
    assert!(
        fits(&layout, 5 * SEGMENT + HEADER_LEN + 500, SEGMENT),
        "up to the short end"
    );
    assert!(
        !fits(&layout, 6 * SEGMENT, SEGMENT),
        "longer than the short place"
    );
}

#[test]
fn fits__nothing_goes_on_behind_a_short_place() {
    let layout = layout(&[1500, 1000]);
    assert!(fits(&layout, SEGMENT + HEADER_LEN + 500, SEGMENT));
    assert!(
        !fits(&layout, 3 * SEGMENT, SEGMENT),
        "the second is not in its place"
    );
    let layout = self::layout(&[500, 1000]);
    assert!(!fits(&layout, 2 * SEGMENT, SEGMENT), "the first is short");
}

#[test]
fn fits__nothing_was_predicted() {
    assert!(!fits(&layout(&[]), SEGMENT, SEGMENT));
}

#[test]
fn clear__predicts_nothing() {
    let mut layout = layout(&[1000]);
    layout.clear();
    assert!(!fits(&layout, SEGMENT, SEGMENT));
}
