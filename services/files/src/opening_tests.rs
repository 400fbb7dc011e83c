//! Tests that slow but steady requests arrive.

#![allow(non_snake_case)]

use super::*;
use crate::pump::tests::{connected, connected_with};
use std::thread;
use zerolane::Options;
use zerolane::options::LaneChoice;

const PATIENCE: Duration = Duration::from_millis(500);

/// Whether a message that takes longer than the patience of both ends arrives.
fn comes_slowly() -> bool {
    const BYTES: usize = 128 << 10;
    let slow = Options::default().with(|it| {
        it.rate.max = Some(64 << 10);
        // Shared memory has no rate.
        it.lane.choice = LaneChoice::Udp;
    });
    let (mut sender, mut receiver) = connected_with(slow, |address| address);
    let content: Vec<u8> = (0..BYTES).map(|i| (i / 251 + i * 7) as u8).collect();
    let plan = content.clone();
    let sending = thread::spawn(move || {
        let sent = send(&mut sender, plan, &Stop::default(), PATIENCE);
        sent.map(|()| sender)
    });
    let received = receive(&mut receiver, BYTES, &Stop::default(), PATIENCE, |bytes| {
        Ok(bytes.to_vec())
    });
    let sent = sending.join().unwrap();
    let came = received.map(|it| assert!(it == content));
    came.is_ok() && sent.is_ok()
}

#[test]
fn receive__of_what_comes_slowly_takes_longer_than_its_patience() {
    // An end that the machine suspends for that long may lose its patience.
    assert!((0..5).any(|_| comes_slowly()));
}

#[test]
fn receive__of_nothing_ends_with_its_patience() {
    let (_silent, mut receiver) = connected(|address| address);
    let received = receive(&mut receiver, 1, &Stop::default(), PATIENCE, |_| Ok(()));
    assert!(matches!(received, Err(Error::Stalled)), "{received:?}");
}
