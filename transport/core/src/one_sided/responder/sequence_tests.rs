//! Tests that the Sequence executes each number once, and confirms in batches.
#![allow(non_snake_case)]
use super::*;
use std::time::Duration;
use zerolane_wire::Reason;

const NOW: Instant = Instant::ZERO;
const DENIED: Refusal = Refusal {
    reason: Reason::Denied,
    room: 0,
};

#[test]
fn admit__in_order_once_across_the_wrap() {
    let mut executor = Sequence::default();
    executor.age(u32::MAX);
    assert_eq!(
        executor.admit(NOW, u32::MAX, false),
        SequenceCheck::Expected
    );
    executor.executed(NOW);
    assert_eq!(executor.expected(), 0);
    assert_eq!(
        executor.admit(NOW, u32::MAX, false),
        SequenceCheck::Duplicate
    );
    assert_eq!(executor.admit(NOW, 1, false), SequenceCheck::Ahead);
    assert_eq!(executor.admit(NOW, 0, false), SequenceCheck::Expected);
}

#[test]
fn ask__once_a_gap_unless_pressed() {
    let mut executor = Sequence::default();
    let rtt = Duration::from_millis(1);
    assert!(executor.ask(NOW, false, rtt));
    assert!(!executor.ask(NOW + rtt, false, rtt));
    assert!(
        !executor.ask(NOW, true, rtt),
        "what was asked for is in flight"
    );
    assert!(executor.ask(NOW + rtt, true, rtt));
    assert!(!executor.ask(NOW + rtt, true, rtt));
    executor.executed(NOW);
    assert!(executor.ask(NOW, false, rtt), "another gap");
    executor.not_ready = Some(NotReady::Receive);
    assert!(
        !executor.ask(NOW + 2 * rtt, true, rtt),
        "nothing is missing but a receive"
    );
}

#[test]
fn refuse__keeps_the_number_until_it_is_known() {
    let mut executor = Sequence::default();
    executor.refuse(7, DENIED);
    assert_eq!(
        executor.admit(NOW, 0, false),
        SequenceCheck::Refused(7, DENIED)
    );
    assert_eq!(executor.admit(NOW, 1, false), SequenceCheck::Ahead);
    assert_eq!(
        executor.admit(NOW, 1, true),
        SequenceCheck::Refused(7, DENIED)
    );
    assert_eq!(executor.expected(), 0, "not confirmed as done");
    assert!(!executor.outcome_known(NOW, 5), "another");
    assert!(executor.outcome_known(NOW, 0));
    assert_eq!(executor.admit(NOW, 1, false), SequenceCheck::Expected);
}

#[test]
fn values__kept_until_confirmed() {
    let mut executor = Sequence::default();
    for n in 0..MAX_FETCHES as u32 {
        assert!(executor.has_room(0));
        executor.fetched(NOW, 100 + n, u64::from(n));
    }
    assert!(!executor.has_room(0));
    assert_eq!(executor.value(3, 103), Some(3));
    assert_eq!(executor.value(3, 104), None);
    assert!(executor.has_room(4));
    assert_eq!(
        (executor.value(3, 103), executor.value(4, 104)),
        (None, Some(4))
    );
    assert!(executor.outcome_known(NOW, 5));
    assert_eq!(executor.value(5, 105), None);
    assert_eq!(executor.value(4, 104), Some(4), "nothing was said of it");
    executor.assert_bounded();
}

#[test]
fn confirmation__batched_late_or_pressed() {
    let mut executor = Sequence::default();
    assert!(!executor.is_due(NOW) && executor.due().is_none());
    executor.executed(NOW);
    assert!(!executor.is_due(NOW));
    assert!(executor.is_due(NOW + CONFIRM_DELAY));
    executor.confirmed();
    assert!(!executor.is_due(NOW + CONFIRM_DELAY));
    (0..CONFIRM_EVERY).for_each(|_| executor.executed(NOW));
    assert!(executor.is_due(NOW), "enough of them");
    executor.confirmed();
    executor.ask_ack();
    assert!(!executor.is_due(NOW), "nothing to confirm");
    executor.executed(NOW);
    executor.ask_ack();
    assert!(executor.is_due(NOW));
    executor.confirmed();
    executor.admit(NOW, 0, false);
    assert!(
        executor.is_due(NOW),
        "an Initiator that repeats did not hear"
    );
}
