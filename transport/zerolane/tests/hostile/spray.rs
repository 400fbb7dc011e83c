//! Tests that a host on the client's wire cannot disturb a transfer by spraying forged packets.
//!
//! The attacker is off the path but has overheard packets, and sends in the client's name. In two namespaces.

use super::{PATIENCE, options, pattern};
use netlab::forge::{Forger, overhear};
use netlab::netns::{self, Topology};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use zerolane::counters::{Account, Counters, DropReason};
use zerolane::{Connection, Endpoint, Security};

const MTU: u32 = 1500;
/// Length of a message; messages follow one another until the spray is over.
const BYTES: usize = 4 << 20;
/// Packets made from one batch of overheard ones.
const LOT: usize = 4000;

/// Receives message after message until the sender closes; returns the counters.
fn receive(hosts: &Topology, tell: &Sender<SocketAddr>) -> (usize, Account) {
    hosts.b().enter().unwrap();
    let options = options(Security::default());
    let mut endpoint = Endpoint::bind((hosts.b().ipv4(), 0), options).unwrap();
    tell.send(endpoint.local_addr()).unwrap();
    let mut connection = endpoint.accept(Some(PATIENCE)).unwrap().expect("a client");
    let (mut buffer, mut messages, right) = (vec![0; BYTES], 0, pattern(BYTES));
    while let Ok(len) = connection.recv_into(&mut buffer) {
        assert!(len == BYTES && buffer == right, "wrong content");
        buffer.fill(0);
        messages += 1;
    }
    (messages, connection.account())
}

fn send(hosts: &Topology, to: SocketAddr, gso: bool, over: &AtomicBool) {
    hosts.a().enter().unwrap();
    let options = options(Security::default()).with(|it| it.datagrams.gso = gso);
    let mut connection = Connection::connect(to, &options).unwrap();
    let content = pattern(BYTES);
    while !over.load(Ordering::Relaxed) {
        connection.send(&content).unwrap();
    }
    connection.close().unwrap();
}

/// Spoils an overheard packet in one of four ways.
fn spoil(payload: &mut Vec<u8>, number: usize) {
    match number % 4 {
        // Replayed as it is.
        0 => {}
        1 => payload.truncate(number * 31 % payload.len()),
        2 => {
            let bit = number * 7919 % (payload.len() * 8);
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        // Its header, with arbitrary bytes after it.
        _ => payload
            .iter_mut()
            .skip(40)
            .enumerate()
            .for_each(|(n, byte)| *byte = (n * number) as u8),
    }
}

/// Sprays that many packets, however long it takes; returns how many the kernel accepted.
fn spray(hosts: &Topology, server: SocketAddr, packets: usize) -> u64 {
    hosts.a().enter().unwrap();
    let device = hosts.a().device();
    let forger = Forger::open(device).unwrap();
    // Making each, and the kernel's check of it, takes seconds in total.
    let (end, mut sent, mut made) = (Instant::now() + 4 * PATIENCE, 0, 0);
    while made < packets {
        assert!(Instant::now() < end, "{made} packets made");
        let heard = overhear(device, MTU, 64, Duration::from_millis(100)).unwrap();
        let to_server = |it: &netlab::forge::Datagram| {
            SocketAddr::from(it.to) == server && (256..=MTU as usize).contains(&it.payload.len())
        };
        let real: Vec<_> = heard.into_iter().filter(to_server).collect();
        if real.is_empty() {
            continue;
        }
        for _ in 0..LOT.min(packets - made) / 50 {
            let frames: Vec<_> = (made..made + 50)
                .map(|number| {
                    let mut packet = real[number % real.len()].clone();
                    spoil(&mut packet.payload, number);
                    packet.frame()
                })
                .collect();
            let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
            sent += frames.len() as u64 - forger.send(&frames);
            made += 50;
        }
    }
    sent
}

/// Transfers while that many packets are sprayed, from a sender with offload or without; returns the receiver's
/// counters. `None` without root.
fn transfer_under_spray(gso: bool, packets: usize) -> Option<Counters> {
    if !netns::is_permitted() {
        eprintln!("skipped: needs root");
        return None;
    }
    let hosts = Topology::pair("spray", MTU).unwrap();
    let over = AtomicBool::new(false);
    let (tell, address) = channel();
    let (sent, (messages, account)) = thread::scope(|scope| {
        let (hosts, over) = (&hosts, &over);
        let receiver = scope.spawn(move || receive(hosts, &tell));
        let address = address.recv_timeout(PATIENCE).unwrap();
        let sender = scope.spawn(move || send(hosts, address, gso, over));
        let attacker = scope.spawn(move || spray(hosts, address, packets));
        let sent = attacker.join();
        over.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        (sent.unwrap(), receiver.join().unwrap())
    });
    eprintln!("{sent} sent; {messages} messages; {:?}", account.protocol);
    assert!(sent as usize > packets / 2, "{sent} packets left");
    assert!(messages > 0);
    assert_eq!(account.protocol.bytes_received, (messages * BYTES) as u64);
    Some(account.protocol)
}

#[test]
fn encrypted__a_transfer_goes_on_under_a_hundred_thousand_made_up_packets() {
    let Some(counters) = transfer_under_spray(false, 100_000) else {
        return;
    };
    for reason in [DropReason::Forged, DropReason::Replayed] {
        assert!(counters.dropped(reason) > 1000, "{reason:?}");
    }
}

/// A datagram without an operation may be part of a train: it spoils some, until no more are sent.
#[test]
fn encrypted__trains_go_on_under_made_up_packets() {
    let Some(counters) = transfer_under_spray(true, 30_000) else {
        return;
    };
    assert!(counters.trains_received > 0);
    assert!(counters.trains_broken > 0);
    assert!(counters.dropped_total() > 1000);
}
