//! Tests that altered, forged, repeated and late messages gain an attacker nothing.

use super::*;
use zerolane_wire::HEADER_LEN;

/// `datagram` with one bit of byte `at` flipped.
fn flipped(datagram: &HandshakeDatagram, at: usize) -> Vec<u8> {
    let mut bytes = datagram.bytes().to_vec();
    bytes[at] ^= 1 << (at % 8);
    bytes
}

#[test]
fn answer__changed_anywhere_is_ignored_and_the_right_one_still_counts() {
    let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
    let answer = sent(knock(&mut b, &a));
    for at in HEADER_LEN..answer.bytes().len() {
        let taken = a.take(&flipped(&answer, at), &request());
        assert!(matches!(taken, Taken::Nothing), "byte {at}: {taken:?}");
    }
    let taken = a.take(answer.bytes(), &request());
    assert!(matches!(taken, Taken::Done(_)));
    assert!(matches!(knock(&mut b, &a), Reply::Admit(_)));
}

#[test]
fn finish__changed_anywhere_is_ignored_and_the_right_one_still_counts() {
    let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
    let answer = sent(knock(&mut b, &a));
    a.take(answer.bytes(), &request());
    let finish = a.message();
    for at in HEADER_LEN..finish.bytes().len() {
        let reply = b.take(
            Instant::ZERO,
            address(1),
            &flipped(&finish, at),
            &mut draw(),
        );
        assert!(matches!(reply, Reply::Nothing), "byte {at}");
    }
    assert!(matches!(knock(&mut b, &a), Reply::Admit(_)));
}

/// Downgrade: an attacker that changes the offer, or its destination, gets no session.
#[test]
fn hello__changed_on_the_way_is_found_out_by_both() {
    for at in 0..initiator(credentials(1)).message().bytes().len() {
        let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
        let changed = flipped(&a.message(), at);
        let reply = b.take(Instant::ZERO, address(1), &changed, &mut draw());
        let Reply::Send(answer) = reply else {
            continue;
        };
        // The attacker reverts its change.
        let mut back = answer.bytes().to_vec();
        let right = HandshakeMessage::parse(a.message().bytes()).unwrap().s_key;
        back[8..12].copy_from_slice(&right.to_be_bytes());
        back[24..28].copy_from_slice(&42u32.to_be_bytes());
        match a.take(&back, &request()) {
            Taken::Nothing | Taken::Refused(_) => {}
            // Fields that are ignored, and an unrequested cookie.
            Taken::Done(_) => assert!(is_unread(at), "byte {at}"),
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

fn is_unread(at: usize) -> bool {
    let cookie = HEADER_LEN..HEADER_LEN + 16;
    let unused = [0, 1, 8, 9, 10, 11, 12, 13, 14, 15];
    cookie.contains(&at) || unused.contains(&at) || (16..24).contains(&at) || (28..36).contains(&at)
}

#[test]
fn answer__for_another_exchange_is_ignored() {
    let (a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
    let answer = sent(knock(&mut b, &a));
    for (key, sync) in [(0xabcd, 43), (0xabce, 42)] {
        let other = Initiator::new(credentials(1), [77; 32], (1, 9), key, sync);
        let taken = other.unwrap().take(answer.bytes(), &request());
        assert!(matches!(taken, Taken::Nothing));
    }
}

#[test]
fn take__repetitions_change_nothing() {
    let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
    let first = sent(knock(&mut b, &a));
    assert_eq!(sent(knock(&mut b, &a)), first, "the same answer");
    assert_eq!((b.pending(), b.counters().answered), (1, 1));
    assert!(matches!(a.take(first.bytes(), &request()), Taken::Done(_)));
    let finish = a.message();
    assert!(matches!(a.take(first.bytes(), &request()), Taken::Nothing));
    assert_eq!(a.message(), finish);
    assert!(matches!(knock(&mut b, &a), Reply::Admit(_)));
    assert!(
        matches!(knock(&mut b, &a), Reply::Nothing),
        "one connection"
    );
}

#[test]
fn finish__from_another_address_is_ignored() {
    let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
    let answer = sent(knock(&mut b, &a));
    a.take(answer.bytes(), &request());
    let finish = a.message();
    let reply = b.take(Instant::ZERO, address(2), finish.bytes(), &mut draw());
    assert!(matches!(reply, Reply::Nothing));
}

#[test]
fn finish__with_anything_but_a_request_is_not_admitted() {
    let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
    let answer = sent(knock(&mut b, &a));
    a.take(answer.bytes(), b"not a Request_Connection");
    assert!(matches!(knock(&mut b, &a), Reply::Nothing));
    assert_eq!(b.counters().admitted, 0);
}

#[test]
fn take__cut_short_or_garbage_is_counted_and_not_answered() {
    let a = initiator(credentials(1));
    let whole = a.message();
    let mut b = gate(credentials(2));
    for len in 0..whole.bytes().len() {
        let reply = b.take(
            Instant::ZERO,
            address(1),
            &whole.bytes()[..len],
            &mut draw(),
        );
        assert!(matches!(reply, Reply::Nothing), "{len} bytes");
    }
    assert_eq!(b.counters().malformed, whole.bytes().len() as u64);
    assert_eq!(b.pending(), 0);
}
