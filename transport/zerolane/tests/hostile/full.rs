//! Tests that an endpoint limits the number of its connections.

use super::{PATIENCE, options};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use zerolane::counters::ListenerCounters;
use zerolane::failure::{CloseReason, Reason};
use zerolane::{Connection, Endpoint, Error, Options, Security};

/// Connects a client to `address`; returns the reason if it was refused.
fn knock(address: SocketAddr, security: fn() -> Security) -> Result<Connection, Reason> {
    match Connection::connect(address, &options(security())) {
        Ok(connection) => Ok(connection),
        Err(Error::Closed(CloseReason::Rejected { reason, .. })) => Err(reason),
        Err(other) => panic!("{other:?}"),
    }
}

/// Connects `clients` times to an end with `limits`, whose connections all stay, then once more after one has closed.
/// Returns how many were accepted at first, and the counters.
fn crowd(
    clients: usize,
    security: fn() -> Security,
    limits: impl FnOnce(Options) -> Options,
) -> (usize, ListenerCounters) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", limits(options(security()))).unwrap();
    let address = endpoint.local_addr();
    let (stop, stopped) = mpsc::channel::<()>();
    let (one_less, wanted) = mpsc::channel::<()>();
    let accepting = thread::spawn(move || {
        let mut accepted = vec![];
        let end = Instant::now() + PATIENCE;
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) && Instant::now() < end {
            accepted.extend(endpoint.accept(Some(Duration::from_millis(5))).unwrap());
            if wanted.try_recv().is_ok() {
                accepted.pop();
            }
            for connection in &mut accepted {
                let _ = connection.poll();
            }
        }
        endpoint.counters()
    });
    let mut inside = vec![];
    for _ in 0..clients {
        match knock(address, security) {
            Ok(connection) => inside.push(connection),
            Err(reason) => assert_eq!(reason, Reason::Busy),
        }
    }
    let first = inside.len();
    one_less.send(()).unwrap();
    let end = Instant::now() + PATIENCE;
    while knock(address, security).is_err() {
        assert!(Instant::now() < end, "no client gets in any more");
    }
    stop.send(()).unwrap();
    (first, accepting.join().unwrap())
}

#[test]
fn accept__no_more_than_there_may_be() {
    for security in [Security::default, Security::plain] {
        let (inside, counters) = crowd(5, security, |options| {
            options.with(|it| it.listen.max_connections = 3)
        });
        assert_eq!(inside, 3);
        assert!(counters.full >= 2, "{counters:?}");
        assert_eq!(counters.full_of_origin, 0);
    }
}

#[test]
fn accept__no_more_of_one_origin_than_there_may_be() {
    for security in [Security::default, Security::plain] {
        let (inside, counters) = crowd(5, security, |options| {
            options.with(|it| it.listen.max_connections_of_origin = 2)
        });
        assert_eq!(inside, 2);
        assert!(counters.full_of_origin >= 3, "{counters:?}");
        assert_eq!(counters.full, 0);
    }
}

/// Two endpoints that listen on one port would each get some of the clients.
#[test]
fn bind__a_port_that_is_in_use() {
    let first = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let again = Endpoint::bind(first.local_addr(), Options::default());
    match again {
        Err(Error::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
        other => panic!("{other:?}"),
    }
    let address = first.local_addr();
    drop(first);
    Endpoint::bind(address, Options::default()).expect("free again");
}
