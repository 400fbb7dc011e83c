#![allow(non_snake_case)]
use super::*;

const A_MOMENT: core::time::Duration = core::time::Duration::from_micros(5);

#[test]
fn hold__only_for_those_who_answer() {
    let mut confirmations = Confirmations::default();
    let mut now = Instant::ZERO + CONFIRM_DELAY;
    assert!(!confirmations.hold(now, (1, 1)), "nothing is known yet");
    now = now + A_MOMENT;
    confirmations.on_departed(now);
    assert!(confirmations.hold(now, (2, 2)), "it was answered");
    now = now + A_MOMENT;
    confirmations.on_departed(now);
    assert_eq!(confirmations.take(), [(2, 2)]);
    assert!(confirmations.hold(now, (3, 3)));
    confirmations.on_timeout();
    assert_eq!(confirmations.take(), [(3, 3)]);
    assert!(!confirmations.hold(now, (4, 4)), "it was not answered");
    confirmations.on_departed(now + CONFIRM_DELAY * 2);
    assert!(!confirmations.hold(now, (5, 5)), "it was answered too late");
}

#[test]
fn hold__no_more_than_there_is_room_for() {
    let mut confirmations = Confirmations::default();
    let now = Instant::ZERO;
    confirmations.hold(now, (0, 1));
    confirmations.on_departed(now);
    let held = (0..100).filter(|&n| confirmations.hold(now, (n, n + 1)));
    assert_eq!(held.count(), MAX_CONFIRMATIONS);
}
