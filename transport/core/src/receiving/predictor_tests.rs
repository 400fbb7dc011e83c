//! Tests that the predictor follows a stream, its gaps and its restarts.
#![allow(non_snake_case)]
use super::*;
use crate::limits::MAX_GAPS_PER_BLOCK;
use crate::receiving::Run;
use alloc::vec::Vec;

const STU: u32 = 1000;
const BLOCK: u32 = 8 * STU;

/// A stream whose first STU came.
fn started() -> Predictor {
    let mut stream = Predictor::new(500, BLOCK);
    assert_eq!(stream.on_data(500, STU, STU, true), Ok(()));
    stream
}

/// Positions and lengths of the next expected STUs.
fn expected(stream: &Predictor, stus: u32) -> Vec<(u64, u64)> {
    let mut forecast = Forecast::default();
    stream.forecast(stus, &mut forecast);
    let place = |run: Run| (run.span.offset, run.span.len);
    forecast.runs().map(place).collect()
}

#[test]
fn forecast__is_empty_before_a_size_is_known() {
    let stream = Predictor::new(0, BLOCK);
    assert_eq!((stream.stu(), expected(&stream, 4)), (0, Vec::new()));
}

#[test]
fn forecast__goes_on_behind_what_came_and_into_the_next_block() {
    let stream = started();
    assert_eq!(stream.stu(), STU);
    assert_eq!(expected(&stream, 2), [(1500, 2000)]);
    assert_eq!(expected(&stream, 10), [(1500, 7000), (8500, 3000)]);
}

#[test]
fn forecast__is_behind_what_arrived_furthest() {
    let mut stream = started();
    assert_eq!(stream.on_data(3500, STU, STU, true), Ok(()));
    assert_eq!(expected(&stream, 1), [(4500, 1000)]);
    assert_eq!(stream.on_data(1500, STU, STU, true), Ok(()));
    assert_eq!(expected(&stream, 1), [(4500, 1000)]);
    assert_eq!(
        stream.on_data(1500, STU, STU, true),
        Err(DropReason::Duplicate)
    );
}

#[test]
fn on_data__a_short_end_shows_no_size() {
    let mut stream = started();
    assert_eq!(stream.on_data(1500, 300, 300, false), Ok(()));
    assert_eq!(stream.stu(), STU);
    assert_eq!(stream.on_data(1800, 900, 900, true), Ok(()));
    assert_eq!(stream.stu(), 900);
}

#[test]
fn on_data__over_the_end_of_a_block() {
    let mut stream = started();
    assert_eq!(stream.on_data(1500, 7500, 750, true), Ok(()));
    assert_eq!(expected(&stream, 1), [(9000, 750)]);
    for at in 0..1000 {
        let position = 9000 + at * 750;
        assert_eq!(stream.on_data(position, 750, 750, true), Ok(()), "{at}");
    }
    stream.grants.assert_bounded();
}

#[test]
fn on_data__beyond_what_is_granted_is_refused_until_restarted() {
    let mut stream = started();
    let far = 500 + 10 * u64::from(BLOCK);
    assert_eq!(
        stream.on_data(far, STU, STU, true),
        Err(DropReason::NoGrant)
    );
    assert_eq!(stream.on_data(0, STU, STU, true), Err(DropReason::NoGrant));
    stream.restart(far);
    assert_eq!(stream.on_data(far, STU, STU, true), Ok(()));
    assert_eq!(expected(&stream, 1), [(far + 1000, 1000)]);
    stream.grants.assert_bounded();
}

#[test]
fn on_data__gaps_are_bounded() {
    let mut stream = Predictor::new(0, 1 << 30);
    let mut refused = None;
    for at in 0..2 * MAX_GAPS_PER_BLOCK as u64 {
        if let Err(reason) = stream.on_data(1 + 2 * at, 1, 1, true) {
            refused = Some(reason);
        }
    }
    assert_eq!(refused, Some(DropReason::Limit));
}

#[test]
fn on_data__blocks_with_holes_are_bounded() {
    let mut stream = Predictor::new(0, 100);
    assert_eq!(stream.on_data(0, 50, 50, true), Ok(()));
    for at in 1..10_000 {
        assert_eq!(stream.on_data(100 * at + 50, 50, 50, true), Ok(()), "{at}");
    }
    stream.grants.assert_bounded();
    assert_eq!(expected(&stream, 1), [(1_000_000, 50)]);
}
