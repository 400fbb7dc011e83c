//! Tests that ends enforce the rules of the peer's identity: ports, keys, seals, set-up, addresses.

use super::data::granted;
use super::peer::Peer;
use super::rule::{Outcome, Rule, rule};
use std::net::UdpSocket;
use std::time::Duration;
use zerolane::counters::DropReason::{
    Forged, Malformed, Replayed, Unexpected, Unprotected, WrongKey,
};
use zerolane_wire::{Flags, Header, Op, RequestConnection};

pub(super) const RULES: &[Rule] = &[
    rule("route_port_and_key", route_port_and_key).drops(&[(WrongKey, 3)]),
    rule("sealed_everything", sealed_everything).sealed_drops(&[(Unprotected, 50)]),
    rule("sealed_once", sealed_once).sealed_drops(&[(Replayed, 10)]),
    rule("sealed_numbers", sealed_numbers)
        .sealed_drops(&[(Forged, 3), (Replayed, 3)])
        .outcome(Outcome::Ended),
    rule("set_up_once", set_up_once).drops(&[(Unexpected, 2)]),
    rule("set_up_as_asked", |_| {})
        .before_answer(answer_something_else)
        .drops(&[(Malformed, 4), (WrongKey, 2)]),
    rule("address_that_is_proven", address_that_is_proven),
];

fn route_port_and_key(peer: &mut Peer) {
    let right = Header {
        flags: Flags::SEND_STATE,
        sync: 99,
        ..peer.header(Op::Nop)
    };
    let wrong = [
        Header {
            d_key: right.d_key ^ 1,
            ..right
        },
        Header { d_key: 0, ..right },
        Header {
            d_port: right.d_port ^ 1,
            ..right
        },
    ];
    for header in wrong {
        peer.say_raw(&header, &[]);
    }
    let heard = peer.listen_for_a_while();
    assert!(!heard.iter().any(|it| it.op == Op::Nop && it.sync == 99));
}

/// Plain text on a sealed connection is ignored. On a plain one it is an ordinary datagram.
fn sealed_everything(peer: &mut Peer) {
    let header = Header {
        s_id: 1,
        ..peer.header(Op::RequestToSend).with_wide(100)
    };
    if !peer.is_sealed() {
        peer.announced = header.wide();
    }
    for _ in 0..100 {
        peer.send_as_is(&header.emit());
        peer.send_as_is(&[&peer.header(Op::Data).emit()[..], &[0; 1000]].concat());
    }
    // A message of the key exchange in the middle of the connection.
    for step in 1..6 {
        let mut hello = Header {
            param: step,
            ..peer.header(Op::Nop)
        }
        .emit();
        hello[0] = 31 << 3;
        peer.send_as_is(&[&hello[..], &[0; 100]].concat());
    }
}

fn sealed_once(peer: &mut Peer) {
    let data = granted(peer, 3000);
    peer.say_raw(&data, &[1; 1000]);
    for _ in 0..20 {
        for datagram in peer.sent.clone() {
            peer.send_as_is(&datagram);
        }
    }
}

fn sealed_numbers(peer: &mut Peer) {
    let nop = peer.header(Op::Nop);
    peer.say_raw(&nop, &[]);
    peer.say_raw(&nop, &[]);
    // Numbers of a distant generation, of an impossible one, and used ones.
    for number in [1 << 30, u64::MAX - 1, 1 << 23, 0, 1] {
        peer.set_number(number);
        peer.say_raw(&nop, &[]);
    }
    // A leap within the generation; the skipped numbers come late.
    peer.set_number(20_000);
    peer.say_raw(&nop, &[]);
    peer.set_number(10_000);
    peer.say_raw(&nop, &[]);
    peer.set_number(30_000);
}

fn set_up_once(peer: &mut Peer) {
    for flags in [Flags::CAP_CLASSIC, Flags::CAP_EXTENDED, Flags::CAP_CHECKSUM] {
        let request = Header {
            flags,
            param: 1 << 8 | 1,
            b_id: 1,
            bufx: 1,
            s_id: 5,
            ..peer.header(Op::RequestConnection)
        };
        let mut options = [0; 32];
        options[..8].copy_from_slice(b"Zerolane");
        peer.say_raw(&request, &options);
        let answer = Header {
            op: Op::ConnectionAnswer,
            param: 1,
            ..request
        };
        peer.say_raw(&answer, &[0; 32]);
    }
}

/// Answers that are malformed, or to another set-up; then the right one.
fn answer_something_else(peer: &mut Peer, asked: &RequestConnection) {
    let answer = Header {
        flags: Flags::CAP_EXTENDED,
        param: 1,
        b_id: 64,
        bufx: 1408,
        offset: 30,
        sync: asked.sync,
        s_id: 7,
        ..peer.header(Op::ConnectionAnswer)
    };
    let both = Flags::CAP_EXTENDED.with(Flags::CAP_CLASSIC);
    let malformed = [
        Header {
            flags: both,
            ..answer
        },
        Header {
            flags: Flags::NONE,
            ..answer
        },
        Header {
            param: 256,
            ..answer
        },
        Header { b_id: 0, ..answer },
        Header { bufx: 0, ..answer },
        Header {
            offset: 33,
            ..answer
        },
    ];
    let others = [
        Header {
            sync: asked.sync ^ 1,
            ..answer
        },
        Header {
            d_key: answer.d_key ^ 1,
            ..answer
        },
        Header {
            d_port: answer.d_port ^ 1,
            ..answer
        },
    ];
    for header in malformed.into_iter().chain(others) {
        peer.say_raw(&header, &[0; 32]);
    }
}

/// Sends from another address at the same time: nothing is sent there, and nothing from there is accepted.
fn address_that_is_proven(peer: &mut Peer) {
    let data = granted(peer, 5000);
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    elsewhere
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    let victim = peer.socket().peer_addr().unwrap();
    let nop = Header {
        flags: Flags::SEND_STATE,
        sync: 4712,
        ..peer.header(Op::Nop)
    };
    let mut buffer = [0; 2048];
    for _ in 0..50 {
        for (header, payload) in [(nop, &[][..]), (data, &[0xee; 1000])] {
            let datagram = [&header.emit()[..], payload].concat();
            let sealed = peer.sealed(&datagram);
            elsewhere.send_to(&sealed, victim).unwrap();
        }
        // It also sends from the right address.
        peer.say_raw(&nop, &[]);
        if let Ok(len) = elsewhere.recv(&mut buffer) {
            // An end that was suspended for long may ask whether the peer is alive.
            assert!(
                len <= nop.emit().len() + 32,
                "{len} bytes to an address that proved nothing"
            );
        }
    }
}
