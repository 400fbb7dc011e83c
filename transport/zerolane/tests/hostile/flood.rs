//! Tests that a flood of connection requests by off-path attackers does not keep clients out.

use super::{PATIENCE, options};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use zerolane::{Connection, Endpoint, Security};

/// A Hello as sent by an honest client.
fn hello() -> Vec<u8> {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = silent.local_addr().unwrap();
    let client = thread::spawn(move || {
        let impatient =
            options(Security::default()).with(|it| it.times.connect = Duration::from_millis(100));
        Connection::connect(address, &impatient).map(drop)
    });
    let mut buffer = [0; 2048];
    let len = silent.recv(&mut buffer).unwrap();
    assert!(client.join().unwrap().is_err());
    buffer[..len].to_vec()
}

/// Sends Hellos from `count` addresses of loopback, each with an exchange of its own.
fn knock(server: std::net::SocketAddr, count: u32) {
    let hello = hello();
    for n in 0..count {
        let from = Ipv4Addr::from_bits(0x7f01_0001 + n);
        let socket = UdpSocket::bind((from, 0)).unwrap();
        let mut forged = hello.clone();
        forged[36..40].copy_from_slice(&n.to_be_bytes());
        socket.send_to(&forged, server).unwrap();
    }
}

#[test]
fn hello__a_real_client_gets_in_among_thousands_that_only_knock() {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options(Security::default())).unwrap();
    let server = endpoint.local_addr();
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let accepting = thread::spawn(move || {
        let mut accepted = 0;
        let end = Instant::now() + PATIENCE;
        while !stop.load(Ordering::Relaxed) && Instant::now() < end {
            if let Some(mut connection) = endpoint.accept(Some(Duration::from_millis(20))).unwrap()
            {
                let mut word = [0; 4];
                connection.recv_into(&mut word).unwrap();
                assert_eq!(&word, b"here");
                accepted += 1;
            }
        }
        (accepted, endpoint.gate_counters().unwrap())
    });
    let flood = thread::spawn(move || knock(server, 3000));
    let mut client = Connection::connect(server, &options(Security::default())).unwrap();
    client.send(b"here").unwrap();
    flood.join().unwrap();
    // And a client that comes when the gate is fullest.
    let mut late = Connection::connect(server, &options(Security::default())).unwrap();
    late.send(b"here").unwrap();
    done.store(true, Ordering::Relaxed);
    let (accepted, counters) = accepting.join().unwrap();
    assert_eq!(accepted, 2);
    assert!(counters.retried > 0, "{counters:?}");
    assert!(counters.answered < 100, "{counters:?}");
    assert_eq!(counters.admitted, 2);
}
