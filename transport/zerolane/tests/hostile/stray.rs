//! Tests that an off-path attacker that claims to be a peer at a new address gets nothing.

use super::relay::Relay;
use super::{PATIENCE, options, pattern};
use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerolane::{Connection, Endpoint, Security};
use zerolane_wire::{Nop, Operation, Packet, Route};

const BYTES: usize = 100_000;

/// A keep-alive for the connection with these ports and this key, in plain.
fn keep_alive(route: [u8; 8]) -> Vec<u8> {
    let [a, b, c, d, key @ ..] = route;
    let packet = Packet {
        route: Route {
            d_port: u16::from_be_bytes([a, b]),
            s_port: u16::from_be_bytes([c, d]),
            d_key: u32::from_be_bytes(key),
        },
        operation: Operation::Nop(Nop {
            send_state: true,
            ..Nop::default()
        }),
    };
    let (bytes, len) = packet.emit();
    bytes[..len].to_vec()
}

/// Whether an attacker that read the headers on the path is probed as a possible new address, when the peer is silent
/// for `silence`. The connection continues either way.
fn is_asked(security: &Security, silence: Duration) -> bool {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options(security.clone())).unwrap();
    let (cut, heard) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(HashSet::new())),
    );
    let (is_cut, hears) = (Arc::clone(&cut), Arc::clone(&heard));
    let relay = Relay::start(
        endpoint.local_addr(),
        Box::new(move |datagram| {
            if let Some(Ok(route)) = datagram.get(4..12).map(<[u8; 8]>::try_from) {
                hears.lock().unwrap().insert(route);
            }
            match is_cut.load(Ordering::Relaxed) {
                true => vec![],
                false => vec![datagram.to_vec()],
            }
        }),
    );
    let (address, security) = (relay.address, security.clone());
    let sender = std::thread::spawn(move || {
        let mut sender = Connection::connect(address, &options(security)).unwrap();
        sender.send(&pattern(BYTES)).unwrap();
        sender.send(&pattern(BYTES)).unwrap();
        sender.close().unwrap();
    });
    let mut receiver = endpoint.accept(Some(PATIENCE)).unwrap().expect("a client");
    let mut buffer = vec![0; BYTES];
    assert_eq!(receiver.recv_into(&mut buffer).unwrap(), BYTES);

    cut.store(true, Ordering::Relaxed);
    let unauthenticated = UdpSocket::bind("127.0.0.1:0").unwrap();
    unauthenticated.set_nonblocking(true).unwrap();
    let (mut answer, mut asked) = ([0; 2048], false);
    let end = Instant::now() + silence;
    while Instant::now() < end && !asked {
        for &route in heard.lock().unwrap().iter() {
            let _ = unauthenticated.send_to(&keep_alive(route), endpoint.local_addr());
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(receiver.poll().unwrap().is_none());
        asked = unauthenticated.recv_from(&mut answer).is_ok();
    }
    cut.store(false, Ordering::Relaxed);
    assert_eq!(receiver.recv_into(&mut buffer).unwrap(), BYTES);
    assert!(buffer == pattern(BYTES));
    receiver.close().unwrap();
    sender.join().unwrap();
    asked
}

#[test]
fn encrypted__a_reader_of_the_keys_is_not_even_asked() {
    assert!(!is_asked(&Security::default(), Duration::from_millis(500)));
}

#[test]
fn plain__a_reader_of_the_keys_is_asked() {
    assert!(
        // As soon as it counts as silent, which takes longer the longer its answers took.
        is_asked(&Security::plain(), Duration::from_secs(10)),
        "the search finds what is there"
    );
}
