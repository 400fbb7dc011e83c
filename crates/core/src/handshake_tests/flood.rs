//! Many strangers, real ones and made-up ones.

use super::*;
use crate::limits;
use std::time::Duration;

fn hello(n: u32) -> HandshakeDatagram {
    let mut ephemeral = [1; 32];
    ephemeral[..4].copy_from_slice(&n.to_le_bytes());
    let one = Initiator::new(credentials(1), ephemeral, (1, 9), n, n);
    one.unwrap().message()
}

#[test]
fn take__no_answer_is_longer_than_three_times_the_question() {
    let mut b = gate(credentials(2));
    let mut draw = draw();
    for n in 0..100 {
        let question = hello(n);
        let answer = sent(b.take(Instant::ZERO, address(n), question.bytes(), &mut draw));
        assert!(answer.bytes().len() <= 3 * question.bytes().len());
    }
    assert!(b.counters().answered > 0 && b.counters().retried > 0);
}

#[test]
fn take__a_spoofed_flood_costs_neither_memory_nor_key_agreements() {
    let mut b = gate(credentials(2));
    let mut draw = draw();
    let question = hello(0);
    for n in 0..20_000u32 {
        // Another address and another exchange each time; who forges does not compute keys.
        let mut forged = question.bytes().to_vec();
        forged[36..40].copy_from_slice(&n.to_be_bytes());
        let now = Instant::ZERO + Duration::from_micros(50) * n;
        b.take(now, address(n), &forged, &mut draw);
        assert!(b.pending() <= limits::COOKIE_FROM_PENDING);
    }
    let counters = b.counters();
    assert!(counters.answered <= limits::COOKIE_FROM_PENDING as u64);
    assert_eq!(counters.answered + counters.retried, 20_000);
}

/// Opens with a cookie what is closed without.
#[test]
fn take__under_load_a_real_client_gets_in_by_a_cookie() {
    let mut b = gate(credentials(2));
    let mut draw = draw();
    for n in 0..500 {
        b.take(Instant::ZERO, address(n), hello(n).bytes(), &mut draw);
    }
    let mut a = initiator(credentials(1));
    let from = address(10_000_000);
    let mut ask = |a: &Initiator| b.take(Instant::ZERO, from, a.message().bytes(), &mut draw);
    let retry = sent(ask(&a));
    assert_eq!(step(&retry), Step::Retry);
    assert!(matches!(
        a.take(retry.bytes(), &request()),
        Taken::SendAgain
    ));
    assert!(matches!(a.take(retry.bytes(), &request()), Taken::Nothing));
    let answer = sent(ask(&a));
    assert!(matches!(a.take(answer.bytes(), &request()), Taken::Done(_)));
    assert!(matches!(ask(&a), Reply::Admit(_)));
}

#[test]
fn cookie__is_good_for_one_address_and_for_a_while() {
    let mut b = gate(credentials(2));
    let mut draw = draw();
    for n in 0..500 {
        b.take(Instant::ZERO, address(n), hello(n).bytes(), &mut draw);
    }
    let mut a = initiator(credentials(1));
    let retry = sent(b.take(
        Instant::ZERO,
        address(7_000_000),
        a.message().bytes(),
        &mut draw,
    ));
    a.take(retry.bytes(), &request());
    let with_cookie = a.message();
    let elsewhere = sent(b.take(
        Instant::ZERO,
        address(7_000_001),
        with_cookie.bytes(),
        &mut draw,
    ));
    assert_eq!(step(&elsewhere), Step::Retry, "another address");
    let late = Instant::ZERO + limits::COOKIE_LIFETIME * 3;
    for n in 1_000..1_500 {
        b.take(late, address(n), hello(n).bytes(), &mut draw);
    }
    let late = sent(b.take(late, address(7_000_000), with_cookie.bytes(), &mut draw));
    assert_eq!(step(&late), Step::Retry, "out of date");
}

#[test]
fn take__one_address_gets_no_more_than_its_share() {
    let mut b = gate(credentials(2));
    let mut draw = draw();
    for n in 0..100 {
        let from = SocketAddr::from(([10, 9, 9, 9], 5000 + n as u16));
        b.take(Instant::ZERO, from, hello(n).bytes(), &mut draw);
    }
    assert_eq!(b.pending(), limits::MAX_PENDING_PER_ADDRESS);
    assert!(b.counters().limited > 0);
}

#[test]
fn take__an_exchange_nobody_finishes_is_forgotten() {
    let mut b = gate(credentials(2));
    let a = initiator(credentials(1));
    knock(&mut b, &a);
    assert_eq!(b.pending(), 1);
    let late = Instant::ZERO + limits::HANDSHAKE_LIFETIME + Duration::from_secs(1);
    b.take(late, address(2), b"", &mut draw());
    assert_eq!(b.pending(), 0);
}
