//! Tests that immediates keep the order of their puts.
#![allow(non_snake_case)]
use super::*;
use std::vec::Vec;

#[test]
fn push__in_the_order_of_the_announcements_across_the_wrap() {
    let mut immediates = Immediates::default();
    let sequences = [2, u32::MAX, 0, u32::MAX - 1, 1];
    for sequence in sequences {
        let value = sequence;
        immediates.push(sequence, Immediate { value, after: 0 });
    }
    let order: Vec<u32> = immediates.list.iter().map(|it| it.sequence).collect();
    assert_eq!(order, [u32::MAX - 1, u32::MAX, 0, 1, 2]);
}

#[test]
fn push_numbered__between_what_was_asked_for_before_and_after() {
    let mut immediates = Immediates::default();
    for (sequence, after) in [(4, u32::MAX), (5, 3)] {
        let value = 10 * sequence;
        immediates.push(sequence, Immediate { value, after });
    }
    assert!(!immediates.precede(u32::MAX - 1));
    for number in [u32::MAX, 2, 3] {
        assert!(immediates.precede(number));
        immediates.push_numbered(number, number, None);
    }
    let order: Vec<u32> = immediates
        .list
        .iter()
        .map(|it| it.immediate.value)
        .collect();
    assert_eq!(order, [40, u32::MAX, 2, 50, 3]);
}
