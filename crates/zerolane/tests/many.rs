//! A thousand connections to one endpoint, each with remote memory. A program of its own, for it
//! looks at what memory it uses.
#![allow(non_snake_case)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use zerolane::{Connection, Endpoint, ExportedRegion, Options, Region, Rights, Work};

const CONNECTIONS: usize = 1000;
const THREADS: usize = 4;
/// Bytes of the exported region that each connection has for itself.
const SLOT: usize = 200;
const ROUNDS: usize = 5;
/// Memory that a connection may take beyond regions, bytes.
const MOST_EACH: usize = 64 << 10;

fn patient() -> Options {
    Options {
        connect_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        ..Options::default()
    }
}

fn content(connection: usize, round: usize) -> [u8; SLOT] {
    std::array::from_fn(|i| (connection * 7 + round * 131 + i * 31) as u8)
}

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() << 10
}

/// Drives all connections until their peers have closed them.
fn serve(mut connections: Vec<Connection>) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let beat = Timespec::try_from(Duration::from_millis(20)).unwrap();
    while !connections.is_empty() {
        assert!(Instant::now() < deadline, "{} are left", connections.len());
        let mut fds: Vec<PollFd<'_>> = connections
            .iter()
            .map(|it| PollFd::new(it, PollFlags::IN))
            .collect();
        poll(&mut fds, Some(&beat)).unwrap();
        // Those without a datagram may have a timer that is due.
        connections.retain_mut(|it| it.poll().is_ok());
    }
}

/// Opens this thread's part of the connections, then puts over all of them at once, round by round.
fn put(to: SocketAddr, mine: std::ops::Range<usize>, all_open: &Barrier, all_put: &Barrier) {
    let mut connections: Vec<_> = mine
        .map(|index| {
            let mut connection = Connection::connect(to, &patient()).unwrap();
            let key = connection.open_region("slots", Rights::WRITE).unwrap();
            (index, connection, key)
        })
        .collect();
    all_open.wait();
    for round in 0..ROUNDS {
        for (index, connection, key) in &mut connections {
            let data = Region::from_vec(content(*index, round).to_vec());
            let offset = (*index * SLOT) as u64;
            connection
                .post_put(key, offset, data, Work::default())
                .unwrap();
        }
        for (index, connection, _) in &mut connections {
            let completion = connection.wait(Some(Duration::from_secs(60))).unwrap();
            let completion = completion.unwrap_or_else(|| panic!("{index}: nothing in time"));
            assert_eq!(completion.result.unwrap(), SLOT, "{index}");
        }
    }
    all_put.wait();
    for (_, connection, _) in connections {
        connection.close().unwrap();
    }
}

#[test]
fn thousand_connections__put_without_failure_in_little_memory() {
    let memory = ExportedRegion::new(Region::anonymous(CONNECTIONS * SLOT).unwrap()).unwrap();
    let mut endpoint = Endpoint::bind("127.0.0.1:0", patient()).unwrap();
    let address = endpoint.local_addr();
    let before = resident();
    let [all_open, all_put] = [(); 2].map(|()| Arc::new(Barrier::new(THREADS + 1)));
    let clients: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (all_open, all_put) = (Arc::clone(&all_open), Arc::clone(&all_put));
            let part = CONNECTIONS / THREADS;
            let mine = thread * part..(thread + 1) * part;
            std::thread::spawn(move || put(address, mine, &all_open, &all_put))
        })
        .collect();
    let (accepted, serving) = std::sync::mpsc::channel::<Connection>();
    let server = std::thread::spawn(move || {
        // A client that opens a region waits for an answer while others connect.
        let mut connections: Vec<Connection> = Vec::new();
        while connections.len() < CONNECTIONS {
            connections.extend(serving.recv_timeout(Duration::from_millis(1)));
            connections.iter_mut().for_each(|it| {
                it.poll().unwrap();
            });
        }
        serve(connections);
    });
    for _ in 0..CONNECTIONS {
        let mut connection = endpoint
            .accept(Some(Duration::from_secs(60)))
            .unwrap()
            .unwrap();
        connection
            .export_named("slots", &memory, Rights::WRITE)
            .unwrap();
        accepted.send(connection).unwrap();
    }
    all_open.wait();
    all_put.wait();
    let each = resident().saturating_sub(before) / (2 * CONNECTIONS);
    clients.into_iter().for_each(|it| it.join().unwrap());
    server.join().unwrap();
    for index in 0..CONNECTIONS {
        let mut there = [0; SLOT];
        memory.read(index * SLOT, &mut there);
        assert_eq!(there, content(index, ROUNDS - 1), "{index}");
    }
    eprintln!("{each} bytes an end");
    assert!(each <= MOST_EACH, "{each} bytes an end");
}
