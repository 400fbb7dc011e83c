//! Tests that the relay passes, delays and drops datagrams of several clients.
#![allow(non_snake_case)]

use super::*;
use netsim::link::{Loss, Reorder};
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

/// Long enough on a busy machine; only ever waited for in full on failure.
const PATIENCE: Duration = Duration::from_secs(10);

const SEED: u64 = 3;

fn socket_at(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket
}

fn socket() -> UdpSocket {
    socket_at("127.0.0.1:0")
}

fn relay_to(server: &UdpSocket, config: LinkConfig) -> Relay {
    let address = server.local_addr().expect("bound");
    Relay::start(address, config, config, SEED).expect("starts")
}

/// A payload that no other number has, with a length of its own.
fn payload(number: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(4 + number as usize % 1000, number as u8);
    bytes
}

/// Receives one datagram, checks all of it and returns its number and sender.
fn receive_numbered(socket: &UdpSocket) -> (u32, SocketAddr) {
    let mut buffer = [0; 2000];
    let (length, from) = socket.recv_from(&mut buffer).expect("arrives");
    let number = u32::from_be_bytes(buffer[..4].try_into().expect("4 bytes"));
    assert_eq!(buffer[..length], payload(number));
    (number, from)
}

fn send_numbered(socket: &UdpSocket, to: SocketAddr, numbers: std::ops::Range<u32>) {
    for number in numbers {
        socket.send_to(&payload(number), to).expect("send");
    }
}

/// Waits until the counters are as asked, and fails if they never are.
fn wait_for(relay: &Relay, reached: impl Fn(&RelayStats) -> bool) -> RelayStats {
    const STEP: Duration = Duration::from_millis(1);
    for _ in 0..PATIENCE.as_millis() {
        let stats = relay.stats();
        if reached(&stats) {
            return stats;
        }
        thread::sleep(STEP);
    }
    panic!("never reached: {:?}", relay.stats());
}

#[test]
fn relay__answers_reach_the_client_that_asked() {
    let server = socket();
    let relay = relay_to(&server, LinkConfig::default());
    let clients = [socket(), socket()];
    for (number, client) in (7..).zip(&clients) {
        send_numbered(client, relay.addr(), number..number + 1);
    }
    let mut upstream = BTreeSet::new();
    for _ in &clients {
        let (number, from) = receive_numbered(&server);
        upstream.insert(from);
        send_numbered(&server, from, number + 100..number + 101);
    }
    for (number, client) in (107..).zip(&clients) {
        assert_eq!(receive_numbered(client), (number, relay.addr()));
    }
    assert_eq!(upstream.len(), 2, "each client has its own socket");
    assert_eq!(relay.stats().clients, 2);
}

#[test]
fn relay__works_over_ipv6() {
    let server = socket_at("[::1]:0");
    let relay = relay_to(&server, LinkConfig::default());
    let client = socket_at("[::1]:0");
    send_numbered(&client, relay.addr(), 5..6);
    let (number, from) = receive_numbered(&server);
    assert_eq!(number, 5);
    send_numbered(&server, from, 6..7);
    assert_eq!(receive_numbered(&client).0, 6);
}

#[test]
fn relay__loses_what_the_virtual_link_loses() {
    const COUNT: u32 = 500;
    const STEP: u32 = 50;
    let config = LinkConfig {
        loss: Loss::Random(0.2),
        ..LinkConfig::default()
    };
    let mut model = Link::new(config, SEED);
    (0..COUNT).for_each(|number| model.send(Duration::ZERO, 100, number));
    let expected: Vec<u32> = std::iter::from_fn(|| model.pop_due(Duration::ZERO)).collect();
    assert!(expected.len() < COUNT as usize);

    let server = socket();
    let relay = relay_to(&server, config);
    let client = socket();
    let mut expected = expected.into_iter().peekable();
    // In steps, so that the sockets' buffers do not overflow.
    for end in (STEP..=COUNT).step_by(STEP as usize) {
        send_numbered(&client, relay.addr(), end - STEP..end);
        while let Some(number) = expected.next_if(|&number| number < end) {
            assert_eq!(receive_numbered(&server).0, number);
        }
    }
    let stats = wait_for(&relay, |stats| stats.a_to_b.sent == u64::from(COUNT));
    assert_eq!(stats.a_to_b.lost, model.stats().lost);
}

#[test]
fn relay__duplicates() {
    let config = LinkConfig {
        duplicate: 1.0,
        ..LinkConfig::default()
    };
    let server = socket();
    let relay = relay_to(&server, config);
    send_numbered(&socket(), relay.addr(), 0..20);
    let arrived: Vec<u32> = (0..40).map(|_| receive_numbered(&server).0).collect();
    let expected: Vec<u32> = (0..40).map(|i| i / 2).collect();
    assert_eq!(arrived, expected);
}

#[test]
fn relay__reorders_without_losing() {
    let config = LinkConfig {
        reorder: Reorder {
            probability: 0.2,
            by: Duration::from_millis(200),
        },
        ..LinkConfig::default()
    };
    let server = socket();
    let relay = relay_to(&server, config);
    send_numbered(&socket(), relay.addr(), 0..100);
    let arrived: Vec<u32> = (0..100).map(|_| receive_numbered(&server).0).collect();
    assert!(!arrived.is_sorted());
    let all: BTreeSet<u32> = arrived.into_iter().collect();
    assert_eq!(all, (0..100).collect());
    assert!(relay.stop().expect("ran").a_to_b.reordered > 0);
}

#[test]
fn relay__mtu_counts_the_ip_packet() {
    let config = LinkConfig {
        mtu: Some(500),
        ..LinkConfig::default()
    };
    let server = socket();
    let relay = relay_to(&server, config);
    let client = socket();
    client.send_to(&[1; 473], relay.addr()).expect("send");
    client.send_to(&[2; 472], relay.addr()).expect("send");
    let mut buffer = [0; 600];
    let length = server.recv(&mut buffer).expect("the smaller one");
    assert_eq!(buffer[..length], [2; 472]);
    assert_eq!(relay.stats().a_to_b.too_big, 1);
}

#[test]
fn relay__biggest_datagram_passes() {
    let server = socket();
    let relay = relay_to(&server, LinkConfig::default());
    let sent: Vec<u8> = (0..65_507u32).map(|i| (i % 253) as u8).collect();
    socket().send_to(&sent, relay.addr()).expect("send");
    let mut buffer = vec![0; 65_535];
    let length = server.recv(&mut buffer).expect("arrives");
    assert!(buffer[..length] == sent);
}

#[test]
fn set_up__down_drops_and_up_carries_again() {
    let server = socket();
    let relay = relay_to(&server, LinkConfig::default());
    let client = socket();
    relay.set_up(false);
    send_numbered(&client, relay.addr(), 0..10);
    wait_for(&relay, |stats| stats.a_to_b.down == 10);
    relay.set_up(true);
    send_numbered(&client, relay.addr(), 10..11);
    assert_eq!(receive_numbered(&server).0, 10);
}

#[test]
fn set_config__takes_effect_on_one_direction() {
    let server = socket();
    let relay = relay_to(&server, LinkConfig::default());
    let client = socket();
    send_numbered(&client, relay.addr(), 0..1);
    let (_, upstream) = receive_numbered(&server);
    let black_hole = LinkConfig {
        loss: Loss::Random(1.0),
        ..LinkConfig::default()
    };
    relay.set_config(Side::B, black_hole);
    send_numbered(&server, upstream, 1..4);
    wait_for(&relay, |stats| stats.b_to_a.lost == 3);
    send_numbered(&client, relay.addr(), 4..5);
    assert_eq!(receive_numbered(&server).0, 4);
}

#[test]
fn relay__survives_a_server_that_is_not_there_yet() {
    // An address of its own, so that no other test takes the port meanwhile.
    let address = socket_at("127.0.0.2:0").local_addr().expect("bound");
    let slow = LinkConfig {
        delay: Duration::from_millis(100),
        ..LinkConfig::default()
    };
    let relay = Relay::start(address, slow, slow, SEED).expect("starts");
    let client = socket();
    send_numbered(&client, relay.addr(), 0..1);
    wait_for(&relay, |stats| stats.a_to_b.sent == 1);
    // The others keep their place behind the first: all are sent on together,
    // each before the refusal of the one before it was read.
    relay.set_config(Side::A, LinkConfig::default());
    send_numbered(&client, relay.addr(), 1..5);
    wait_for(&relay, |stats| stats.unsent == 5);

    let server = socket_at(&address.to_string());
    send_numbered(&client, relay.addr(), 5..6);
    assert_eq!(receive_numbered(&server).0, 5);
}

#[test]
fn rebind__gives_clients_new_addresses_and_leaves_the_old_ones_unread() {
    let server = socket();
    let relay = relay_to(&server, LinkConfig::default());
    let client = socket();
    send_numbered(&client, relay.addr(), 0..1);
    let (_, before) = receive_numbered(&server);
    relay.rebind(Side::B);
    send_numbered(&client, relay.addr(), 1..2);
    let (number, after) = receive_numbered(&server);
    assert_eq!(number, 1);
    assert_ne!(before, after);
    // To the old address goes what never arrives, to the new one what does.
    send_numbered(&server, before, 2..3);
    send_numbered(&server, after, 3..4);
    assert_eq!(receive_numbered(&client).0, 3);
}

#[test]
fn rebind__gives_the_server_a_new_address_and_leaves_the_old_one_unread() {
    let server = socket();
    let relay = relay_to(&server, LinkConfig::default());
    let client = socket();
    send_numbered(&client, relay.addr(), 0..1);
    let (_, from) = receive_numbered(&server);
    relay.rebind(Side::A);
    send_numbered(&server, from, 1..2);
    let (number, after) = receive_numbered(&client);
    assert_eq!(number, 1);
    assert_ne!(after, relay.addr());
    send_numbered(&client, relay.addr(), 2..3);
    send_numbered(&client, after, 3..4);
    assert_eq!(receive_numbered(&server).0, 3);
}

#[test]
fn relay__refuses_one_client_too_many() {
    let server = socket();
    let relay = relay_to(&server, LinkConfig::default());
    let clients: Vec<UdpSocket> = (0..=MAX_CLIENTS).map(|_| socket()).collect();
    for client in &clients {
        send_numbered(client, relay.addr(), 0..1);
    }
    let stats = wait_for(&relay, |stats| stats.refused > 0);
    assert_eq!((stats.clients, stats.refused), (MAX_CLIENTS, 1));
}

#[test]
fn put_on_link__bounds_what_is_in_flight() {
    let config = LinkConfig {
        delay: Duration::from_secs(3600),
        ..LinkConfig::default()
    };
    let server = socket();
    let relay = relay_to(&server, config);
    let client = socket();
    let limit = MAX_IN_FLIGHT_PACKETS as u64;
    // In steps, so that the relay's socket does not overflow instead.
    for step in 1..=limit / 256 {
        send_numbered(&client, relay.addr(), 0..256);
        wait_for(&relay, |stats| stats.a_to_b.sent == step * 256);
    }
    send_numbered(&client, relay.addr(), 0..5);
    let stats = wait_for(&relay, |stats| stats.overflowed == 5);
    assert_eq!(stats.a_to_b.sent, limit);
}

#[test]
fn drop__ends_the_thread_and_frees_the_port() {
    let server = socket();
    let is_free_again = |_| {
        let relay = relay_to(&server, LinkConfig::default());
        let address = relay.addr();
        UdpSocket::bind(address).expect_err("in use");
        drop(relay);
        UdpSocket::bind(address).is_ok()
    };
    // The kernel may have given it to another test meanwhile.
    assert!((0..20).any(is_free_again), "none is free again");
}
