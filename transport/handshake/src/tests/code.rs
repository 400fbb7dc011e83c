//! Tests that a client with the one-time code gets in once, and that a guesser has few tries and learns nothing else.

use super::*;
use crate::limits::{CODE_GUESSES, HANDSHAKE_LIFETIME};
use std::time::Duration;
use zerolane_wire::Reason;

const RIGHT: &str = "1234-5678";
const WRONG: &str = "1234-5679";

fn with_code(n: u8, code: &str) -> Credentials {
    Credentials {
        pre_shared: Some(code.parse::<Code>().unwrap().into()),
        ..credentials(n)
    }
}

/// The n-th client that tries.
fn guesser(n: u8, code: &str) -> Initiator {
    let credentials = with_code(n, code);
    Initiator::new(credentials, [n; 32], (1, 9), 0xabcd + u32::from(n), 42).unwrap()
}

/// A time at which nothing of the present is remembered.
fn later() -> Instant {
    Instant::ZERO + HANDSHAKE_LIFETIME + Duration::from_secs(1)
}

/// Runs the exchange up to the Initiator's last message.
fn answered(gate: &mut Gate, initiator: &mut Initiator) {
    let answer = sent(knock(gate, initiator));
    let taken = initiator.take(answer.bytes(), &request());
    assert!(
        matches!(taken, Taken::Done(_)),
        "an Answer tells nothing of the code: {taken:?}"
    );
}

/// Sends the last message, which is a wrong guess. Returns the Initiator's reaction to the reply.
fn guess(gate: &mut Gate, initiator: &mut Initiator) -> Taken {
    let refusal = sent(knock(gate, initiator));
    assert_eq!(step(&refusal), Step::Refusal);
    initiator.take(refusal.bytes(), &request())
}

#[test]
fn code__lets_in_once() {
    let mut gate = gate(with_code(100, RIGHT));
    let (session, admitted) = run(&mut guesser(1, "12345678"), &mut gate);
    assert_eq!(session.send, admitted.session.receive);
    assert_eq!(session.receive, admitted.session.send);
    assert!(gate.is_spent());
    let mut late = guesser(2, RIGHT);
    let refusal = sent(knock(&mut gate, &late));
    let taken = late.take(refusal.bytes(), &request());
    assert!(matches!(taken, Taken::Refused(Reason::Denied)), "{taken:?}");
    assert_eq!(gate.counters().admitted, 1);
}

#[test]
fn code__a_wrong_one_is_told_and_the_right_one_still_gets_in() {
    let mut gate = gate(with_code(100, RIGHT));
    let mut wrong = guesser(1, WRONG);
    answered(&mut gate, &mut wrong);
    let taken = guess(&mut gate, &mut wrong);
    assert!(matches!(taken, Taken::Refused(Reason::Denied)), "{taken:?}");
    // A repetition, in case the refusal was lost, is no second guess: the exchange is over.
    assert_eq!(step(&sent(knock(&mut gate, &wrong))), Step::Refusal);
    assert_eq!(gate.counters().wrong_codes, 1);
    assert!(!gate.is_spent());
    run(&mut guesser(2, RIGHT), &mut gate);
    assert_eq!(gate.counters().admitted, 1);
}

#[test]
fn code__after_a_few_guesses_is_void() {
    let mut gate = gate(with_code(100, RIGHT));
    for n in 0..CODE_GUESSES as u8 {
        let mut wrong = guesser(n + 1, WRONG);
        answered(&mut gate, &mut wrong);
        guess(&mut gate, &mut wrong);
    }
    assert!(gate.is_spent());
    assert_eq!(gate.counters().wrong_codes, u64::from(CODE_GUESSES));
    let right = guesser(50, RIGHT);
    assert_eq!(step(&sent(knock(&mut gate, &right))), Step::Refusal);
    assert_eq!(gate.counters().admitted, 0);
}

#[test]
fn code__exchanges_begun_together_are_no_more_guesses() {
    let mut gate = gate(with_code(100, RIGHT));
    let mut many: Vec<Initiator> = (1..=8).map(|n| guesser(n, WRONG)).collect();
    let mut right = guesser(9, RIGHT);
    for one in &mut many {
        answered(&mut gate, one);
    }
    answered(&mut gate, &mut right);
    for one in &mut many {
        knock(&mut gate, one);
    }
    assert_eq!(gate.counters().wrong_codes, u64::from(CODE_GUESSES));
    assert_eq!(step(&sent(knock(&mut gate, &right))), Step::Refusal);
    assert_eq!(gate.counters().admitted, 0);
    gate.take(later(), address(2), b"", &mut draw());
    assert_eq!(gate.pending(), 0);
}

#[test]
fn code__garbage_is_no_guess_and_ends_nothing() {
    let mut gate = gate(with_code(100, RIGHT));
    let mut right = guesser(1, RIGHT);
    answered(&mut gate, &mut right);
    let finish = right.message();
    // Up to the end of the encrypted key: only the Hello's sender can get beyond it.
    for at in 40..40 + 48 {
        let mut forged = finish.bytes().to_vec();
        forged[at] ^= 1;
        let reply = gate.take(Instant::ZERO, address(1), &forged, &mut draw());
        assert!(matches!(reply, Reply::Nothing), "byte {at}: {reply:?}");
    }
    assert_eq!(gate.counters().wrong_codes, 0);
    assert!(matches!(knock(&mut gate, &right), Reply::Admit(_)));
}

#[test]
fn code__a_relay_with_another_code_gets_in_nowhere() {
    let mut server = gate(with_code(100, RIGHT));
    let mut client = guesser(1, RIGHT);
    // The attacker is the server to the client, and a client to the server.
    let mut as_server = gate(with_code(200, WRONG));
    let mut as_client = guesser(2, WRONG);
    answered(&mut as_server, &mut client);
    answered(&mut server, &mut as_client);
    // Neither the client's last message nor the attacker's proves the code to the other side.
    let reply = server.take(
        Instant::ZERO,
        address(1),
        client.message().bytes(),
        &mut draw(),
    );
    assert!(matches!(reply, Reply::Nothing), "{reply:?}");
    assert!(matches!(knock(&mut as_server, &client), Reply::Send(_)));
    guess(&mut server, &mut as_client);
    assert_eq!(server.counters().admitted, 0);
    assert_eq!(as_server.counters().admitted, 0);
    assert_eq!(
        server.counters().wrong_codes,
        1,
        "one guess, and it is gone"
    );
}

#[test]
fn code__on_one_side_only_or_a_key_in_its_place_is_refused() {
    let with_key = || Credentials {
        pre_shared: Some([5; 32].into()),
        ..credentials(1)
    };
    for (a, b) in [
        (with_code(1, RIGHT), credentials(2)),
        (credentials(1), with_code(2, RIGHT)),
        (with_code(1, RIGHT), with_key()),
        (with_key(), with_code(2, RIGHT)),
    ] {
        let (a, mut b) = (initiator(a), gate(b));
        assert_eq!(step(&sent(knock(&mut b, &a))), Step::Refusal);
        assert_eq!(b.pending(), 0);
    }
}

/// A Hello with `share` in place of the right one.
fn hello_with(share: &[u8]) -> HandshakeDatagram {
    let right = guesser(1, RIGHT).message();
    let frame = HandshakeMessage {
        body: &[],
        ..HandshakeMessage::parse(right.bytes()).unwrap()
    };
    let credentials = with_code(1, RIGHT);
    let started = noise::begin(noise::Role::Initiator, &credentials, &frame, [1; 32]);
    let payload = [&[VERSION, VERSION, 3, 0, 0, 0, 0, 0], share].concat();
    let mut body = [0; 256];
    let len = started.unwrap().write_message(&payload, &mut body[16..]);
    HandshakeDatagram::new(&HandshakeMessage {
        body: &body[..16 + len.unwrap()],
        ..frame
    })
}

#[test]
fn code__a_share_that_is_none_is_no_exchange() {
    let mut gate = gate(with_code(100, RIGHT));
    let (_, right) =
        super::super::code::begin(noise::Role::Initiator, &RIGHT.parse().unwrap(), &[1; 32]);
    let mut other_side = right;
    other_side[0] = b'B';
    let mut no_point = right;
    no_point[1..].fill(2);
    for wrong in [&other_side[..], &no_point, &right[..32], &[]] {
        let reply = gate.take(
            Instant::ZERO,
            address(1),
            hello_with(wrong).bytes(),
            &mut draw(),
        );
        assert!(matches!(reply, Reply::Nothing), "{reply:?}");
    }
    assert_eq!((gate.counters().malformed, gate.pending()), (4, 0));
    let hello = hello_with(&right);
    let reply = gate.take(Instant::ZERO, address(1), hello.bytes(), &mut draw());
    assert_eq!(step(&sent(reply)), Step::Answer, "nothing else was wrong");
}

#[test]
fn code__a_late_hello_of_the_admitted_client_is_not_refused() {
    let mut gate = gate(with_code(100, RIGHT));
    let mut one = guesser(1, RIGHT);
    let hello = one.message();
    run(&mut one, &mut gate);
    // A refusal would show that its code is wrong.
    for late in [&hello, &one.message()] {
        let reply = gate.take(Instant::ZERO, address(1), late.bytes(), &mut draw());
        assert!(matches!(reply, Reply::Nothing), "{reply:?}");
    }
}

#[test]
fn code__others_on_their_way_are_told_when_it_was_used() {
    let mut gate = gate(with_code(100, RIGHT));
    let (mut first, mut second) = (guesser(1, RIGHT), guesser(2, RIGHT));
    answered(&mut gate, &mut second);
    run(&mut first, &mut gate);
    let taken = guess(&mut gate, &mut second);
    assert!(matches!(taken, Taken::Refused(Reason::Denied)), "{taken:?}");
    assert_eq!(gate.counters().wrong_codes, 0);
}

#[test]
fn code__under_load_by_a_cookie() {
    let mut gate = gate(with_code(100, RIGHT));
    let (from, mut draw) = (address(2_000), draw());
    let forged = guesser(1, RIGHT).message();
    for n in 0..500u32 {
        let mut forged = forged.bytes().to_vec();
        forged[36..40].copy_from_slice(&n.to_be_bytes());
        gate.take(Instant::ZERO, address(n), &forged, &mut draw);
    }
    let mut right = guesser(2, RIGHT);
    let mut ask = |it: &Initiator| gate.take(Instant::ZERO, from, it.message().bytes(), &mut draw);
    let retry = sent(ask(&right));
    assert_eq!(step(&retry), Step::Retry);
    right.take(retry.bytes(), &request());
    let answer = sent(ask(&right));
    right.take(answer.bytes(), &request());
    assert!(matches!(ask(&right), Reply::Admit(_)));
}

#[test]
fn code__is_in_no_datagram_and_in_no_words() {
    let mut gate = gate(with_code(100, RIGHT));
    let mut one = guesser(1, RIGHT);
    let hello = one.message();
    let answer = sent(knock(&mut gate, &one));
    one.take(answer.bytes(), &request());
    for datagram in [hello, answer, one.message()] {
        let mut windows = datagram.bytes().windows(8);
        assert!(!windows.any(|it| it == b"12345678"), "{datagram:?}");
    }
    let words = format!("{gate:?} {:?}", with_code(1, RIGHT));
    assert!(!words.contains("1234"), "{words}");
}

#[test]
fn code__no_answer_is_longer_than_three_times_the_question() {
    let mut gate = gate(with_code(100, RIGHT));
    for n in 1..50 {
        let mut one = guesser(n, WRONG);
        for _ in 0..3 {
            let question = one.message();
            let reply = sent(knock(&mut gate, &one));
            assert!(reply.bytes().len() <= 3 * question.bytes().len());
            one.take(reply.bytes(), &request());
        }
    }
    assert!(
        gate.counters().refused > u64::from(CODE_GUESSES),
        "and after the last"
    );
}

#[test]
fn code__text_and_back() {
    let code = Code::from_random([7; 32]);
    let text = code.to_string();
    assert_eq!(text.parse(), Ok(code.clone()));
    assert_eq!(text.replace('-', " ").parse(), Ok(code.clone()));
    assert!(!format!("{code:?}").contains(&text[..4]));
    // Leading zeros are digits, too.
    let mut small = [0; 32];
    small[0] = 42;
    assert_eq!(Code::from_random(small).to_string(), "0000-0042");
    for bad in ["", "1234567", "123456789", "1234-567x", "１２３４５６７８"] {
        assert_eq!(bad.parse::<Code>(), Err(CodeError), "{bad}");
    }
}
