//! Tests that a duplicate train does not call off an opening in progress.
#![allow(non_snake_case)]
use super::*;
use crate::memory::Region;
use crate::memory::registry::EntryKind;
use crate::options::Options;
use crate::seal::{Opener, Sealer};
use zeroize::Zeroizing;
use zerolane_handshake::Cipher;

const SECRET: [u8; 32] = [7; 32];

/// The network may duplicate a train, and anybody on the path may forge one.
#[test]
fn hand_out__of_a_train_that_came_before_calls_nothing_off() {
    let region = Region::anonymous(4096).expect("memory");
    let (start, len) = region.raw();
    let mut memory = Registry::default();
    let kind = EntryKind::Posted {
        writable: true,
        file: false,
    };
    // SAFETY: the region outlives the entry, and nothing accesses its bytes.
    let place = unsafe { memory.open(start, len, kind) };
    let key = || Zeroizing::new(SECRET);
    let mut sealer = Sealer::new(Cipher::Aegis128X2, key()).expect("a key");
    let mut unsealer = Unsealer::new(&Options::default());
    unsealer.protect(Opener::new(Cipher::Aegis128X2, key()).expect("a key"));
    let mut sealed = || sealer.seal(&[3; HEADER_LEN], &mut [1; 64]).expect("sealed");
    let (first, second) = (sealed(), sealed());
    let handed = hand_out(&mut unsealer, &memory, place, &first);
    let (opening, _) = handed.expect("new").expect("room");
    let (access, writing) = memory.delegations.write(place);
    for trailer in [&first, &second] {
        let again = hand_out(&mut unsealer, &memory, place, trailer);
        assert!(again.expect("new").is_none(), "it waits for the first");
    }
    assert!(access.begin(), "it goes on");
    drop(access);
    assert!(memory.delegations.take_written(writing));
    let opener = unsealer.opener().expect("a key");
    opener.opened(opening.number(), true).expect("the peer's");
    let again = hand_out(&mut unsealer, &memory, place, &first);
    assert_eq!(again.map(|_| ()), Err(DropReason::Replayed));
}
