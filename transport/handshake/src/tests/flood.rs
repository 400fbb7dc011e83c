//! Tests that floods of unauthenticated peers, genuine and forged, stay within the limits.

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
        // Another address and another exchange each time; a forger computes no keys.
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

/// A gate that is closed without a cookie opens with one.
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
    let most = limits::MAX_PENDING_OF_ORIGIN;
    for n in 0..most as u32 + 10 {
        let from = SocketAddr::from(([10, 9, 9, 9], 5000 + n as u16));
        let mut one = Initiator::new(credentials(1), [n as u8; 32], (1, 9), n, n).unwrap();
        if let Reply::Send(reply) = b.take(Instant::ZERO, from, one.message().bytes(), &mut draw)
            && matches!(one.take(reply.bytes(), &request()), Taken::SendAgain)
        {
            b.take(Instant::ZERO, from, one.message().bytes(), &mut draw);
        }
    }
    assert_eq!(b.pending(), most);
    let counters = b.counters();
    let proven = most + 10 - limits::COOKIE_FROM_PENDING_OF_ORIGIN;
    assert_eq!(counters.retried, proven as u64);
    assert_eq!(counters.limited(GateLimit::PendingOfOrigin), 10);
    assert_eq!(counters.limited_total(), 10);
}

/// All programs of a host start at once, and the gate reads what all say before any of them runs again.
#[test]
fn take__a_hundred_of_one_host_get_in_without_a_repetition() {
    let mut b = gate(credentials(2));
    let mut draw = draw();
    let of = |n: u32| {
        let ephemeral = *blake3::hash(&n.to_le_bytes()).as_bytes();
        let from = SocketAddr::from(([10, 9, 9, 9], 5000 + n as u16));
        let one = Initiator::new(credentials(1), ephemeral, (1, 9), n, n).unwrap();
        (from, one)
    };
    let mut all: Vec<_> = (0..100).map(of).collect();
    let mut admitted = 0;
    // A Hello, one with a cookie, the last message.
    for _ in 0..3 {
        let mut take = |(from, one): &(SocketAddr, Initiator)| {
            b.take(Instant::ZERO, *from, one.message().bytes(), &mut draw)
        };
        let replies: Vec<_> = all.iter().map(&mut take).collect();
        for ((_, one), reply) in all.iter_mut().zip(&replies) {
            match reply {
                Reply::Send(reply) => drop(one.take(reply.bytes(), &request())),
                Reply::Admit(_) => admitted += 1,
                Reply::Nothing => {}
            }
        }
    }
    assert_eq!(admitted, 100, "{:?}", b.counters());
}

/// One whole exchange of `from`, with a cookie if required. Returns whether it was admitted.
fn exchange(gate: &mut Gate, draw: &mut dyn FnMut() -> [u8; 32], from: SocketAddr, n: u32) -> bool {
    let ephemeral = *blake3::hash(&n.to_le_bytes()).as_bytes();
    let mut one = Initiator::new(credentials(1), ephemeral, (1, 9), n, n).unwrap();
    for _ in 0..3 {
        match gate.take(Instant::ZERO, from, one.message().bytes(), draw) {
            Reply::Send(reply) => drop(one.take(reply.bytes(), &request())),
            Reply::Admit(_) => return true,
            Reply::Nothing => return false,
        }
    }
    false
}

#[test]
fn take__one_origin_in_a_hurry_leaves_answers_for_others() {
    let (mut b, mut draw) = (gate(credentials(2)), draw());
    let of_network = |n: u32| {
        let ip = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, (n >> 16) as u16, n as u16);
        SocketAddr::from((ip, 4000))
    };
    let most = limits::MAX_ANSWERS_OF_ORIGIN_PER_SECOND;
    // From another address of its network each time, each of which it proves.
    let admitted = (0..most + 10).filter(|&n| exchange(&mut b, &mut draw, of_network(n), n));
    assert_eq!(admitted.count(), most as usize);
    assert_eq!(b.counters().limited(GateLimit::AnswersOfOrigin), 10);
    assert!(exchange(&mut b, &mut draw, address(1), 1 << 20), "another");
    // And all together.
    let others = (0..limits::MAX_ANSWERS_PER_SECOND)
        .filter(|&n| exchange(&mut b, &mut draw, address(2 + n), (2 << 20) + n))
        .count();
    let all = limits::MAX_ANSWERS_PER_SECOND - most - 1;
    assert_eq!(others, all as usize);
    let left_out = limits::MAX_ANSWERS_PER_SECOND - all;
    assert_eq!(
        b.counters().limited(GateLimit::Answers),
        u64::from(left_out)
    );
    assert_eq!(b.pending(), 0);
}

#[test]
fn take__the_oldest_exchange_makes_room() {
    let (mut b, mut draw) = (gate(credentials(2)), draw());
    let most = limits::MAX_PENDING_HANDSHAKES as u32;
    for n in 0..most + 5 {
        let mut one = Initiator::new(credentials(1), [n as u8; 32], (1, 9), n, n).unwrap();
        for _ in 0..2 {
            // Fetches a cookie if required, and stops there.
            let reply = sent(b.take(Instant::ZERO, address(n), one.message().bytes(), &mut draw));
            if step(&reply) != Step::Retry {
                break;
            }
            one.take(reply.bytes(), &request());
        }
    }
    assert_eq!(b.pending(), limits::MAX_PENDING_HANDSHAKES);
    assert_eq!(b.counters().limited(GateLimit::Pending), 5);
}

#[test]
fn origin__is_an_address_or_a_network() {
    let of = |text: &str| Origin::of(text.parse().unwrap());
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::"));
    assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
}

#[test]
fn take__an_exchange_not_finished_is_forgotten() {
    let mut b = gate(credentials(2));
    let a = initiator(credentials(1));
    knock(&mut b, &a);
    assert_eq!(b.pending(), 1);
    let late = Instant::ZERO + limits::HANDSHAKE_LIFETIME + Duration::from_secs(1);
    b.take(late, address(2), b"", &mut draw());
    assert_eq!(b.pending(), 0);
}
