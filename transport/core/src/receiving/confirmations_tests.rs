//! Tests that confirmations wait only for programs that answer, and within a limit.
#![allow(non_snake_case)]
use super::*;

const A_MOMENT: core::time::Duration = core::time::Duration::from_micros(5);

fn done(id: TransferId) -> Done {
    Done {
        peer: id,
        id,
        blocks: 0,
        message: None,
    }
}

#[test]
fn hold__only_for_those_who_answer() {
    let mut confirmations = Confirmations::default();
    let mut now = Instant::ZERO + CONFIRM_DELAY;
    assert!(!confirmations.hold(now, done(1)), "nothing is known yet");
    now = now + A_MOMENT;
    confirmations.on_departed(now);
    assert!(confirmations.hold(now, done(2)), "it was answered");
    now = now + A_MOMENT;
    confirmations.on_departed(now);
    assert_eq!(confirmations.take(), [done(2)]);
    assert!(confirmations.hold(now, done(3)));
    confirmations.on_timeout();
    assert_eq!(confirmations.take(), [done(3)]);
    assert!(!confirmations.hold(now, done(4)), "it was not answered");
    confirmations.on_departed(now + CONFIRM_DELAY * 2);
    assert!(
        !confirmations.hold(now, done(5)),
        "it was answered too late"
    );
}

#[test]
fn hold__no_more_than_there_is_room_for() {
    let mut confirmations = Confirmations::default();
    let now = Instant::ZERO;
    confirmations.hold(now, done(0));
    confirmations.on_departed(now);
    let held = (0..100).filter(|&n| confirmations.hold(now, done(n)));
    assert_eq!(held.count(), MAX_CONFIRMATIONS);
}
