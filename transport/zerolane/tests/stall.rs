//! Tests that a server of a thousand clients is not delayed by the half that takes no answers.
//!
//! A separate program, because it measures its memory.
#![allow(non_snake_case)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerolane::request::WorkKind;
use zerolane::worker::{Event, Worker};
use zerolane::{Options, Region};

const CONNECTIONS: usize = 1000;
/// Open files of a connection: a socket at each end, both in this process.
const FILES_EACH: usize = 2;
/// Open files for everything but connections: of three workers, and short-lived ones.
const OTHER_FILES: usize = 32;
/// Bytes of a request, and of its answer.
const LEN: usize = 4096;
/// Requests of a client that takes no answers.
const UNANSWERED: usize = 3;
const ROUNDS: usize = 5;
/// Memory of both ends of a connection, bytes, at most: the waiting answers, the posted receives, and the library's
/// own.
const MOST_EACH: usize = (UNANSWERED + 4) * LEN + (64 << 10);
/// Memory that does not depend on the number of connections, bytes: the buffers and threads of three workers, what the
/// allocator holds back.
const FIXED: usize = 4 << 20;
/// Bounds how long a failure takes to show; otherwise never reached.
const PATIENCE: Duration = Duration::from_secs(120);

fn patient() -> Options {
    Options::default().with(|it| {
        it.times.connect = PATIENCE;
        it.times.idle = PATIENCE;
    })
}

fn content(client: usize, round: usize) -> Vec<u8> {
    let mixed = client * 7 + round * 131;
    (0..LEN).map(|i| (mixed + i * 31) as u8).collect()
}

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.expect("a number").parse::<usize>().expect("a number") << 10
}

/// The number of connections that the hard limit of open files permits.
fn connections_that_fit() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let left = limit.saturating_sub(open.count() + OTHER_FILES);
    (left / FILES_EACH).min(CONNECTIONS)
}

fn connecting(address: SocketAddr, count: usize) -> Worker {
    let mut worker = Worker::new().expect("descriptors");
    for _ in 0..count {
        worker.connect(address, &patient()).expect("begun");
    }
    worker
}

/// Runs `worker` until `on` returns true for an event.
fn until(worker: &mut Worker, mut on: impl FnMut(&mut Worker, Event) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let brief = Some(Duration::from_millis(100));
        worker.wait(brief).expect("allowed");
        while let Some(event) = worker.next_event() {
            if on(worker, event) {
                return;
            }
        }
        assert!(Instant::now() < end, "nothing in time");
    }
}

/// Clients that have sent requests, and are not driven any more.
fn stalled(address: SocketAddr, count: usize) -> Worker {
    let mut worker = connecting(address, count);
    let mut left = count * UNANSWERED;
    until(&mut worker, |worker, event| {
        match event {
            Event::Connected { connection } => {
                let connection = worker.connection(connection).expect("open");
                for round in 0..UNANSWERED {
                    let request = Region::from_vec(content(0, round));
                    connection.post_send(request).expect("posted");
                }
            }
            Event::Completed { completion, .. } => {
                completion.result.expect("sent");
                left -= 1;
            }
            Event::Announced { .. } => {}
            other => panic!("{other:?}"),
        }
        left == 0
    });
    worker
}

/// Clients that send a request, take the answer, and repeat.
fn served(address: SocketAddr, count: usize) {
    let mut worker = connecting(address, count);
    let (mut clients, mut left) = (HashMap::new(), count);
    let ask = |worker: &mut Worker, id, client, round| {
        let connection = worker.connection(id).expect("open");
        let answer = Region::from_vec(vec![0; LEN]);
        connection.post_recv(answer).expect("posted");
        let request = Region::from_vec(content(client, round));
        connection.post_send(request).expect("posted");
    };
    until(&mut worker, |worker, event| {
        match event {
            Event::Connected { connection } => {
                let client = clients.len();
                clients.insert(connection, (client, 0));
                ask(worker, connection, client, 0);
            }
            Event::Completed {
                connection,
                completion,
            } if completion.kind() == WorkKind::Receive => {
                let (client, round) = clients.get_mut(&connection).expect("it asked");
                assert_eq!(completion.result, Ok(LEN));
                assert!(
                    completion.into_region().expect("a region")[..] == content(*client, *round)
                );
                *round += 1;
                match *round {
                    ROUNDS => assert!(worker.close(connection)),
                    next => ask(worker, connection, *client, next),
                }
            }
            Event::Completed { completion, .. } => {
                completion.result.expect("sent");
            }
            Event::Closed { connection, reason } => {
                let rounds = clients.get(&connection).map_or(0, |it| it.1);
                assert_eq!(rounds, ROUNDS, "it was not over: {reason:?}");
                left -= 1;
            }
            Event::Announced { .. } => {}
            other => panic!("{other:?}"),
        }
        left == 0
    });
}

#[test]
fn thousand_clients__of_which_half_stall_hold_no_other_back_in_bounded_memory() {
    let each = connections_that_fit() / 2;
    if 2 * each < CONNECTIONS {
        eprintln!(
            "only {} connections, not {CONNECTIONS}: no more open files are allowed",
            2 * each
        );
    }
    let mut server = Worker::new().expect("descriptors");
    let anywhere = "127.0.0.1:0";
    let endpoint = server.listen(anywhere, patient()).expect("a port");
    let address = server.endpoint(endpoint).expect("listens").local_addr();
    let before = resident();
    let clients = std::thread::spawn(move || {
        let stalled = stalled(address, each);
        served(address, each);
        stalled
    });
    while !clients.is_finished() {
        let brief = Some(Duration::from_millis(5));
        server.wait(brief).expect("allowed");
        while let Some(event) = server.next_event() {
            let (id, request) = match event {
                Event::Accepted { connection, .. } => (connection, None),
                Event::Completed {
                    connection,
                    completion,
                } if completion.kind() == WorkKind::Receive && completion.result.is_ok() => (
                    connection,
                    Some(completion.into_region().expect("a region")),
                ),
                _ => continue,
            };
            let Some(connection) = server.connection(id) else {
                continue;
            };
            if let Some(request) = request {
                let _ = connection.post_send(request);
            }
            let _ = connection.post_recv(Region::from_vec(vec![0; LEN]));
        }
    }
    let stalled = clients.join().expect("served");
    assert!(server.connections() >= each, "those that stall are there");
    let used = resident().saturating_sub(before);
    let told = format!(
        "{used} bytes, {} a connection, both ends",
        used / (2 * each)
    );
    eprintln!("{told}");
    assert!(used <= FIXED + MOST_EACH * 2 * each, "{told}");
    drop((server, stalled));
}
