//! Fuzzes a gate and an Initiator with datagrams, among them honest ones with flipped bits: no panic, no growth, no
//! answer longer than three times the question; an admitted end has the client's keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Config, Connection, Entropy, Instant, SERVICE_PORT, Transmit};
use zerolane_handshake::limits::MAX_PENDING_HANDSHAKES;
use zerolane_handshake::{Anyone, Ciphers, Credentials, Exchange, Gate, Identity, Reply};
use zerolane_wire::PrivateData;

fn credentials(n: u8) -> Credentials {
    Credentials {
        identity: Arc::new(Identity::from_secret([n; 32])),
        pre_shared: None,
        trust: Arc::new(Anyone),
        ciphers: Ciphers::of_machine(true),
    }
}

/// `bytes` with the bits turned that `change` names: position, mask.
fn tampered(bytes: &[u8], change: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for pair in change.chunks_exact(2) {
        let at = usize::from(pair[0]) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= pair[1];
        }
    }
    bytes
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let mut n = 0u8;
    let mut draw = || {
        n = n.wrapping_add(1);
        [n; 32]
    };
    let entropy = Entropy {
        key: 7,
        port: 9,
        sync: 11,
    };
    let mut now = Instant::ZERO;
    let mut gate = Gate::new(now, credentials(1), &mut draw);
    // Half of the inputs have private data.
    let length = input.first().map_or(0, |it| usize::from(it & 0x7f));
    let private_data = PrivateData::new(&input[..length.min(input.len())]).ok();
    let config = Config {
        private_data,
        ..Config::default()
    };
    let mut client = Connection::connect_protected(now, config, entropy);
    let made = Exchange::initiate(credentials(2), draw(), SERVICE_PORT, entropy);
    let mut exchange = made.expect("sane credentials");
    // What the client says at present, and the keys it has by now.
    let mut said = vec![];
    let mut session = None;
    let mut rest = input;
    while let Some((&[kind, len], tail)) = rest.split_first_chunk::<2>() {
        let (change, tail) = tail.split_at(usize::from(len).min(tail.len()));
        rest = tail;
        now = now + Duration::from_millis(u64::from(kind >> 4) * 100);
        client.on_timeout(now);
        while let Some(transmit) = client.poll_transmit(now, Default::default()) {
            if transmit == Transmit::Handshake {
                let message = exchange.message(now, || Some(draw()));
                said = message.expect("an Initiator's").bytes().to_vec();
            }
        }
        let datagram = match kind & 1 {
            0 => change.to_vec(),
            _ => tampered(&said, change),
        };
        let from = SocketAddr::from(([10, 0, 0, kind >> 2 & 3], 5));
        match gate.take(now, from, &datagram, &mut draw) {
            Reply::Nothing => {}
            Reply::Send(reply) => {
                assert!(reply.bytes().len() <= 3 * datagram.len());
                let reply = match kind & 2 {
                    0 => reply.bytes().to_vec(),
                    _ => tampered(reply.bytes(), change),
                };
                let (outcome, given) = exchange.take(&reply, client.request().bytes());
                client.on_handshake(now, outcome);
                session = given.or(session);
            }
            Reply::Admit(admitted) => {
                let session = session
                    .as_ref()
                    .expect("an unauthenticated peer was admitted");
                assert!(session.send == admitted.session.receive);
                assert!(session.receive == admitted.session.send);
                assert_eq!(admitted.private_data, private_data);
            }
        }
        assert!(gate.pending() <= MAX_PENDING_HANDSHAKES);
        client.assert_bounded();
    }
}
