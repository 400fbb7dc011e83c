//! Tests that held payload is stored in any order and freed completely.
#![allow(non_snake_case)]
use super::*;

#[test]
fn store__pieces_in_any_order_and_nothing_outside() {
    let mut holds = Holds::default();
    let at = |start| Hold {
        number: 7,
        length: 8,
        start,
    };
    holds.store(at(4), b"efgh");
    holds.store(at(0), b"abcd");
    assert_eq!(holds.bytes(7, 2, 4), Some(&b"cdef"[..]));
    // The core gives no such order; if it did, nothing would be written.
    holds.store(at(6), b"xyz");
    holds.store(at(9), b"x");
    assert_eq!(holds.bytes(7, 0, 8), Some(&b"abcdefgh"[..]));
    assert_eq!(holds.bytes(7, 4, 5), None);
    assert_eq!(holds.bytes(8, 0, 0), None);
}

#[test]
fn free__leaves_no_memory_behind() {
    let mut holds = Holds::default();
    for number in 0..100 {
        let hold = Hold {
            number,
            length: 1,
            start: 0,
        };
        holds.store(hold, b"a");
    }
    (0..100).for_each(|number| holds.free(number));
    assert_eq!(holds.0.capacity(), 0);
}
