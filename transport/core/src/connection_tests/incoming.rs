//! Tests private data, and that a Responder's program decides about requests.

use super::sim::Sim;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use std::time::Duration;
use zerolane_wire::{Disconnect, HEADER_LEN, MAX_CONTROL, OPTIONS_LEN, Operation, Packet};
use zerolane_wire::{Nop, PrivateData, Reason, Route};

const BARE: usize = HEADER_LEN + OPTIONS_LEN;

fn data(bytes: &[u8]) -> Option<PrivateData> {
    Some(PrivateData::new(bytes).expect("short enough"))
}

fn with(private_data: Option<PrivateData>) -> Config {
    Config {
        private_data,
        ..Config::default()
    }
}

fn asking(private_data: Option<PrivateData>) -> Config {
    Config {
        asks: true,
        ..with(private_data)
    }
}

fn lossless() -> LinkConfig {
    LinkConfig::default()
}

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: Loss::Random(0.4),
        ..LinkConfig::default()
    }
}

/// Runs until B has a request to decide about.
fn asked(sim: &mut Sim) {
    let is_asked = |sim: &Sim| sim.b.connection.as_ref().is_some_and(Connection::is_asked);
    sim.run_until(Duration::from_secs(4), is_asked);
    assert!(is_asked(sim));
}

#[test]
fn connect__private_data_both_ways() {
    for (mine, theirs, arrives) in [
        (None, None, None),
        (None, data(b"unasked"), None),
        (data(b""), data(b"an answer"), data(b"an answer")),
        (data(b"a request"), None, None),
        (data(&[1; 64]), data(&[2; 64]), data(&[2; 64])),
    ] {
        let mut sim = Sim::new(lossless(), 1, with(mine), with(theirs));
        sim.connect();
        assert_eq!(sim.b.c().peer_data().copied(), mine);
        assert_eq!(sim.a.c().peer_data().copied(), arrives);
    }
}

#[test]
fn connect__private_data_despite_loss() {
    for seed in 0..20 {
        let (mine, theirs) = (data(b"ask"), data(b"answer"));
        let mut sim = Sim::new(lossy(), seed, with(mine), with(theirs));
        sim.run_for(Duration::from_secs(4));
        if sim.a.connected() && sim.b.connected() {
            assert_eq!(sim.b.c().peer_data().copied(), mine);
            assert_eq!(sim.a.c().peer_data().copied(), theirs);
        }
    }
}

fn first_datagram(connection: &mut Connection) -> Vec<u8> {
    match connection.poll_transmit(Instant::ZERO, BurstLimit::default()) {
        Some(Transmit::Control(it)) => it.bytes().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn entropy(key: u32) -> Entropy {
    Entropy {
        key,
        port: 2,
        sync: 3,
    }
}

fn responder(request: &[u8], config: Config) -> Connection {
    let packet = Packet::parse(request).expect("well-formed");
    let made = listen(Instant::ZERO, config, entropy(2), &packet).expect("accepted");
    made.with_peer_data(PrivateData::of(request))
}

/// No end can be used to flood a third party.
#[test]
fn answer__is_never_longer_than_the_request() {
    for (mine, theirs) in [
        (None, None),
        (None, data(&[9; 64])),
        (data(b""), None),
        (data(b""), data(&[9; 64])),
        (data(&[9; 64]), data(b"")),
    ] {
        let mut client = Connection::connect(Instant::ZERO, with(mine), entropy(1));
        let request = first_datagram(&mut client);
        let expected = if mine.is_some() { MAX_CONTROL } else { BARE };
        assert_eq!(request.len(), expected);
        let mut server = responder(&request, with(theirs));
        for _ in 0..3 {
            let answer = first_datagram(&mut server);
            let both = mine.is_some() && theirs.is_some();
            assert_eq!(answer.len(), if both { MAX_CONTROL } else { BARE });
            let now = Instant::ZERO;
            let more = server.poll_transmit(now, BurstLimit::default());
            assert_eq!(more, None, "one answer for one request");
            server.on_control(now, &request, request.len());
        }
        let mut server = responder(&request, asking(theirs));
        server.refuse(Instant::ZERO);
        assert_eq!(first_datagram(&mut server).len(), BARE);
    }
}

#[test]
fn accept__answers_with_the_data_of_the_decision() {
    let mut sim = Sim::new(lossless(), 1, with(data(b"who")), asking(data(b"usual")));
    asked(&mut sim);
    sim.run_for(Duration::from_secs(2));
    assert_eq!((&sim.a.events[..], &sim.b.events[..]), (&[][..], &[][..]));
    assert_eq!(sim.b.c().peer_data().copied(), data(b"who"));
    assert_eq!(
        sim.b.c().counters().control_sent,
        0,
        "nothing is said before"
    );
    let now = sim.now();
    sim.b.c().accept(now, data(b"you are the third"));
    sim.connect();
    assert!(!sim.b.c().is_asked());
    assert_eq!(sim.a.c().peer_data().copied(), data(b"you are the third"));
    // Too late for either.
    let now = sim.now();
    sim.b.c().refuse(now);
    sim.b.c().accept(now, None);
    sim.run_for(Duration::from_secs(1));
    assert_eq!((sim.a.closed(), sim.b.closed()), (None, None));
}

#[test]
fn refuse__tells_the_initiator_also_if_the_first_answer_is_lost() {
    let mut told = 0;
    for seed in 0..100 {
        let mut sim = Sim::new(lossy(), seed, with(data(b"who")), asking(None));
        asked(&mut sim);
        let now = sim.now();
        match seed % 2 {
            0 => sim.b.c().refuse(now),
            _ => sim.b.c().close(now),
        }
        sim.run_for(Duration::from_secs(6));
        match sim.a.closed() {
            Some(CloseReason::Rejected {
                reason: Reason::Refused,
                ..
            }) => told += 1,
            other => assert_eq!(other, Some(CloseReason::ConnectTimeout)),
        }
        assert_eq!(sim.b.closed(), Some(CloseReason::Local));
        assert_eq!(sim.b.c().next_timeout(), None);
    }
    assert!(
        told > 75,
        "{told} of 100: one answer alone reaches about 60"
    );
}

/// A program may decide late, as long as the Initiator asks.
#[test]
fn accept__as_late_as_the_initiator_waits() {
    let patient = Config {
        connect_timeout: Duration::from_secs(60),
        ..with(data(b"who"))
    };
    let mut sim = Sim::new(lossless(), 1, patient, asking(None));
    asked(&mut sim);
    sim.run_for(Duration::from_secs(50));
    assert!(sim.b.c().is_asked());
    let now = sim.now();
    sim.b.c().accept(now, None);
    sim.connect();
}

#[test]
fn asks__forgets_an_initiator_that_is_silent() {
    let mut sim = Sim::new(lossless(), 1, with(None), asking(None));
    asked(&mut sim);
    sim.net.link_mut(Side::A).set_up(false);
    sim.run_for(Duration::from_secs(4));
    assert!(sim.b.c().is_asked());
    sim.run_for(Duration::from_secs(2));
    assert_eq!(sim.b.closed(), Some(CloseReason::ConnectTimeout));
    let now = sim.now();
    sim.b.c().accept(now, data(b"too late"));
    assert_eq!(sim.b.c().poll_transmit(now, BurstLimit::default()), None);
}

/// No end knows the key of an undecided connection: who uses it guessed it.
#[test]
fn asks__no_operation_opens_the_connection() {
    let mut client = Connection::connect(Instant::ZERO, with(None), entropy(1));
    let request = first_datagram(&mut client);
    let mut server = responder(&request, asking(None));
    let guessed = |operation| Packet {
        route: Route {
            d_port: 2,
            s_port: 2,
            d_key: 2,
        },
        operation,
    };
    let nop = Operation::Nop(Nop {
        send_state: true,
        ..Nop::default()
    });
    let bye = Operation::DisconnectAnswer(Disconnect {
        reason: Reason::Normal,
    });
    for operation in [nop, bye] {
        let (bytes, len) = guessed(operation).emit();
        server.on_control(Instant::ZERO, &bytes[..len], len);
        let said = server.poll_transmit(Instant::ZERO, BurstLimit::default());
        assert_eq!(said, None);
        assert!(server.is_asked());
    }
    assert_eq!(server.counters().dropped(DropReason::WrongKey), 2);
}
