//! Tests that a ring rejects hostile indices and retires records.
#![allow(non_snake_case)]
use super::ring::*;
use crate::unavailable::RingFault;
use std::sync::atomic::Ordering;

const CAPACITY: u64 = 64;

#[test]
fn available__a_hostile_index_is_named_and_never_followed() {
    for (tail, published) in [(0, 72), (0, 7), (16, 8), (16, 0), (8, u64::MAX - 7)] {
        let way = Way::default();
        let mut consumer = Consumer {
            tail,
            published: tail,
        };
        way.produced.published.store(published, Ordering::Relaxed);
        let found = consumer.available(&way, CAPACITY);
        assert_eq!(found, Err(RingFault::Index), "{tail} {published}");
    }
}

#[test]
fn has_room__a_hostile_index_is_named_and_never_followed() {
    for taken in [8, 15, 72, u64::MAX] {
        let way = Way::default();
        let mut producer = Producer {
            head: 64,
            taken: 16,
        };
        way.consumed.taken.store(taken, Ordering::Relaxed);
        let found = producer.has_room(&way, CAPACITY, 24);
        assert_eq!(found, Err(RingFault::Index), "{taken}");
    }
}

#[test]
fn has_room__as_much_as_was_taken() {
    let way = Way::default();
    let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
    for _ in 0..100 {
        assert_eq!(producer.has_room(&way, CAPACITY, 64), Ok(true));
        producer.publish(&way, 40);
        producer.publish(&way, 24);
        assert_eq!(producer.has_room(&way, CAPACITY, 8), Ok(false), "full");
        assert_eq!(consumer.available(&way, CAPACITY), Ok(64));
        consumer.take(40);
        consumer.take(24);
        assert_eq!(
            producer.has_room(&way, CAPACITY, 8),
            Ok(false),
            "not released"
        );
        consumer.release(&way);
    }
}

#[test]
fn retire__what_was_written_before_and_nothing_after() {
    let way = Way::default();
    let (mut producer, consumer) = (Producer::default(), Consumer::default());
    producer.publish(&way, 16);
    assert!(!consumer.is_retired(&way, 0));
    producer.retire(&way);
    assert!(consumer.is_retired(&way, 0) && consumer.is_retired(&way, 8));
    assert!(!consumer.is_retired(&way, 16));
}

/// The bytes that move between the ends for a message of 8 bytes, besides the word that announces it.
#[test]
fn record__of_a_message_of_8_bytes_is_a_cache_line() {
    let len = zerolane_wire::HEADER_LEN + 8;
    assert_eq!(crate::shm::link::record_len(len), 64);
}
