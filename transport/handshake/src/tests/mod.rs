//! Tests that the key exchange works: both ends alone, and with a connection around the Initiator's end.
#![allow(non_snake_case)]

mod attack;
mod code;
mod connection;
mod exchange;
mod flood;

use super::initiator::{Initiator, Taken};
use super::*;
use std::net::SocketAddr;
use zerolane_core::Instant;
use zerolane_wire::handshake::Step;
use zerolane_wire::{
    Capabilities, Eager, Operation, Packet, Profiles, Reason, RequestConnection, Route, VERSION,
    VERSION_MIN,
};

/// Trusts one key.
#[derive(Debug)]
struct Only(PublicKey);

impl Trust for Only {
    fn trusts(&self, peer: &PublicKey) -> bool {
        *peer == self.0
    }
}

fn identity(n: u8) -> Identity {
    Identity::from_secret([n; 32])
}

fn credentials(n: u8) -> Credentials {
    Credentials {
        identity: Arc::new(identity(n)),
        pre_shared: None,
        trust: Arc::new(Anyone),
        ciphers: Ciphers::of_machine(true),
    }
}

/// Numbers that are never the same twice.
fn draw() -> impl FnMut() -> [u8; 32] {
    let mut n = 0u64;
    move || {
        n += 1;
        *blake3::hash(&n.to_le_bytes()).as_bytes()
    }
}

fn initiator(credentials: Credentials) -> Initiator {
    Initiator::new(credentials, [77; 32], (1, 9), 0xabcd, 42).unwrap()
}

fn gate(credentials: Credentials) -> Gate {
    Gate::new(Instant::ZERO, credentials, &mut draw())
}

/// The address of another machine for each `n`.
fn address(n: u32) -> SocketAddr {
    SocketAddr::from((std::net::Ipv4Addr::from_bits(0x0a00_0000 + n), 4000))
}

fn request() -> Vec<u8> {
    let packet = Packet {
        route: Route {
            d_port: 1,
            s_port: 9,
            d_key: 0,
        },
        operation: Operation::RequestConnection(RequestConnection {
            version_min: VERSION_MIN,
            version_max: VERSION,
            capabilities: Capabilities {
                profiles: Profiles::BOTH,
                checksum: false,
                out_of_order: true,
                persistent: false,
                slots: 8,
                max_stu: 1408,
                buffer_log2: 20,
                eager: Eager::NONE,
                frames: false,
                advance_grants: false,
                advance_messages: false,
                datagrams: false,
                paths: 1,
            },
            s_key: 0xabcd,
            sync: 42,
        }),
    };
    let (bytes, len) = packet.emit();
    bytes[..len].to_vec()
}

fn step(datagram: &HandshakeDatagram) -> Step {
    HandshakeMessage::parse(datagram.bytes()).unwrap().step
}

/// The datagram in a reply.
fn sent(reply: Reply) -> HandshakeDatagram {
    match reply {
        Reply::Send(datagram) => datagram,
        other => panic!("no datagram: {other:?}"),
    }
}

/// Shows the Initiator's message to the gate.
fn knock(gate: &mut Gate, initiator: &Initiator) -> Reply {
    gate.take(
        Instant::ZERO,
        address(1),
        initiator.message().bytes(),
        &mut draw(),
    )
}

/// Runs a whole exchange without loss.
fn run(initiator: &mut Initiator, gate: &mut Gate) -> (Session, Admitted) {
    let answer = sent(knock(gate, initiator));
    let Taken::Done(session) = initiator.take(answer.bytes(), &request()) else {
        panic!("no session");
    };
    match knock(gate, initiator) {
        Reply::Admit(admitted) => (*session, *admitted),
        other => panic!("not admitted: {other:?}"),
    }
}
