//! Tests that a path that clears ECN marks is detected.
#![allow(non_snake_case)]
use super::*;
use std::time::Duration;

const STU: u32 = 1000;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// A report after this many STUs, of which this many arrived capable.
fn told(stus: u64, capable: u32) -> Progress {
    Progress {
        received: stus * u64::from(STU),
        capable,
        ..Progress::default()
    }
}

#[test]
fn note__a_path_that_clears_them_is_found_out() {
    let mut marks = EcnValidation::default();
    marks.note(at(1), true, at(0), STU, &told(10, 0));
    marks.note(at(3), true, at(2), STU, &told(20, 0));
    marks.note(at(4), true, at(3), STU, &told(20 + MARKS_TRIAL_STUS - 1, 0));
    assert!(marks.may_work(), "too early to tell");
    marks.note(at(5), true, at(4), STU, &told(20 + MARKS_TRIAL_STUS, 0));
    assert!(!marks.may_work());
    marks.note(
        at(6),
        true,
        at(5),
        STU,
        &told(30 + MARKS_TRIAL_STUS, 10_000),
    );
    assert!(!marks.may_work(), "until the path is another");
    marks.forget();
    assert!(marks.may_work());
}

#[test]
fn note__what_left_unmarked_says_nothing() {
    let mut marks = EcnValidation::default();
    for ms in 1..100 {
        marks.note(at(ms), false, at(ms - 1), STU, &told(100 * ms, 0));
    }
    // Marks are wanted from now on; these left before.
    for ms in 100..110 {
        marks.note(at(ms), true, at(90), STU, &told(100 * ms, 0));
    }
    assert!(marks.may_work());
}

#[test]
fn note__a_path_that_begins_to_clear_them_is_found_out() {
    let mut marks = EcnValidation::default();
    let each = MARKS_TRIAL_STUS + 1;
    for n in 0..10 {
        let capable = (n * each) as u32;
        marks.note(at(n + 1), true, at(n), STU, &told(n * each, capable));
        assert!(marks.may_work());
    }
    let capable = (9 * each) as u32;
    marks.note(at(20), true, at(19), STU, &told(10 * each, capable));
    assert!(!marks.may_work());
}
