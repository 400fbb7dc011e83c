//! Sets up the hostile peer's connection by the rules.

use super::peer::{KEY, PATIENCE, PORT, SYNC};
use super::rule::Terms;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;
use zerolane_core::{BurstLimit, Config, Connection, Entropy, Transmit};
use zerolane_handshake::{Anyone, Ciphers, Credentials, Exchange, Gate, Identity, Reply, Session};
use zerolane_wire::{Capabilities, Eager, Packet, Profiles};

pub(super) fn capabilities(terms: &Terms) -> Capabilities {
    Capabilities {
        profiles: Profiles::only(terms.profile),
        checksum: terms.checksum,
        out_of_order: true,
        persistent: true,
        slots: 64,
        max_stu: 1408,
        buffer_log2: 30,
        eager: Eager::NONE,
        frames: false,
        advance_grants: terms.advance,
        advance_messages: terms.advance,
        datagrams: false,
        paths: 1,
    }
}

fn credentials(terms: &Terms) -> Credentials {
    Credentials {
        identity: Arc::new(Identity::from_secret([66; 32])),
        pre_shared: None,
        trust: Arc::new(Anyone),
        ciphers: Ciphers::only(terms.cipher),
    }
}

fn now() -> zerolane_core::Instant {
    zerolane_core::Instant::ZERO
}

/// 32 bytes that need not be unpredictable.
fn draw() -> [u8; 32] {
    [13; 32]
}

/// The Initiator's key exchange, by the library's own code.
pub(super) fn exchange(socket: &UdpSocket, terms: &Terms) -> Session {
    let entropy = Entropy {
        key: KEY,
        port: PORT,
        sync: SYNC,
    };
    let config = Config {
        profiles: Profiles::only(terms.profile),
        checksum: terms.checksum,
        ..Config::default()
    };
    let service = config.service_port;
    let mut core = Connection::connect_protected(now(), config, entropy);
    let mut exchange = Exchange::initiate(credentials(terms), draw(), service, entropy).unwrap();
    let mut session: Option<Box<Session>> = None;
    let end = Instant::now() + PATIENCE;
    let mut buffer = [0; 2048];
    while Instant::now() < end {
        while let Some(transmit) = core.poll_transmit(now(), BurstLimit::default()) {
            if transmit == Transmit::Handshake {
                let message = exchange.message(now(), || None).unwrap();
                socket.send(message.bytes()).unwrap();
            }
        }
        if let Some(session) = session {
            return *session;
        }
        if let Ok(len) = socket.recv(&mut buffer) {
            let (outcome, given) = exchange.take(&buffer[..len], core.request().bytes());
            core.on_handshake(now(), outcome);
            session = given;
        }
    }
    panic!("no key exchange");
}

/// The Responder's part, by the library's own gate. Returns the request, the session, and the client's address.
pub(super) fn admit(
    socket: &UdpSocket,
    encrypted: bool,
    terms: &Terms,
) -> (Packet, Option<Session>, SocketAddr) {
    let mut gate = Gate::new(now(), credentials(terms), &mut draw);
    let end = Instant::now() + PATIENCE;
    let mut buffer = [0; 2048];
    while Instant::now() < end {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let datagram = &buffer[..len];
        if !encrypted {
            if let Ok(packet) = Packet::parse(datagram) {
                return (packet, None, from);
            }
            continue;
        }
        match gate.take(now(), from, datagram, &mut draw) {
            Reply::Nothing => {}
            Reply::Send(answer) => {
                socket.send_to(answer.bytes(), from).unwrap();
            }
            Reply::Admit(admitted) => return (admitted.request, Some(admitted.session), from),
        }
    }
    panic!("no client connects");
}
