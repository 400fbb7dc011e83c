//! Tests that Reads match offers in the order of their numbers.
#![allow(non_snake_case)]
use super::*;
use crate::span::RegionId;

fn read(sequence: u32) -> RequestToReceive {
    RequestToReceive {
        capacity: 10,
        s_id: sequence | 1 << 16,
        sequence,
    }
}

fn offer(id: TransferId) -> Offer {
    let region = RegionId {
        index: 0,
        generation: 0,
    };
    Offer {
        id,
        span: Span {
            region,
            offset: 0,
            len: 1,
        },
        delivery: Delivery::Polled,
    }
}

fn matches(offers: &mut Offers) -> Vec<(u32, TransferId)> {
    std::iter::from_fn(|| offers.match_next())
        .map(|(read, offer)| (read.sequence, offer.id))
        .collect()
}

#[test]
fn match_next__in_order_of_the_numbers_whatever_came_first() {
    let mut offers = Offers::default();
    offers.queue.extend([offer(1), offer(2), offer(3)]);
    assert_eq!(offers.want(&read(1), 8), ReadRequest::Kept);
    assert_eq!(matches(&mut offers), []);
    assert_eq!(offers.want(&read(0), 8), ReadRequest::Kept);
    assert_eq!(matches(&mut offers), [(0, 1), (1, 2)]);
    assert_eq!(offers.want(&read(0), 8), ReadRequest::Old);
}

#[test]
fn take_back__before_it_was_heard_and_out_of_order() {
    let mut offers = Offers::default();
    offers.queue.extend([offer(1), offer(2)]);
    assert_eq!(offers.take_back(1, 8), ReadRequest::Kept);
    assert_eq!(offers.want(&read(1), 8), ReadRequest::Old, "late request");
    offers.want(&read(0), 8);
    offers.want(&read(2), 8);
    assert_eq!(matches(&mut offers), [(0, 1), (2, 2)]);
}

#[test]
fn want__beyond_the_slots_is_refused_and_a_freed_slot_is_usable() {
    let mut offers = Offers::default();
    assert_eq!(offers.want(&read(2), 2), ReadRequest::TooMany);
    offers.take_back(0, 2);
    assert_eq!(
        offers.want(&read(2), 2),
        ReadRequest::Kept,
        "number 0 is passed at once"
    );
}

#[test]
fn match_next__numbers_wrap() {
    let mut offers = Offers::default();
    offers.age(u32::MAX);
    offers.queue.extend([offer(1), offer(2)]);
    offers.want(&read(0), 8);
    offers.want(&read(u32::MAX), 8);
    assert_eq!(matches(&mut offers), [(u32::MAX, 1), (0, 2)]);
}
