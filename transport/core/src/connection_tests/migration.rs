//! Tests that datagrams from another address move a connection only after validation.

use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::LinkConfig;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane_wire::{Nop, Operation, Packet};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const NONCE: u32 = 0x1234_5678;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// Connected, with a Transfer from A to B in flight, and everything that A has sent since.
fn streaming() -> (Sim, TransferId) {
    let link = LinkConfig {
        delay: MS,
        rate_bits_per_s: Some(100_000_000),
        ..LinkConfig::default()
    };
    let mut sim = Sim::new(link, 1, Config::default(), Config::default());
    sim.connect();
    sim.trace = Some(vec![]);
    let now = sim.now();
    let source = sim.a.filled(1, 2_000_000);
    let target = sim.b.empty(2_000_000);
    let to = sim.b.c().post_receive(now, target).expect("posted");
    let sent = sim.a.c().post_send(now, source, Delivery::Polled);
    sent.expect("posted");
    sim.run_for(20 * MS);
    (sim, to)
}

/// The last datagram of A.
fn last_of_a(sim: &Sim) -> Vec<u8> {
    let said = sim.trace.iter().flatten().rev();
    let of_a = said.clone().find(|(side, _)| *side == Side::A);
    of_a.expect("it said something").1.clone()
}

fn from_new_address(sim: &mut Sim, from: SocketAddr, datagram: &[u8]) -> PathValidation {
    let now = sim.now();
    sim.b.c().on_new_address(now, from, NONCE, datagram)
}

/// A's answer to the question that B sends to `to`.
fn answer(sim: &mut Sim, to: SocketAddr) -> Vec<u8> {
    let last = last_of_a(sim);
    let PathValidation::Challenge(question) = from_new_address(sim, to, &last) else {
        panic!("it is silent elsewhere");
    };
    let asked = Packet::parse(question.bytes()).expect("what we send");
    assert!(matches!(
        asked.operation,
        Operation::Nop(Nop {
            sync: NONCE,
            send_state: true,
            ..
        })
    ));
    assert!(question.pad_to <= last.len(), "it amplifies");
    let now = sim.now();
    sim.a
        .c()
        .on_control(now, question.bytes(), question.bytes().len());
    let said = sim.a.outgoing(now).into_iter().map(|(bytes, _)| bytes);
    let nop = |bytes: &Vec<u8>| {
        let packet = Packet::parse(bytes).map(|it| it.operation);
        matches!(packet, Ok(Operation::Nop(Nop { reply: true, .. })))
    };
    said.into_iter().find(nop).expect("answered")
}

#[test]
fn stray__of_a_peer_that_is_heard_means_nothing() {
    let (mut sim, _) = streaming();
    let last = last_of_a(&sim);
    assert_eq!(
        from_new_address(&mut sim, address(1), &last),
        PathValidation::Ignored
    );
}

#[test]
fn stray__without_the_key_means_nothing() {
    let (mut sim, _) = streaming();
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_for(200 * MS);
    let last = last_of_a(&sim);
    for at in [4, 8, 11] {
        let mut forged = last.clone();
        forged[at] ^= 1;
        assert_eq!(
            from_new_address(&mut sim, address(1), &forged),
            PathValidation::Ignored
        );
    }
    assert_eq!(
        from_new_address(&mut sim, address(1), &last[..20]),
        PathValidation::Ignored
    );
    assert!(matches!(
        from_new_address(&mut sim, address(1), &last),
        PathValidation::Challenge(_)
    ));
}

#[test]
fn stray__is_believed_when_it_answers_from_there() {
    let (mut sim, to) = streaming();
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_for(200 * MS);
    let answer = answer(&mut sim, address(1));
    // One question at a time, and only the questioned address can answer it.
    assert_eq!(
        from_new_address(&mut sim, address(2), &answer),
        PathValidation::Ignored
    );
    let mut guessed = answer.clone();
    guessed[27] ^= 1;
    assert_eq!(
        from_new_address(&mut sim, address(1), &guessed),
        PathValidation::Ignored
    );
    assert_eq!(
        from_new_address(&mut sim, address(1), &answer),
        PathValidation::Validated
    );
    assert_eq!(
        from_new_address(&mut sim, address(1), &answer),
        PathValidation::Ignored,
        "once"
    );
    assert_eq!(sim.b.c().counters().migrations, 1);
    sim.net.link_mut(Side::A).set_up(true);
    sim.run_until(3 * S, |sim| sim.b.received(to).is_some());
}

#[test]
fn new_address__that_does_not_answer_does_not_keep_others_out() {
    let (mut sim, _) = streaming();
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_for(200 * MS);
    let last = last_of_a(&sim);
    assert!(matches!(
        from_new_address(&mut sim, address(1), &last),
        PathValidation::Challenge(_)
    ));
    sim.run_for(200 * MS);
    let answer = answer(&mut sim, address(2));
    assert_eq!(
        from_new_address(&mut sim, address(1), &answer),
        PathValidation::Ignored
    );
    assert_eq!(
        from_new_address(&mut sim, address(2), &answer),
        PathValidation::Validated
    );
}
