//! Tests when a peer counts as stuck: by a late transfer, after the time that the least rate allows for its load.
#![allow(non_snake_case)]

use std::thread::sleep;

use super::super::memory::Share;
use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_millis(20);

fn peer() -> (Peer, Share) {
    let initiator = Initiator::named(b"initiator").unwrap();
    let address = "127.0.0.1:1".parse().unwrap();
    let peer = Peer::new(address, initiator, Access::default());
    (peer, Share::default())
}

fn flight(share: &Share, bytes: u64) -> Flight {
    let _loan = share.lend(bytes as usize);
    Flight::Put { _loan }
}

/// As of an initiator that never answers a get, and reads a block now and then.
#[test]
fn Peer__is_stuck_with_what_is_late_whatever_else_moves() {
    let (mut peer, share) = peer();
    let late = peer.depart(flight(&share, 1));
    sleep(MOMENT);
    let other = peer.depart(flight(&share, 1));
    assert!(!peer.is_stuck(1, HOUR));
    // The first of both is late by now, though something has just moved.
    assert!(peer.arrive(other).is_some());
    peer.moved = Instant::now() + HOUR;
    assert!(peer.is_stuck(1, MOMENT / 2));
    assert!(peer.arrive(late).is_some());
    assert!(!peer.is_stuck(1, MOMENT / 2), "nothing is to move");
}

/// The time that all takes which was in flight before is had by what comes behind it.
#[test]
fn Peer__is_not_stuck_while_what_it_has_may_move_at_the_least_rate() {
    let (mut peer, share) = peer();
    peer.moved = Instant::now() + HOUR;
    let before = peer.depart(flight(&share, 3600 * LEAST_RATE));
    peer.depart(flight(&share, 1));
    assert!(peer.arrive(before).is_some());
    peer.moved = Instant::now() + HOUR;
    sleep(MOMENT);
    assert!(!peer.is_stuck(0, Duration::ZERO));
    // A completed transfer is no longer load.
    peer.depart(flight(&share, 1));
    peer.moved = Instant::now() + HOUR;
    sleep(MOMENT);
    assert!(peer.is_stuck(0, Duration::ZERO));
}
