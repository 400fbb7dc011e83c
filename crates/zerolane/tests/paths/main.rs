//! One connection over several paths, payload verified by content.
//!
//! ```text
//!  relays.rs      through emulated links on loopback, by any user
//!  interfaces.rs  over veth pairs, which go down, go away, get other names
//!  switches.rs    through emulated switches, which die
//!  operations.rs  gets, atomic operations and messages when their path dies
//!  rates.rs       over emulated links, by the clock
//! ```
//!
//! Nothing depends on the clock but how long a failure takes to show.
#![allow(non_snake_case)]

mod interfaces;
mod operations;
mod rates;
mod relays;
mod switches;

use netlab::netns::{self, Namespace, Topology};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use zerolane::counters::{PathLife, PathState};
use zerolane::options::PathAddresses;
use zerolane::{Connection, Endpoint, Options, Security};

/// Bounds how long a failure takes to show; never waited for otherwise.
const PATIENCE: Duration = Duration::from_secs(60);
const PIECE: usize = 1 << 20;

fn options(security: Security, paths: u8) -> Options {
    Options {
        security,
        paths,
        connect_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        ..Options::default()
    }
}

fn content(piece: usize) -> Vec<u8> {
    let seed = piece * 7919;
    (0..PIECE).map(|i| ((i * 31 + seed) >> 3) as u8).collect()
}

fn accept(endpoint: &mut Endpoint) -> Connection {
    let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
    accepted.expect("a client")
}

/// Receives pieces in order and looks at every byte, until the peer closes: how many.
fn receive(endpoint: &mut Endpoint) -> usize {
    let mut connection = accept(endpoint);
    let mut buffer = vec![0; PIECE];
    let mut pieces = 0;
    while let Ok(len) = connection.recv_into(&mut buffer) {
        assert_eq!(len, PIECE);
        assert!(buffer == content(pieces), "piece {pieces}");
        pieces += 1;
    }
    pieces
}

fn usable(connection: &Connection) -> usize {
    let paths = connection.paths();
    let usable = |it: &&(usize, PathState)| it.1.life == PathLife::Usable;
    paths.iter().filter(usable).count()
}

/// Sends pieces until `done` says so: how many. `done` is told of every piece.
fn send(
    connection: &mut Connection,
    mut done: impl FnMut(&mut Connection, usize) -> bool,
) -> usize {
    let start = Instant::now();
    let mut pieces = 0;
    while !done(connection, pieces) {
        assert!(start.elapsed() < PATIENCE, "{:?}", connection.paths());
        connection.send(&content(pieces)).expect("sent");
        pieces += 1;
    }
    pieces
}

fn bytes_sent(connection: &Connection, path: usize) -> u64 {
    let paths = connection.paths();
    let found = paths.iter().find(|it| it.0 == path);
    found.map_or(0, |it| it.1.bytes_sent)
}

/// Sends until so many paths are usable and as many pieces more have been sent: how many pieces in all are sent then.
fn until_usable(connection: &mut Connection, paths: usize, more: usize, sent: &mut usize) {
    let start = Instant::now();
    let mut left = more;
    while left > 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", connection.paths());
        connection.send(&content(*sent)).expect("sent");
        *sent += 1;
        match usable(connection) == paths {
            true => left -= 1,
            false => left = more,
        }
    }
}

/// Whether namespaces may be made; says it if not.
fn is_permitted() -> bool {
    let permitted = netns::is_permitted();
    if !permitted {
        eprintln!("skipped: network namespaces need root");
    }
    permitted
}

/// Two hosts joined by two veth pairs, if that is permitted.
fn two_pairs() -> Option<Topology> {
    is_permitted().then(|| Topology::pairs("paths", 1500, 2).expect("permitted"))
}

/// From the interface of this index of one host to that of another, where it listens at `port`.
fn path_between(here: &Namespace, there: &Namespace, index: usize, port: u16) -> PathAddresses {
    PathAddresses {
        local: Some((here.interface(index).ipv4(), 0).into()),
        peer: Some((there.interface(index).ipv4(), port).into()),
    }
}

/// What runs in the two hosts: `serve` with an endpoint that listens at any address of `b`, and `call` in `a`, which is told
/// the address of `b`'s first interface and the path between the second ones. What both return.
fn between<A: Send, B: Send>(
    (a, b): (&Namespace, &Namespace),
    options: &Options,
    serve: impl FnOnce(&mut Endpoint) -> B + Send,
    call: impl FnOnce(SocketAddr, PathAddresses) -> A + Send,
) -> (A, B) {
    let (tell, told): (Sender<u16>, Receiver<u16>) = channel();
    let served = || {
        b.enter().expect("enter");
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let mut endpoint = Endpoint::bind(any, options.clone()).expect("bind");
        tell.send(endpoint.local_addr().port()).expect("heard");
        serve(&mut endpoint)
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(served);
        let port = told.recv_timeout(PATIENCE).expect("listening");
        let called = a.enter_thread(|| {
            let to = (b.ipv4(), port).into();
            call(to, path_between(a, b, 1, port))
        });
        let called = called.expect("enter");
        (called, server.join().expect("served"))
    })
}
