//! Tests that immediates keep the order of their puts.
#![allow(non_snake_case)]
use super::*;
use crate::request::RemotePlace;
use std::vec::Vec;
use zerolane_wire::Rights;

fn region(handle: u32) -> RemoteRegion {
    RemoteRegion {
        start: RemotePlace {
            handle,
            mx: handle as u16,
            address: 0,
        },
        length: 1 << 20,
        rights: Rights::ALL,
    }
}

#[test]
fn push__in_the_order_of_the_announcements_across_the_wrap() {
    let mut immediates = Immediates::default();
    let sequences = [2, u32::MAX, 0, u32::MAX - 1, 1];
    for sequence in sequences {
        let value = sequence;
        immediates.push(sequence, Immediate { value, after: 0 }, region(1), 8);
    }
    let order: Vec<u32> = immediates.list.iter().map(|it| it.sequence).collect();
    assert_eq!(order, [u32::MAX - 1, u32::MAX, 0, 1, 2]);
}

#[test]
fn push_numbered__between_what_was_asked_for_before_and_after() {
    let mut immediates = Immediates::default();
    for (sequence, after) in [(4, u32::MAX), (5, 3)] {
        let value = 10 * sequence;
        immediates.push(sequence, Immediate { value, after }, region(1), 8);
    }
    assert!(!immediates.precede(u32::MAX - 1));
    for number in [u32::MAX, 2, 3] {
        assert!(immediates.precede(number));
        let put = LastPut {
            region: region(2),
            placed: 9,
            rest: 0,
        };
        immediates.push_numbered(number, number, &put, None);
    }
    let told = |it: &Awaited| (it.immediate.value, it.region.start.handle, it.length);
    let order: Vec<_> = immediates.list.iter().map(told).collect();
    let (announced, numbered) = (|value| (value, 1, 8), |value| (value, 2, 9));
    assert_eq!(
        order,
        [
            announced(40),
            numbered(u32::MAX),
            numbered(2),
            announced(50),
            numbered(3)
        ]
    );
}
