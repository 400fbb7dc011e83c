//! Tests that a program decides about requests for connections, and that private data travels with both answers.

use super::{PATIENCE, anywhere, plain};
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, Reason};
use zerolane::options::{LaneChoice, PrivateData};
use zerolane::security::Mode;
use zerolane::worker::{Event, Worker};
use zerolane::{Connection, Endpoint, Error, Options, Result, Security};
use zerolane_core::{BurstLimit, Config, Entropy, Instant as Start, Transmit};
use zerolane_wire::{HEADER_LEN, MAX_CONTROL};

/// Long enough for what must not happen to happen.
const MOMENT: Duration = Duration::from_millis(300);

fn data(bytes: &[u8]) -> Option<PrivateData> {
    Some(PrivateData::new(bytes).expect("short enough"))
}

/// The options of a client of each lane, encrypted and plain.
fn of_each_lane() -> Vec<Options> {
    let mut all = Vec::new();
    for security in [Security::default(), Security::plain()] {
        for lane in [LaneChoice::Udp, LaneChoice::SharedMemory, LaneChoice::Best] {
            all.push(Options::default().with(|it| {
                it.security = security.clone();
                it.lane.choice = lane;
                it.times.connect = PATIENCE;
                it.private_data = data(b"a client");
            }));
        }
    }
    all
}

fn by_udp(connect: Duration) -> Options {
    plain().with(|it| {
        it.lane.choice = LaneChoice::Udp;
        it.times.connect = connect;
    })
}

fn asking(client: &Options, backlog: u16) -> Options {
    client.clone().with(|it| {
        it.listen.asks = true;
        it.listen.backlog = backlog;
        it.private_data = data(b"as usual");
    })
}

/// A client in a thread of its own.
fn connecting(to: SocketAddr, options: &Options) -> Receiver<Result<Connection>> {
    let (tell, connected) = channel();
    let options = options.clone();
    thread::spawn(move || {
        let mut connected = Connection::connect(to, &options);
        let again = connected.as_mut().map(|it| it.wait(Some(Duration::ZERO)));
        drop(again);
        // The test may be over.
        let _ = tell.send(connected);
    });
    connected
}

fn is_refused(outcome: Result<Connection>) -> bool {
    let refused = |error: &Error| {
        matches!(
            error,
            Error::Closed(CloseReason::Rejected {
                reason: Reason::Refused,
                ..
            })
        )
    };
    match outcome {
        Err(error) if refused(&error) => {
            let said = error.to_string();
            assert!(said.contains("the program there refused"), "{said}");
            true
        }
        other => panic!("{other:?}"),
    }
}

fn told(client: &Receiver<Result<Connection>>) -> Result<Connection> {
    client.recv_timeout(PATIENCE).expect("an outcome")
}

#[test]
fn incoming__is_accepted_or_refused_over_every_lane() {
    for client in of_each_lane() {
        for backlog in [0, 1, 64] {
            let options = asking(&client, backlog);
            let mut endpoint = Endpoint::bind(anywhere(), options).expect("a port");
            let address = endpoint.local_addr();
            let first = connecting(address, &client);
            let incoming = endpoint.incoming(Some(PATIENCE)).expect("it listens");
            let incoming = incoming.expect("in time");
            assert_eq!(incoming.data(), b"a client");
            assert_eq!(incoming.peer_addr().ip(), address.ip());
            assert_eq!(
                incoming.peer_key().is_some(),
                client.security.mode != Mode::Plain
            );
            let undecided = first.recv_timeout(MOMENT).map(drop);
            assert_eq!(undecided, Err(RecvTimeoutError::Timeout), "{client:?}");
            let mut accepted = incoming.accept(data(b"you are the first"));
            let mut connected = told(&first).expect("accepted");
            assert_eq!(connected.peer_data(), b"you are the first");
            assert_eq!(accepted.peer_data(), b"a client");
            let sending = thread::spawn(move || connected.send(b"hello"));
            let mut heard = [0; 5];
            accepted.recv_into(&mut heard).expect("it comes");
            assert_eq!(&heard, b"hello");
            sending.join().expect("no panic").expect("received");

            let second = connecting(address, &client);
            let incoming = endpoint.incoming(Some(PATIENCE)).expect("it listens");
            incoming.expect("in time").refuse();
            assert!(is_refused(told(&second)));

            let third = connecting(address, &client);
            let incoming = endpoint.incoming(Some(PATIENCE)).expect("it listens");
            drop(incoming.expect("in time"));
            assert!(is_refused(told(&third)));

            let fourth = connecting(address, &client);
            let mut accepted = endpoint.accept(Some(PATIENCE)).expect("it listens");
            let accepted = accepted.as_mut().expect("in time");
            let connected = told(&fourth).expect("accepted");
            assert_eq!(connected.peer_data(), b"as usual");
            assert_eq!(accepted.peer_data(), b"a client");
        }
    }
}

#[test]
fn incoming__of_an_endpoint_that_accepts_by_itself_is_an_error() {
    let mut endpoint = Endpoint::bind(anywhere(), plain()).expect("a port");
    let error = endpoint.incoming(None).expect_err("it was not asked for");
    assert!(
        error.to_string().contains("set options.listen.asks"),
        "{error}"
    );
    let worker = Worker::new().expect("descriptors").spawn().expect("thread");
    let endpoint = worker.listen(anywhere(), plain()).wait().expect("a port");
    let refused = endpoint.incoming().wait().expect_err("not asked for");
    assert!(
        refused
            .error
            .to_string()
            .contains("set options.listen.asks")
    );
}

/// Requests beyond the backlog wait, and none is lost.
#[test]
fn incoming__more_requests_than_the_backlog_holds() {
    let client = by_udp(PATIENCE);
    let mut endpoint = Endpoint::bind(anywhere(), asking(&client, 2)).expect("a port");
    let address = endpoint.local_addr();
    let clients: Vec<_> = (0..5u8)
        .map(|n| {
            let own = client.clone().with(|it| it.private_data = data(&[n]));
            connecting(address, &own)
        })
        .collect();
    thread::sleep(MOMENT);
    let mut held = Vec::new();
    for _ in 0..5 {
        let incoming = endpoint.incoming(Some(PATIENCE)).expect("it listens");
        held.push(incoming.expect("in time"));
    }
    let more = endpoint.incoming(Some(MOMENT)).expect("it listens");
    assert!(more.is_none(), "each request once: {more:?}");
    let mut connections = Vec::new();
    for incoming in held {
        let n = incoming.data()[0];
        match n % 2 {
            0 => connections.push(incoming.accept(data(&[n, n]))),
            _ => incoming.refuse(),
        }
    }
    for (n, client) in (0..).zip(&clients) {
        match n % 2 {
            0 => {
                let connected = told(client).expect("accepted");
                assert_eq!(connected.peer_data(), [n, n]);
            }
            _ => assert!(is_refused(told(client))),
        }
    }
}

/// A client that gave up leaves the backlog.
#[test]
fn incoming__of_a_client_that_gave_up() {
    let client = by_udp(MOMENT);
    let mut endpoint = Endpoint::bind(anywhere(), asking(&client, 1)).expect("a port");
    let address = endpoint.local_addr();
    let gone = told(&connecting(address, &client));
    assert!(matches!(gone, Err(Error::ConnectTimeout(_))), "{gone:?}");
    // There is room for the next one, unless the first one stays.
    let patient = by_udp(PATIENCE).with(|it| it.private_data = data(b"patient"));
    let second = connecting(address, &patient);
    let end = Instant::now() + PATIENCE;
    let accepted = loop {
        assert!(Instant::now() < end, "the second one never came");
        let incoming = endpoint.incoming(Some(PATIENCE)).expect("it listens");
        let incoming = incoming.expect("in time");
        if incoming.data() == b"patient" {
            break incoming.accept(None);
        }
    };
    assert!(told(&second).is_ok());
    drop(accepted);
}

/// Takes events of `worker` until one is `wanted`, whose value is returned.
fn until<T>(worker: &mut Worker, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        worker.wait(Some(MOMENT)).expect("the system allows it");
        while let Some(event) = worker.next_event() {
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        assert!(Instant::now() < end, "nothing in time");
    }
}

#[test]
fn requested__a_worker_called_by_its_user_decides() {
    for client in of_each_lane() {
        let mut worker = Worker::new().expect("descriptors");
        let endpoint = worker.listen(anywhere(), asking(&client, 64));
        let endpoint = endpoint.expect("a port");
        let address = worker.endpoint(endpoint).expect("it listens").local_addr();
        let requested = |event| match event {
            Event::Requested {
                endpoint: of,
                connection,
            } if of == endpoint => Some(connection),
            other => panic!("{other:?}"),
        };
        let first = connecting(address, &client);
        let id = until(&mut worker, requested);
        let connection = worker.connection(id).expect("it waits");
        assert_eq!(connection.peer_data(), b"a client");
        assert!(worker.release(id).is_none(), "it is not accepted");
        let undecided = first.recv_timeout(Duration::from_millis(20)).map(drop);
        assert_eq!(undecided, Err(RecvTimeoutError::Timeout));
        assert!(worker.accept_request(id, data(b"yes")));
        assert!(!worker.accept_request(id, None), "once");
        assert!(!worker.refuse_request(id), "too late");
        let connected = loop {
            worker.wait(Some(Duration::from_millis(5))).expect("turns");
            if let Ok(connected) = first.try_recv() {
                break connected.expect("accepted");
            }
        };
        assert_eq!(connected.peer_data(), b"yes");
        drop(connected);
        let closed = |event| match event {
            Event::Closed { connection, reason } => Some((connection, reason)),
            _ => None,
        };
        assert_eq!(until(&mut worker, closed).0, id);

        let second = connecting(address, &client);
        let id = until(&mut worker, requested);
        assert!(worker.refuse_request(id));
        let (closed, reason) = until(&mut worker, closed);
        assert_eq!(closed, id);
        assert!(
            matches!(reason, Error::Closed(CloseReason::Local)),
            "{reason}"
        );
        assert!(is_refused(told(&second)));

        let third = connecting(address, &client);
        let id = until(&mut worker, requested);
        assert!(worker.close(id), "also a refusal");
        until(&mut worker, |event| {
            matches!(event, Event::Closed { .. }).then_some(())
        });
        assert!(is_refused(told(&third)));
        assert_eq!(worker.connections(), 0);
    }
}

#[test]
fn incoming__handles_decide() {
    for client in of_each_lane() {
        let worker = Worker::new().expect("descriptors").spawn().expect("thread");
        let endpoint = worker.listen(anywhere(), asking(&client, 64)).wait();
        let endpoint = endpoint.expect("a port");
        let address = endpoint.local_addr();
        // One that was given up does not take a request.
        drop(endpoint.incoming());
        let connected = worker.connect(address, &client);
        let incoming = endpoint.incoming().wait().expect("it listens");
        assert_eq!(incoming.data(), b"a client");
        assert_eq!(
            incoming.peer_key().is_some(),
            client.security.mode != Mode::Plain
        );
        let accepted = incoming.accept(data(b"yes"));
        let connected = connected.wait().expect("accepted");
        assert_eq!(connected.peer_data(), b"yes");
        assert_eq!(accepted.peer_data(), b"a client");
        let sent = connected.send(super::region(1, 5));
        let received = accepted.recv(super::region(2, 5)).wait();
        assert_eq!(received.expect("open").result, Ok(5));
        assert!(sent.wait().expect("open").result.is_ok());

        for drops in [false, true] {
            let refused = connecting(address, &client);
            let incoming = endpoint.incoming().wait().expect("it listens");
            match drops {
                true => drop(incoming),
                false => incoming.refuse(),
            }
            assert!(is_refused(told(&refused)));
        }

        // A connection that came before anything asked for it.
        let connected = worker.connect(address, &client);
        thread::sleep(Duration::from_millis(20));
        let accepted = endpoint.accept().wait().expect("it listens");
        let connected = connected.wait().expect("accepted");
        assert_eq!(connected.peer_data(), b"as usual");
        drop(accepted);
    }
}

/// The backlog's requests go to the worker that takes over.
#[test]
fn listen_on__takes_over_undecided_requests() {
    let client = by_udp(PATIENCE).with(|it| it.private_data = data(b"a client"));
    let endpoint = Endpoint::bind(anywhere(), asking(&client, 8)).expect("a port");
    let connecting = connecting(endpoint.local_addr(), &client);
    thread::sleep(MOMENT);
    let mut worker = Worker::new().expect("descriptors");
    worker.listen_on(endpoint).expect("taken over");
    let id = until(&mut worker, |event| match event {
        Event::Requested { connection, .. } => Some(connection),
        other => panic!("{other:?}"),
    });
    assert!(worker.accept_request(id, None));
    let connected = loop {
        worker.wait(Some(Duration::from_millis(5))).expect("turns");
        if let Ok(connected) = connecting.try_recv() {
            break connected.expect("accepted");
        }
    };
    assert_eq!(connected.peer_data(), b"as usual");
}

/// What a peer says about the length of its data is checked against what came.
#[test]
fn request__with_data_of_another_length_is_refused_and_counted() {
    let client = by_udp(PATIENCE);
    let mut endpoint = Endpoint::bind(anywhere(), asking(&client, 64)).expect("a port");
    let config = Config {
        private_data: data(b"good"),
        ..Config::default()
    };
    let entropy = Entropy {
        key: 7,
        port: 9,
        sync: 11,
    };
    let mut core = zerolane_core::Connection::connect(Start::ZERO, config, entropy);
    let good = match core.poll_transmit(Start::ZERO, BurstLimit::default()) {
        Some(Transmit::Control(it)) => it.bytes().to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(good.len(), MAX_CONTROL);
    let socket = UdpSocket::bind(anywhere()).expect("a port");
    socket.connect(endpoint.local_addr()).expect("a route");
    let wrong = [(66, 136), (255, 136), (0, 136), (5, 72), (5, 135), (5, 137)];
    for (said, len) in wrong {
        let mut bytes = good.clone();
        bytes.resize(len, 0);
        bytes[HEADER_LEN + 17] = said;
        socket.send(&bytes).expect("sent");
    }
    let end = Instant::now() + PATIENCE;
    while endpoint.counters().refused < wrong.len() as u64 {
        assert!(Instant::now() < end, "{:?}", endpoint.counters());
        thread::sleep(Duration::from_millis(5));
    }
    let none = endpoint.incoming(Some(Duration::ZERO)).expect("it listens");
    assert!(none.is_none(), "{none:?}");
    socket.set_nonblocking(true).expect("a socket");
    assert!(socket.recv(&mut [0; 200]).is_err(), "an answer");
    socket.send(&good).expect("sent");
    let incoming = endpoint.incoming(Some(PATIENCE)).expect("it listens");
    assert_eq!(incoming.expect("in time").data(), b"good");
}
