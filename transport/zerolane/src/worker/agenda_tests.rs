#![allow(non_snake_case)]
use super::*;
use slotmap::SlotMap;
use std::time::Duration;

/// An agenda with `count` slots, which are due for nothing.
fn agenda(count: usize) -> (SlotMap<Key, ()>, Vec<Key>, Agenda) {
    let mut slots: SlotMap<Key, ()> = SlotMap::with_key();
    let keys: Vec<Key> = (0..count).map(|_| slots.insert(())).collect();
    let mut agenda = Agenda::default();
    for &key in &keys {
        agenda.enter(key);
        assert_eq!(agenda.next(Due::Turn), Some(key));
        assert!(agenda.take_input(key));
    }
    (slots, keys, agenda)
}

#[test]
fn add__queues_each_once_in_order_for_each_thing_apart() {
    let (_, keys, mut agenda) = agenda(2);
    for key in [keys[1], keys[0], keys[1]] {
        agenda.add(key, Due::Turn);
    }
    agenda.add(keys[1], Due::Flush);
    assert_eq!(agenda.len(Due::Turn), 2);
    assert_eq!(agenda.next(Due::Turn), Some(keys[1]));
    assert!(!agenda.has(keys[1], Due::Turn) && agenda.has(keys[1], Due::Flush));
    // Due again: after those that wait longer.
    agenda.add(keys[1], Due::Turn);
    assert_eq!(agenda.next(Due::Turn), Some(keys[0]));
    assert_eq!(agenda.next(Due::Turn), Some(keys[1]));
    assert_eq!(agenda.next(Due::Turn), None);
    assert_eq!(agenda.next(Due::Flush), Some(keys[1]));
}

#[test]
fn add_input__is_told_to_one_turn() {
    let (_, keys, mut agenda) = agenda(1);
    agenda.add(keys[0], Due::Turn);
    assert!(!agenda.take_input(keys[0]));
    agenda.add_input(keys[0]);
    assert_eq!(agenda.len(Due::Turn), 1);
    assert!(agenda.take_input(keys[0]));
    assert!(!agenda.take_input(keys[0]));
}

#[test]
fn leave__what_took_the_slot_inherits_nothing() {
    let (mut slots, keys, mut agenda) = agenda(1);
    let now = Instant::now();
    agenda.add_input(keys[0]);
    agenda.set_timer(keys[0], now);
    slots.remove(keys[0]);
    agenda.leave(keys[0]);
    agenda.add(keys[0], Due::Turn);
    let next = slots.insert(());
    agenda.enter(next);
    assert!(agenda.take_input(next));
    agenda.add_input(keys[0]);
    assert!(!agenda.take_input(next));
    assert_eq!(agenda.next(Due::Turn), Some(next));
    assert_eq!(agenda.next(Due::Turn), None);
    assert_eq!(agenda.expired(now), None);
}

#[test]
fn set_timer__later_than_before_adds_nothing() {
    let (_, keys, mut agenda) = agenda(1);
    let (key, start) = (keys[0], Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    agenda.set_timer(key, at(20));
    for later in 21..1000 {
        agenda.set_timer(key, at(later));
    }
    assert_eq!(agenda.timers.len(), 1);
    agenda.set_timer(key, at(5));
    assert_eq!(agenda.next_timer(), Some(at(5)));
    assert_eq!(agenda.expired(at(4)), None);
    assert_eq!(agenda.expired(at(30)), Some(key));
    // The one at 20 is outdated.
    assert_eq!(agenda.expired(at(30)), None);
    agenda.set_timer(key, at(40));
    assert_eq!(agenda.expired(at(50)), Some(key));
}
