//! The server's sockets.

#![allow(non_snake_case)]

mod support;

use std::cell::Cell;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::portal;
use zerolane_iscsi::server::{News, Server};

/// How often a server that nothing connects to looks whether it is to stop is how often it wakes. A slow machine has it
/// look less often, never more.
#[test]
fn server__that_is_idle_sleeps() {
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(address, portal(1 << 20), 1).unwrap();
    let (looks, began) = (Cell::new(0), Instant::now());
    let stop = || {
        looks.set(looks.get() + 1);
        began.elapsed() > Duration::from_secs(1)
    };
    server.serve(stop, |_| {}).unwrap();
    assert!(looks.get() < 20, "{} wake-ups in a second", looks.get());
}

#[test]
fn server__takes_all_that_connect_at_once() {
    const CLIENTS: usize = 8;
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(address, portal(1 << 20), 1).unwrap();
    let address = server.address().unwrap();
    let clients = [(); CLIENTS].map(|()| TcpStream::connect(address).unwrap());
    let (came, began) = (AtomicUsize::new(0), Instant::now());
    let have_come = || came.load(Ordering::Relaxed) == CLIENTS;
    let tell = |news| {
        came.fetch_add(
            usize::from(matches!(news, News::Came(_))),
            Ordering::Relaxed,
        );
    };
    server
        .serve(|| have_come() || began.elapsed().as_secs() > 30, tell)
        .unwrap();
    assert!(have_come(), "{}", came.load(Ordering::Relaxed));
    drop(clients);
}
