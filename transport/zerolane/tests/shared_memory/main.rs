//! Tests that connections in shared memory survive refused, stopped, killed and hostile processes.
#![allow(non_snake_case)]

#[path = "../content/mod.rs"]
mod bytes;
mod child;
mod crowd;
mod faults;
mod hostile;
mod immediates;
mod mapped;
mod networks;
mod places;
mod random;
mod refused;
mod stopped;
mod survivor;

use child::{Job, child, lane_of};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Child;
use std::time::{Duration, Instant};
use zerolane::counters::{LaneKind, NoSharedMemory};
use zerolane::options::LaneChoice;
use zerolane::worker::{Event, Worker};
use zerolane::{Connection, Endpoint, Options, Region};

const PATIENCE: Duration = Duration::from_secs(40);
const LEN: usize = 8 << 20;

fn options(lane: LaneChoice) -> Options {
    Options::default().with(|it| it.lane.choice = lane)
}

/// The first byte tells the seed.
fn content(seed: usize, len: usize) -> Vec<u8> {
    let seed = seed as u8;
    let mut bytes = bytes::content(seed.into(), len);
    bytes[..len.min(1)].fill(seed);
    bytes
}

fn is_all(bytes: &[u8], byte: u8) -> bool {
    bytes == vec![byte; bytes.len()]
}

/// Lengths of swapped Transfers: by reference, through the ring, without a grant.
fn length(number: usize) -> usize {
    [LEN, 100, 5000, 300_000, 70_000][number % 5]
}

fn region(seed: usize, len: usize) -> Region {
    Region::from_vec(content(seed, len))
}

fn listen(lane: LaneChoice) -> Endpoint {
    Endpoint::bind("127.0.0.1:0", options(lane)).expect("a port")
}

fn accept(endpoint: &mut Endpoint) -> Connection {
    let accepted = endpoint.accept(Some(PATIENCE)).expect("accepting");
    accepted.expect("a client came")
}

fn signal(child: &Child, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, signal).expect("ours");
}

/// Receives until the peer is gone, and calls `came` for each Transfer; a Transfer reported as complete must be.
fn receive_until_gone(connection: &mut Connection, mut came: impl FnMut()) {
    let post = |connection: &mut Connection| {
        let region = Region::anonymous(LEN).expect("memory");
        connection.post_recv(region).is_ok()
    };
    let mut posted = usize::from(post(connection)) + usize::from(post(connection));
    let (mut whole, mut over) = (0, 0);
    // The time that verification takes does not count.
    let mut end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "{:#?}", connection.account());
        match connection
            .wait(Some(Duration::from_millis(100)))
            .map(zerolane::Waited::got)
        {
            Ok(None) => {}
            Ok(Some(completion)) => {
                over += 1;
                if completion.result.is_ok() {
                    let found = completion.into_region().expect("a region");
                    assert!(found[..] == content(whole, LEN)[..], "Transfer {whole}");
                    whole += 1;
                    came();
                    posted += usize::from(post(connection));
                }
                end = Instant::now() + PATIENCE;
            }
            Err(_) => break,
        }
    }
    assert_eq!(over, posted, "each request ends once");
}

#[test]
fn processes__killed_at_any_point_leave_right_content_and_are_missed_at_once() {
    for round in 0..12 {
        let mut endpoint = listen(LaneChoice::SharedMemory);
        let (mut child, mut said) = child(endpoint.local_addr(), &Job::SEND);
        let mut connection = accept(&mut endpoint);
        assert!(lane_of(&mut said).starts_with("SharedMemory"));
        let killing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(700 * round));
            child.kill().expect("ours");
            child.wait().expect("killed");
        });
        receive_until_gone(&mut connection, || {});
        killing.join().expect("no panic");
        // Not detected by a timeout, which takes 15 s.
        let closed = connection.poll().expect_err("over");
        assert!(closed.to_string().contains("peer"), "{closed}");
    }
}

/// Two ends of a connection to a listener on `lane`, and its address. A listener that is suspended for a second admits
/// no client: such an attempt is repeated.
fn meet(lane: LaneChoice) -> (Connection, Connection, SocketAddr) {
    let tries = std::iter::repeat_with(|| {
        let mut endpoint = listen(lane);
        let to = endpoint.local_addr();
        let connecting =
            std::thread::spawn(move || Connection::connect(to, &options(LaneChoice::Best)));
        let b = accept(&mut endpoint);
        let a = connecting.join().expect("no panic").expect("connected");
        (a, b, to)
    });
    let late = |a: &Connection| a.account().no_shared_memory == Some(NoSharedMemory::NotAdmitted);
    tries
        .take(10)
        .find(|(a, _, _)| !late(a))
        .expect("a listener that runs")
}

#[test]
fn connect__best_is_shared_memory_here_and_udp_where_the_listener_is_not_asked() {
    for (lane, expected) in [
        (LaneChoice::Best, LaneKind::SharedMemory),
        (LaneChoice::Udp, LaneKind::Udp),
    ] {
        let (a, b, to) = meet(lane);
        for end in [&a, &b] {
            assert_eq!(end.account().lane, expected);
            assert!(end.peer_key().is_some(), "identities are proven");
        }
        let why = a.account().no_shared_memory;
        assert_eq!(
            why,
            (expected == LaneKind::Udp).then_some(NoSharedMemory::NoListener)
        );
        let encrypts = a.account().cipher.is_some();
        assert_eq!(encrypts, expected == LaneKind::Udp, "the account says so");
        if expected == LaneKind::SharedMemory {
            assert_eq!(a.peer_addr(), to);
            assert_eq!(b.local_addr(), Some(to));
        }
    }
}

/// The worker sleeps between the messages, after it told all peers to wake it.
#[test]
fn worker__asleep_is_woken_by_any_of_its_connections() {
    const COUNT: usize = 20;
    let lane = options(LaneChoice::SharedMemory);
    let mut worker = Worker::new().expect("a worker");
    let any = "127.0.0.1:0";
    let endpoint = worker.listen(any, lane.clone()).expect("a port");
    let to = worker.endpoint(endpoint).expect("listening").local_addr();
    let sending = std::thread::spawn(move || {
        let connect = || Connection::connect(to, &lane).expect("met");
        let mut open: Vec<_> = (0..COUNT).map(|_| connect()).collect();
        for number in (0..COUNT).chain((0..COUNT).rev()) {
            std::thread::sleep(Duration::from_millis(5));
            open[number].send(&content(number, 100)).expect("sent");
        }
        for connection in open {
            connection.close().expect("closed");
        }
    });
    let (mut received, mut closed) = (0, 0);
    while closed < COUNT {
        let woken = worker.wait(Some(PATIENCE)).expect("turns").got().is_some();
        assert!(woken, "{received} received, {closed} closed");
        while let Some(event) = worker.next_event() {
            match event {
                Event::Accepted { connection, .. } => {
                    let it = worker.connection(connection).expect("lives");
                    for _ in 0..2 {
                        let memory = Region::anonymous(100).expect("memory");
                        it.post_recv(memory).expect("posted");
                    }
                }
                Event::Completed { completion, .. } => {
                    let found = completion.into_region().expect("a region");
                    let begins = usize::from(found[0]);
                    assert!(found[..] == content(begins, 100)[..], "content");
                    received += 1;
                }
                Event::Closed { .. } => closed += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(received, 2 * COUNT);
    sending.join().expect("no panic");
}

/// A hundred connections, each with a peer in the same worker, and messages in both directions on all of them.
#[test]
fn worker__a_hundred_connections() {
    const COUNT: usize = 100;
    const ROUNDS: usize = 5;
    let lane = options(LaneChoice::SharedMemory).with(|it| {
        it.listen.max_connections_of_origin = 2 * COUNT;
        it.times.connect = PATIENCE;
    });
    let mut worker = Worker::new().expect("a worker");
    let any = "127.0.0.1:0";
    let endpoint = worker.listen(any, lane.clone()).expect("a port");
    let to = worker.endpoint(endpoint).expect("listening").local_addr();
    let mut calls = HashMap::new();
    for number in 0..COUNT {
        let call = worker.connect(to, &lane).expect("met");
        calls.insert(call, number);
    }
    let (mut connected, mut received) = (0, 0);
    let mut accepted = Vec::new();
    let end = Instant::now() + PATIENCE;
    let lengths = [8, 3000, 70_000, 300_000, 20_000];
    let seed = |at: usize| at % 97;
    let mut expected = HashMap::new();
    while received < COUNT * ROUNDS {
        assert!(
            Instant::now() < end,
            "{connected} connected, {received} received"
        );
        worker.wait(Some(Duration::from_millis(50))).expect("turns");
        while let Some(event) = worker.next_event() {
            match event {
                Event::Connected { connection } => {
                    connected += 1;
                    let number = calls[&connection];
                    let it = worker.connection(connection).expect("lives");
                    for (round, len) in lengths.iter().enumerate() {
                        it.post_send(region(seed(round + number), *len))
                            .expect("posted");
                    }
                }
                Event::Accepted { connection, .. } => {
                    let it = worker.connection(connection).expect("lives");
                    assert_eq!(it.account().lane, LaneKind::SharedMemory);
                    for len in lengths {
                        let id = it.post_recv(Region::anonymous(len).expect("memory"));
                        expected.insert((connection, id.expect("posted")), len);
                    }
                    accepted.push(connection);
                }
                Event::Completed {
                    connection,
                    completion,
                } => {
                    let len = completion.result.expect("no failure");
                    if let Some(posted) = expected.remove(&(connection, completion.id)) {
                        assert_eq!(len, posted);
                        let found = completion.into_region().expect("a region");
                        let begins = usize::from(found[0]);
                        assert!(found[..] == content(begins, posted)[..], "content");
                        received += 1;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((connected, accepted.len()), (COUNT, COUNT));
}
