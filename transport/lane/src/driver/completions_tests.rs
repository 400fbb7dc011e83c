//! Tests that completions are notified, visible and deferred in order.
#![allow(non_snake_case)]
use super::*;
use crate::driver::{MessageControl, WorkKind};
use zerolane_core::TransferError;

fn completion(id: TransferId, delivery: Delivery) -> Completion {
    Completion {
        id,
        kind: WorkKind::Receive,
        context: 0,
        result: Ok(1),
        memory: None,
        pooled: false,
        delivery,
        value: 0,
        control: MessageControl::default(),
        region: None,
    }
}

fn queue(deliveries: &[Delivery]) -> Completions {
    let mut queue = Completions::default();
    queue.honour(true);
    for (id, &delivery) in (1..).zip(deliveries) {
        queue.push(completion(id, delivery));
    }
    queue
}

fn taken(queue: &mut Completions) -> Vec<TransferId> {
    std::iter::from_fn(|| queue.pop()).map(|it| it.id).collect()
}

use Delivery::{Interrupt, Polled, Silent};

#[test]
fn push__everything_notifies_unless_delivery_is_honoured() {
    let mut queue = queue(&[Silent, Polled]);
    assert_eq!(queue.notified(), 0);
    queue.honour(false);
    assert_eq!(queue.notified(), 2);
    queue.push(completion(3, Silent));
    assert_eq!((queue.notified(), queue.visible()), (3, 3));
    queue.honour(true);
    queue.push(completion(4, Silent));
    assert_eq!((queue.notified(), queue.visible()), (3, 3));
}

#[test]
fn push__silent_is_deferred() {
    let mut queue = queue(&[Silent, Silent]);
    assert_eq!((queue.notified(), queue.visible()), (0, 0));
    assert!(queue.has_unnotified());
    assert!(taken(&mut queue).is_empty());
}

#[test]
fn push__polled_is_shown_with_what_came_before() {
    let mut queue = queue(&[Silent, Polled, Silent]);
    assert_eq!((queue.notified(), queue.visible()), (0, 2));
    assert_eq!(taken(&mut queue), [1, 2]);
}

#[test]
fn push__interrupt_notifies_all_before_it() {
    let mut queue = queue(&[Silent, Polled, Interrupt, Polled, Silent]);
    assert_eq!((queue.notified(), queue.visible()), (3, 4));
    assert_eq!(queue.pop().map(|it| it.id), Some(1));
    assert_eq!(
        (queue.notified(), queue.visible()),
        (2, 3),
        "until it is taken"
    );
    assert_eq!(taken(&mut queue), [2, 3, 4]);
    assert_eq!((queue.notified(), queue.visible()), (0, 0));
}

#[test]
fn push__failure_wakes() {
    let mut queue = queue(&[Silent]);
    queue.push(Completion {
        result: Err(TransferError::Cancelled),
        ..completion(2, Silent)
    });
    assert_eq!(queue.notified(), 2);
}

#[test]
fn end__notifies_all_and_later_ones() {
    let mut queue = queue(&[Silent, Polled]);
    queue.end();
    queue.push(completion(3, Silent));
    assert_eq!((queue.notified(), queue.visible()), (3, 3));
    assert_eq!(taken(&mut queue), [1, 2, 3]);
}

#[test]
fn notify__by_number_includes_earlier_ones() {
    let mut queue = queue(&[Silent, Silent, Silent]);
    assert!(!queue.notify(4), "not here");
    assert!(queue.notify(2));
    assert_eq!((queue.notified(), queue.visible()), (2, 2));
    assert!(queue.notify(1), "again is nothing");
    assert_eq!(taken(&mut queue), [1, 2]);
}

#[test]
fn take__out_of_turn_leaves_the_others_as_they_are() {
    let mut queue = queue(&[Interrupt, Polled, Silent, Silent]);
    assert_eq!(queue.take(4).map(|it| it.id), Some(4));
    assert_eq!((queue.notified(), queue.visible()), (1, 2));
    assert_eq!(queue.take(2).map(|it| it.id), Some(2));
    assert_eq!((queue.notified(), queue.visible()), (1, 1));
    assert_eq!(queue.take(1).map(|it| it.id), Some(1));
    assert_eq!((queue.notified(), queue.visible()), (0, 0));
    assert!(queue.take(1).is_none());
    assert!(queue.has_unnotified());
}
