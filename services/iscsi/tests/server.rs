//! Tests that the server accepts simultaneous connections.

#![allow(non_snake_case)]

mod support;

use std::io::pipe;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::portal;
use zerolane_iscsi::server::{Server, ServerEvent};

#[test]
fn server__takes_all_that_connect_at_once() {
    const CLIENTS: usize = 8;
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(address, portal(1 << 20), 1).unwrap();
    let address = server.address().unwrap();
    let clients = [(); CLIENTS].map(|()| TcpStream::connect(address).unwrap());
    let (came, (stopped, stop)) = (AtomicUsize::new(0), pipe().unwrap());
    let stop = Mutex::new(Some(stop));
    let tell = |news| {
        let is_one = matches!(news, ServerEvent::Connected(_));
        if is_one && came.fetch_add(1, Ordering::Relaxed) + 1 == CLIENTS {
            // Its end is readable.
            *stop.lock().unwrap() = None;
        }
    };
    server.serve(stopped, tell).unwrap();
    assert_eq!(came.load(Ordering::Relaxed), CLIENTS);
    drop(clients);
}
