//! Tests that an endpoint accepts connections ahead of its program.

use super::fork::in_a_child;
use super::{PATIENCE, anywhere, content, plain, region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, Reason};
use zerolane::options::LaneChoice;
use zerolane::request::{Message, OpenRegion, Transfer, WorkKind};
use zerolane::worker::{Event, Worker};
use zerolane::{Connection, Endpoint, Error, ExportedRegion, Options, Region, Rights, Waited};

/// Long enough for what must not happen to happen.
const MOMENT: Duration = Duration::from_millis(300);

fn patient(lane: LaneChoice) -> Options {
    Options::default().with(|it| {
        it.lane.choice = lane;
        it.times.connect = PATIENCE;
    })
}

fn of_each_lane() -> [Options; 3] {
    let unprotected = plain().with(|it| it.times.connect = PATIENCE);
    [
        patient(LaneChoice::Best),
        patient(LaneChoice::Udp),
        unprotected.with(|it| it.lane.choice = LaneChoice::Udp),
    ]
}

fn with_backlog(backlog: u16) -> Endpoint {
    let options = patient(LaneChoice::Udp).with(|it| it.listen.backlog = backlog);
    Endpoint::bind(anywhere(), options).expect("a port")
}

fn connect(to: SocketAddr) -> Connection {
    Connection::connect(to, &patient(LaneChoice::Udp)).expect("connected")
}

/// A client in a thread of its own.
fn connecting(to: SocketAddr) -> Receiver<Connection> {
    let (tell, connected) = channel();
    thread::spawn(move || drop(tell.send(connect(to))));
    connected
}

fn next(endpoint: &mut Endpoint) -> Connection {
    let accepted = endpoint.accept(Some(PATIENCE)).expect("it listens");
    accepted.expect("in time")
}

/// The content of the next Transfer.
fn heard(connection: &mut Connection) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 20];
    let length = connection.recv_into(&mut buffer).expect("it comes");
    buffer.truncate(length);
    buffer
}

#[test]
fn connect__returns_before_the_program_accepts_and_requests_wait() {
    for options in of_each_lane() {
        let mut endpoint = Endpoint::bind(anywhere(), options.clone()).expect("a port");
        let mut client = Connection::connect(endpoint.local_addr(), &options).expect("connected");
        client
            .post(OpenRegion::new("table", Rights::READ))
            .expect("posted");
        client.post(Message::new(&b"hello"[..])).expect("posted");
        client.post(Transfer::new(region(3, 9000))).expect("posted");
        let early = client.wait(Some(MOMENT)).expect("it goes on");
        assert!(matches!(early, Waited::TimedOut), "{early:?}");

        let mut server = next(&mut endpoint);
        let table = ExportedRegion::new(Region::anonymous(4096).expect("memory")).expect("aligned");
        server
            .export_named("table", &table, Rights::READ)
            .expect("exported");
        let serving = thread::spawn(move || {
            assert_eq!(heard(&mut server), content(3, 9000));
            let message = server.recv_message(None).expect("it comes");
            assert_eq!(&message.control[..], b"hello");
            while server.wait(None).is_ok() {}
        });
        let mut done = Vec::new();
        while done.len() < 3 {
            let completion = client.wait(Some(PATIENCE)).expect("it goes on").got();
            let completion = completion.expect("in time");
            assert!(completion.result.is_ok(), "{completion:?}");
            done.push(completion.kind());
        }
        assert!(done.contains(&WorkKind::Open), "{done:?}");
        client.close().expect("closed");
        serving.join().expect("no panic");
    }
}

#[test]
fn backlog__answers_peers_until_the_program_accepts() {
    let mut endpoint = with_backlog(4);
    let watching = patient(LaneChoice::Udp).with(|it| {
        it.times.idle = Duration::from_secs(1);
        it.times.keep_alive = true;
    });
    let mut client = Connection::connect(endpoint.local_addr(), &watching).expect("connected");
    client.post(Transfer::new(region(1, 100))).expect("posted");
    let idle = client.wait(Some(Duration::from_millis(2500)));
    assert!(matches!(idle, Ok(Waited::TimedOut)), "{idle:?}");
    let hearing = thread::spawn(move || heard(&mut next(&mut endpoint)));
    let sent = client.wait(Some(PATIENCE)).expect("it goes on").got();
    assert!(sent.expect("in time").result.is_ok());
    assert_eq!(hearing.join().expect("no panic"), content(1, 100));
}

#[test]
fn backlog__that_is_full_makes_clients_wait() {
    let mut endpoint = with_backlog(2);
    let to = endpoint.local_addr();
    let first: Vec<_> = (0..2).map(|_| connect(to)).collect();
    let late: Vec<_> = (0..2).map(|_| connecting(to)).collect();
    assert!(late.iter().all(|it| it.recv_timeout(MOMENT).is_err()));
    assert_eq!(
        (endpoint.counters().full, endpoint.counters().refused),
        (0, 0)
    );
    let accepted: Vec<_> = (0..4).map(|_| next(&mut endpoint)).collect();
    for connected in late {
        connected.recv_timeout(PATIENCE).expect("connected");
    }
    drop((first, accepted));
}

#[test]
fn backlog__forgets_clients_that_left() {
    let mut endpoint = with_backlog(1);
    connect(endpoint.local_addr()).close().expect("closed");
    let mut stays = connect(endpoint.local_addr());
    let sending = thread::spawn(move || stays.send(b"here"));
    assert_eq!(heard(&mut next(&mut endpoint)), b"here");
    let more = endpoint.accept(Some(Duration::ZERO)).expect("it listens");
    assert!(more.is_none());
    sending.join().expect("no panic").expect("sent");
}

#[test]
fn drop__of_an_endpoint_ends_the_connections_in_its_backlog() {
    let endpoint = with_backlog(4);
    let mut client = connect(endpoint.local_addr());
    drop(endpoint);
    let end = client.wait(Some(PATIENCE));
    let gone = CloseReason::Peer(Reason::GoingAway);
    assert!(
        matches!(end, Err(Error::Closed(why)) if why == gone),
        "{end:?}"
    );
}

#[test]
fn connect__without_a_backlog_waits_until_the_program_accepts() {
    let mut endpoint = with_backlog(0);
    let connected = connecting(endpoint.local_addr());
    assert!(connected.recv_timeout(MOMENT).is_err());
    let accepted = next(&mut endpoint);
    connected.recv_timeout(PATIENCE).expect("connected");
    drop(accepted);
}

#[test]
fn descriptor__is_readable_while_a_connection_waits() {
    let mut endpoint = with_backlog(4);
    let readable = |endpoint: &Endpoint, timeout: Duration| {
        let timeout = Timespec::try_from(timeout).expect("short");
        let mut fds = [PollFd::from_borrowed_fd(endpoint.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).expect("it is watched") > 0
    };
    assert!(!readable(&endpoint, Duration::ZERO));
    let clients: Vec<_> = (0..2).map(|_| connect(endpoint.local_addr())).collect();
    for _ in &clients {
        assert!(readable(&endpoint, PATIENCE));
        let accepted = endpoint.accept(Some(Duration::ZERO)).expect("it listens");
        accepted.expect("it waits");
    }
    assert!(!readable(&endpoint, Duration::ZERO));
}

#[test]
fn counters__move_while_the_program_does_not_accept() {
    let mut endpoint = with_backlog(4);
    let client = connect(endpoint.local_addr());
    assert_eq!(endpoint.gate_counters().expect("encrypted").admitted, 1);
    let unauthenticated = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let end = Instant::now() + PATIENCE;
    while endpoint.counters().refused == 0 {
        assert!(Instant::now() < end, "it is not counted");
        let sent = unauthenticated.send_to(&[7; 100], endpoint.local_addr());
        sent.expect("sent");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!endpoint.is_spent() && endpoint.take_untrusted().clients.is_empty());
    drop(client);
}

#[test]
fn give_to__accepts_nothing_before_the_program_does() {
    let mut endpoint = with_backlog(4);
    let own = nix::unistd::geteuid().as_raw();
    endpoint.give_to(own).expect("to itself");
    let connected = connecting(endpoint.local_addr());
    assert!(connected.recv_timeout(MOMENT).is_err());
    let accepted = next(&mut endpoint);
    connected.recv_timeout(PATIENCE).expect("connected");
    drop(accepted);
}

#[test]
fn listen_on__takes_over_the_backlog() {
    let endpoint = with_backlog(4);
    let mut client = connect(endpoint.local_addr());
    let sending = thread::spawn(move || client.send(b"hello").map(|()| client));
    let mut worker = Worker::new().expect("descriptors");
    worker.listen_on(endpoint).expect("it listens");
    loop {
        worker.wait(Some(PATIENCE)).expect("it turns");
        match worker.next_event().expect("in time") {
            Event::Accepted { connection, .. } => {
                let connection = worker.connection(connection).expect("it lives");
                let memory = Region::anonymous(4096).expect("memory");
                connection.post_recv(memory).expect("posted");
            }
            Event::Announced { .. } => {}
            Event::Completed { completion, .. } => break assert_eq!(completion.result, Ok(5)),
            other => panic!("{other:?}"),
        }
    }
    let sent = sending.join().expect("no panic");
    drop(sent.expect("sent"));
}

#[test]
fn endpoint__with_a_backlog_stays_the_parents_after_fork() {
    let endpoint = with_backlog(4);
    let to = endpoint.local_addr();
    let mut client = connect(to);
    let mut kept = Some(endpoint);
    in_a_child(|| {
        let endpoint = kept.as_mut().expect("there");
        let accepted = endpoint.accept(Some(PATIENCE));
        assert!(matches!(accepted, Err(Error::Forked)), "{accepted:?}");
        let _ = (endpoint.counters(), endpoint.take_untrusted());
        drop(kept.take());
        // One of its own works as usual.
        let mut own = with_backlog(1);
        let connected = connecting(own.local_addr());
        next(&mut own);
        connected.recv_timeout(PATIENCE).expect("connected");
    });
    let mut endpoint = kept.take().expect("the child's only");
    let sending = thread::spawn(move || client.send(b"to the parent"));
    assert_eq!(heard(&mut next(&mut endpoint)), b"to the parent");
    sending.join().expect("no panic").expect("sent");
    let other = connect(to);
    drop((next(&mut endpoint), other));
}
