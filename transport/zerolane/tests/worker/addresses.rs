//! Tests that connecting by a worker tries every address, as a `Connection` does.

use super::handles::spawned;
use super::{PATIENCE, anywhere, content, region};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use zerolane::worker::{ConnectionId, Event, Worker};
use zerolane::{Endpoint, Error, Options};

fn hasty() -> Options {
    Options::default().with(|it| it.times.connect = Duration::from_secs(2))
}

/// An address that refuses, and one whose socket stays silent while it lives.
fn dead() -> (SocketAddr, SocketAddr, UdpSocket) {
    let silent = UdpSocket::bind(anywhere()).expect("a port");
    let refusing = UdpSocket::bind("[::1]:0").or_else(|_| UdpSocket::bind(anywhere()));
    let refusing = refusing.expect("a port").local_addr().expect("bound");
    (refusing, silent.local_addr().expect("bound"), silent)
}

/// The next event that says how `of` was connected or ended.
fn outcome(worker: &mut Worker, of: ConnectionId) -> Event {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        worker.wait(Some(PATIENCE)).expect("it goes on");
        while let Some(event) = worker.next_event() {
            match event {
                Event::Connected { connection } | Event::Closed { connection, .. }
                    if connection == of =>
                {
                    return event;
                }
                _ => {}
            }
        }
    }
    panic!("neither connected nor closed");
}

#[test]
fn connect__goes_on_to_the_address_that_answers() {
    let mut worker = Worker::new().expect("descriptors");
    let endpoint = worker
        .listen("127.0.0.1:0", Options::default())
        .expect("a port");
    let live = worker.endpoint(endpoint).expect("it listens").local_addr();
    let (refusing, silent, _socket) = dead();
    // Of one link, without its interface: no host can begin to connect to it.
    let six = SocketAddr::from(([0xfe80, 0, 0, 0, 0, 0, 0, 1], 9));
    for addresses in [
        vec![live, silent],
        vec![six, live],
        vec![silent, six, live],
        vec![refusing, live],
        vec![silent, live],
        vec![refusing, silent, refusing, live],
    ] {
        let begun = worker.connect(&addresses, &hasty()).expect("begun");
        let connected = outcome(&mut worker, begun);
        let is_connected = matches!(connected, Event::Connected { .. });
        assert!(is_connected, "{addresses:?}: {connected:?}");
        let connection = worker.connection(begun).expect("open");
        assert_eq!(connection.peer_addr().ip(), live.ip());
        assert!(worker.close(begun));
        assert!(matches!(outcome(&mut worker, begun), Event::Closed { .. }));
    }
}

#[test]
fn connect__where_no_address_answers_says_so_once() {
    let mut worker = Worker::new().expect("descriptors");
    let (refusing, silent, _socket) = dead();
    let begun = worker.connect(vec![refusing, silent], &hasty());
    let begun = begun.expect("begun");
    match outcome(&mut worker, begun) {
        Event::Closed { reason, .. } => {
            assert!(matches!(reason, Error::ConnectTimeout(_)), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(worker.connections(), 0);
    let six = SocketAddr::from(([0xfe80, 0, 0, 0, 0, 0, 0, 1], 9));
    let begun = worker.connect(vec![silent, six], &hasty());
    let over = outcome(&mut worker, begun.expect("begun"));
    // Says what is wrong with the last.
    let Event::Closed { reason, .. } = over else {
        panic!("{over:?}");
    };
    assert!(matches!(reason, Error::Io(_)), "{reason}");
    let refused = worker.connect(six, &hasty());
    assert!(matches!(refused, Err(Error::Io(_))), "{refused:?}");
    assert_eq!(worker.connections(), 0);
    let none = worker.connect(Vec::<SocketAddr>::new(), &hasty());
    assert!(matches!(none, Err(Error::NoAddress)), "{none:?}");
    let wrong = worker.connect("127.0.0.1", &hasty()).expect_err("no port");
    assert!(wrong.to_string().contains("no port"), "{wrong}");
}

#[test]
fn connect__used_before_it_is_established_stays_with_its_address() {
    let mut worker = Worker::new().expect("descriptors");
    let endpoint = worker.listen(anywhere(), Options::default());
    let live = worker.endpoint(endpoint.expect("a port"));
    let live = live.expect("it listens").local_addr();
    let (refusing, _, _socket) = dead();
    let begun = worker.connect(vec![refusing, live], &hasty());
    let begun = begun.expect("begun");
    let connection = worker.connection(begun).expect("being made");
    connection.post_send(region(1, 8)).expect("posted");
    assert!(matches!(outcome(&mut worker, begun), Event::Closed { .. }));
    // Used as soon as it is there, it goes on.
    let begun = worker.connect(vec![live, refusing], &hasty());
    let begun = begun.expect("begun");
    let connection = worker.connection(begun).expect("being made");
    connection.post_send(region(1, 8)).expect("posted");
    assert!(matches!(
        outcome(&mut worker, begun),
        Event::Connected { .. }
    ));
}

#[test]
fn handle__listens_and_connects_by_name_and_by_each_address() {
    let worker = spawned();
    let (refusing, _, _socket) = dead();
    let taken = Endpoint::bind("127.0.0.1:0", Options::default()).expect("a port");
    let endpoint = worker
        .listen(vec![taken.local_addr(), anywhere()], Options::default())
        .wait()
        .expect("the second is free");
    let live = endpoint.local_addr();
    let client = worker.connect(vec![refusing, live], &hasty());
    let client = client.wait().expect("connected");
    let server = endpoint.accept().wait().expect("accepted");
    let received = server.recv(region(1, 8));
    client.send(region(3, 8)).detach();
    let received = received
        .wait()
        .expect("posted")
        .into_region()
        .expect("a region");
    assert!(received[..] == content(3, 8), "content");
    // `localhost` has an address of IPv6, too, on most hosts.
    let by_name = worker.connect(("localhost", live.port()), &hasty());
    by_name.wait().expect("connected");
    for (text, words) in [
        ("127.0.0.1", "no port"),
        ("127.0.0.1:x", "is not a port"),
        ("[fe80::1%no-such-one]:9", "no interface"),
    ] {
        let listened = worker.listen(text, Options::default()).wait();
        let connected = worker.connect(text, &hasty()).wait();
        for refused in [listened.map(drop), connected.map(drop)] {
            let said = refused.expect_err(text).error.to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
