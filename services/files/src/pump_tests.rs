//! Tests that the pump sends and receives everything before it ends.

#![allow(non_snake_case)]

use super::*;
use crate::service_tests::relay;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use zerolane::{Endpoint, Options};

const LONG: Duration = Duration::from_secs(60);

/// The two ends of a connection: the connecting one, by way of `via`, and the accepting one.
pub(crate) fn connected(via: impl FnOnce(SocketAddr) -> SocketAddr) -> (Connection, Connection) {
    connected_with(Options::default(), via)
}

/// The two ends of a connection, both with these options.
pub(crate) fn connected_with(
    options: Options,
    via: impl FnOnce(SocketAddr) -> SocketAddr,
) -> (Connection, Connection) {
    let mut endpoint = Endpoint::bind((Ipv4Addr::LOCALHOST, 0), options.clone()).unwrap();
    let address = via(endpoint.local_addr());
    let connecting = thread::spawn(move || Connection::connect(address, &options).unwrap());
    let accepted = endpoint.accept(Some(LONG)).unwrap().unwrap();
    (connecting.join().unwrap(), accepted)
}

#[test]
fn grow__by_the_round_trip_up_to_the_limit() {
    for (milliseconds, count) in [(0, 3), (1, 4), (20, 23), (200, 30)] {
        let mut ring = Ring {
            count: DATA_BUFFERS,
            most: 30,
            bytes: 1,
        };
        let round_trip = Duration::from_millis(milliseconds);
        while ring.grow(round_trip).is_some() {}
        assert_eq!(ring.count, count, "{milliseconds} ms");
    }
}

#[test]
fn run__on_a_long_path_there_are_more_buffers_before_anything_was_confirmed() {
    const DELAY: Duration = Duration::from_millis(5);
    let (mut connection, _other) = connected(|address| relay(address, usize::MAX, DELAY));
    let stop = Stop::default();
    let free = run(&mut connection, DATA, CONTROL, &stop, |mut port| {
        let mut free = Vec::new();
        let until = Instant::now() + LONG;
        while free.len() <= DATA_BUFFERS && Instant::now() < until {
            port.poll()?;
            free.extend(port.take_free());
        }
        Ok(free.len())
    });
    assert!(free.unwrap() > DATA_BUFFERS);
}

/// Earlier messages are sent completely, and do not count as the file side's.
#[test]
fn run_counted__ends_when_what_was_said_before_was_sent() {
    // Too much to be sent before it is received.
    const SAID: usize = 100_000;
    let (mut hears, mut says) = connected(|address| address);
    let said = says.post_send(Region::from_vec(vec![7; SAID])).unwrap();
    let (worked, works) = channel();
    let pumping = thread::spawn(move || {
        let context = (&Stop::default(), Arc::default());
        run_counted(&mut says, vec![said], (CONTROL, CONTROL), context, |port| {
            drop(port);
            worked.send(()).unwrap();
            Ok(())
        })
    });
    works.recv_timeout(LONG).unwrap();
    // If it ended with the work, it would have ended by now.
    thread::sleep(Duration::from_millis(200));
    assert!(!pumping.is_finished());
    hears.post_recv(Region::from_vec(vec![0; SAID])).unwrap();
    let heard = hears.wait(Some(LONG)).unwrap().got().unwrap();
    assert_eq!(heard.result, Ok(SAID));
    assert!(
        heard
            .into_region()
            .expect("a region")
            .iter()
            .all(|&byte| byte == 7)
    );
    pumping.join().unwrap().unwrap();
}

#[test]
fn check__a_peer_that_takes_nothing_is_not_stuck_while_it_says_something() {
    let (mut connection, mut other) = connected(|address| address);
    let not_taken = Region::from_vec(vec![7; 100_000]);
    let not_taken = connection.post_send(not_taken).unwrap();
    let (_port, end) = port(vec![], vec![], Arc::default(), || {});
    let (outgoing, incoming) = (CONTROL, CONTROL);
    let rings = Rings { outgoing, incoming };
    let (stop, mut watch) = (Stop::default(), ());
    let context = (&stop, &mut watch as &mut dyn Watch);
    let mut pump = Pump::new(&mut connection, vec![not_taken], end, rings, context);
    pump.receive_into(Region::from_vec(vec![0; 1])).unwrap();
    let long_ago = Instant::now() - Duration::from_secs(STALL_SECONDS + 1);
    pump.moved = long_ago;
    assert!(matches!(pump.check(), Err(Error::Stalled)));
    other.post_send(Region::from_vec(vec![1])).unwrap();
    let came = loop {
        other.wait(Some(Duration::from_millis(1))).unwrap();
        let came = pump
            .connection
            .wait(Some(Duration::from_millis(1)))
            .map(zerolane::Waited::got);
        if let Some(came) = came.unwrap() {
            break came;
        }
    };
    pump.complete(came).unwrap();
    pump.check().unwrap();
}

#[test]
fn run__work_that_asks_hears_that_the_connection_has_ended() {
    let (mut connection, other) = connected(|address| address);
    let closing = thread::spawn(move || other.close());
    let stop = Stop::default();
    let asked = run(&mut connection, CONTROL, CONTROL, &stop, |port| {
        let check = port.check();
        let until = Instant::now() + LONG;
        while check().is_ok() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(check())
    });
    let asked = asked.unwrap();
    assert!(matches!(asked, Err(Error::PeerGone)), "{asked:?}");
    let _ = closing.join().unwrap();
}
