//! Tests that one connection can use several paths, with payload verified by content.
//!
//! ```text
//!  stream.rs          the stream, every byte of which is checked
//!  relays.rs          through emulated links on loopback, by any user
//!  interfaces.rs      over veth pairs that go down, are deleted or renamed
//!  mixed.rs           over UDP by one veth pair and raw Ethernet by the other
//!  ethernet_first.rs  the first path over raw Ethernet, and others of either kind
//!  switches.rs        through emulated switches that die
//!  operations.rs      gets, atomic operations and messages when their path dies
//!  pairs.rs           rates over veth pairs, with one thread and with one for each path
//!  rates.rs           over emulated links, by the clock
//! ```
//!
//! Only the time that a failure takes to show depends on the clock.
#![allow(non_snake_case)]

#[path = "../content/mod.rs"]
mod bytes;
mod ethernet_first;
mod interfaces;
mod mixed;
mod operations;
mod pairs;
mod rates;
mod relays;
mod stream;
mod switches;

use netlab::netns::{self, Namespace, Topology};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use stream::{
    ADDED, PATIENCE, PIECE, THREADS, accept, assert_in_time, bytes_sent, content, joins_in_turn,
    options, receive, send, until_alone, until_lost, until_usable, usable,
};
use zerolane::options::{EthernetAddress, LaneChoice, PathAddresses};
use zerolane::{Endpoint, Options};

/// Whether namespaces are permitted; prints a message if not.
fn is_permitted() -> bool {
    let permitted = netns::is_permitted();
    if !permitted {
        eprintln!("skipped: network namespaces need root");
    }
    permitted
}

/// Two hosts joined by two veth pairs, if permitted.
fn two_pairs() -> Option<Topology> {
    is_permitted().then(|| Topology::pairs("paths", 1500, 2).expect("permitted"))
}

/// A path from the interface with this index of one host to that of another, which listens at `port`.
fn path_between(here: &Namespace, there: &Namespace, index: usize, port: u16) -> PathAddresses {
    PathAddresses::Udp {
        local: Some((here.interface(index).ipv4(), 0).into()),
        peer: Some((there.interface(index).ipv4(), port).into()),
    }
}

/// The hardware address of the interface with this index.
fn hardware_of(host: &Namespace, index: usize) -> String {
    let kernel = host.rtnetlink().expect("there");
    let address = kernel.hardware_address(host.interface(index).device());
    hardware_text(address.expect("read"))
}

fn hardware_text(address: [u8; 6]) -> String {
    address.map(|it| format!("{it:02x}")).join(":")
}

/// The raw Ethernet address of `port` at the first interface of `there`, as seen by `here`, whose namespace this thread
/// is in.
fn ethernet_address(here: &Namespace, there: &Namespace, port: u16) -> SocketAddr {
    let hardware = hardware_of(there, 0);
    let text = format!("ether:{}/{hardware}:{port}", here.device());
    let address: EthernetAddress = text.parse().expect("an address");
    let mut found = address.to_socket_addrs().expect("an interface");
    found.next().expect("one")
}

/// Runs `serve` and `call` in the two hosts. `serve` gets an endpoint that listens at any address of `b`, or over raw
/// Ethernet at its first interface. `call` runs in `a`, with the address of `b`'s first interface and the UDP path
/// between the second ones. Returns both results.
fn between<A: Send, B: Send>(
    hosts: (&Namespace, &Namespace),
    options: &Options,
    serve: impl FnOnce(&mut Endpoint) -> B + Send,
    call: impl FnOnce(SocketAddr, PathAddresses) -> A + Send,
) -> (A, B) {
    between_owned(hosts, options, |mut endpoint| serve(&mut endpoint), call)
}

/// Like [`between`], where `serve` owns the endpoint.
fn between_owned<A: Send, B: Send>(
    (a, b): (&Namespace, &Namespace),
    options: &Options,
    serve: impl FnOnce(Endpoint) -> B + Send,
    call: impl FnOnce(SocketAddr, PathAddresses) -> A + Send,
) -> (A, B) {
    let (tell, told): (Sender<u16>, Receiver<u16>) = channel();
    let served = || {
        b.enter().expect("enter");
        let endpoint = match options.lane.choice {
            LaneChoice::Ethernet => {
                let own = EthernetAddress::new(b.device(), None, 0);
                Endpoint::bind(own, options.clone()).expect("bind")
            }
            _ => Endpoint::bind((Ipv4Addr::UNSPECIFIED, 0), options.clone()).expect("bind"),
        };
        tell.send(endpoint.local_addr().port()).expect("heard");
        serve(endpoint)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(served);
        let port = told.recv_timeout(PATIENCE).expect("listening");
        let called = a.enter_thread(|| {
            let to = match options.lane.choice {
                LaneChoice::Ethernet => ethernet_address(a, b, port),
                _ => (b.ipv4(), port).into(),
            };
            call(to, path_between(a, b, 1, port))
        });
        let called = called.expect("enter");
        (called, server.join().expect("served"))
    })
}
