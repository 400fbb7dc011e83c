//! Tests that threads of paths start and end in time, and never write memory that was given back.
//!
//! `paths` tests paths in general, with and without threads.

#![allow(non_snake_case)]

#[path = "content/mod.rs"]
mod bytes;
#[allow(dead_code, reason = "the other tests use it all")]
#[path = "paths/stream.rs"]
mod stream;

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use stream::{
    ADDED, PATIENCE, PIECE, accept, bytes_sent, content, options, receive, send, until_usable,
    usable,
};
use zerolane::failure::PostError;
use zerolane::options::{PathAddresses, PathThreads};
use zerolane::request::{Receive, Transfer};
use zerolane::{Connection, Endpoint, Error, Options, Region, Security};

/// One test at a time: they count this process's threads of paths.
static COUNTED: Mutex<()> = Mutex::new(());

/// What each thread of a path of this process blocks: bit n - 1 is signal n.
fn blocked() -> Vec<u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let status = tasks.filter_map(|it| fs::read_to_string(it.ok()?.path().join("status")).ok());
    let of_paths = status.filter(|it| it.starts_with("Name:\tzerolane path"));
    let blocked = of_paths.filter_map(|it| {
        let mask = it.lines().find_map(|it| it.strip_prefix("SigBlk:\t"))?;
        u64::from_str_radix(mask, 16).ok()
    });
    blocked.collect()
}

fn threads() -> usize {
    blocked().len()
}

fn until_threads(wanted: usize) {
    let start = Instant::now();
    while threads() != wanted {
        assert!(start.elapsed() < PATIENCE, "{} threads", threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn per_path() -> Options {
    options(Security::default(), 2, PathThreads::OnePerPath)
}

/// Another port of this host to the same address.
fn second() -> PathAddresses {
    "=".parse().expect("a path")
}

#[test]
fn threads__end_with_the_path_and_with_the_connection() {
    let _alone = COUNTED.lock().unwrap_or_else(|it| it.into_inner());
    let mut endpoint = Endpoint::bind("127.0.0.1:0", per_path()).expect("bind");
    let to = endpoint.local_addr();
    let receiver = std::thread::spawn(move || receive(&mut endpoint));
    let mut a = Connection::connect(to, &per_path()).expect("connected");
    // One path. Threads of the previous test may be ending.
    until_threads(0);
    let mut sent = 0;
    for _ in 0..3 {
        assert!(a.add_path(second()));
        until_usable(&mut a, 2, 4, &mut sent);
        let interrupt = 1 << (nix::libc::SIGINT - 1);
        let deaf = blocked().into_iter().filter(|it| it & interrupt != 0);
        assert_eq!(
            deaf.count(),
            2,
            "one at each end, and neither takes signals"
        );
        a.remove_path(ADDED);
        until_usable(&mut a, 1, 4, &mut sent);
        until_threads(0);
    }
    assert!(a.add_path(second()));
    until_usable(&mut a, 2, 4, &mut sent);
    a.close().expect("closed");
    assert_eq!(receiver.join().expect("received"), sent);
    until_threads(0);
}

/// The memory of a receive that came back belongs to its user: no thread writes it any more, however much payload is in
/// flight.
#[test]
fn cancel__memory_is_written_by_no_thread_once_it_came_back() {
    const LEN: usize = 32 << 20;
    let _alone = COUNTED.lock().unwrap_or_else(|it| it.into_inner());
    let mut endpoint = Endpoint::bind("127.0.0.1:0", per_path()).expect("bind");
    let to = endpoint.local_addr();
    let sender = std::thread::spawn(move || {
        let mut a = Connection::connect(to, &per_path()).expect("connected");
        assert!(a.add_path(second()));
        let mut sent = 0;
        until_usable(&mut a, 2, 4, &mut sent);
        // The next one is recognized by its length.
        a.send(&[7]).expect("sent");
        let all = vec![3; LEN];
        let mut by_second = 0;
        for _ in 0..8 {
            let before = bytes_sent(&a, 1);
            assert!(a.send(&all).is_err(), "it was cancelled");
            by_second += bytes_sent(&a, 1) - before;
        }
        assert!(by_second > 0, "{:?}", a.paths());
        a.send(&[8]).expect("sent");
        a.close().expect("closed");
    });
    let mut b = accept(&mut endpoint);
    let mut buffer = vec![0; PIECE];
    let mut pieces = 0;
    while b.recv_into(&mut buffer).expect("received") == PIECE {
        assert!(buffer == content(pieces), "piece {pieces}");
        pieces += 1;
    }
    for round in 0..8 {
        let into = Region::anonymous(LEN).expect("memory");
        let id = b.post(Receive::new(into).context(1)).expect("posted");
        let came = |b: &Connection| b.account().protocol.bytes_received;
        let before = came(&b);
        // Some of it came, and more is in flight.
        while came(&b) < before + (1 << 20) + (round << 19) {
            assert!(b.poll().expect("alive").is_none(), "too soon");
        }
        assert!(b.cancel(id), "it is over");
        let done = b
            .wait(Some(PATIENCE))
            .expect("alive")
            .got()
            .expect("in time");
        assert!(done.result.is_err());
        let mut back = done.into_region().expect("a region");
        back.fill(0x55);
        // The connection continues.
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            let _ = b.poll().expect("alive");
        }
        assert!(back.iter().all(|&it| it == 0x55), "round {round}");
    }
    assert_eq!(b.recv_into(&mut buffer).expect("received"), 1);
    assert_eq!(buffer[0], 8);
    assert!(b.recv_into(&mut buffer).is_err(), "it closes");
    sender.join().expect("sent");
}

/// A connection dropped in the middle returns its memory at once, and ends its threads.
#[test]
fn drop__amid_ends_the_threads() {
    let _alone = COUNTED.lock().unwrap_or_else(|it| it.into_inner());
    for dropped in 0..4 {
        let mut endpoint = Endpoint::bind("127.0.0.1:0", per_path()).expect("bind");
        let to = endpoint.local_addr();
        let receiver = std::thread::spawn(move || {
            let mut b = accept(&mut endpoint);
            let mut buffer = vec![0; PIECE];
            let mut pieces = 0;
            while let Ok(PIECE) = b.recv_into(&mut buffer) {
                assert!(buffer == content(pieces), "piece {pieces}");
                pieces += 1;
            }
        });
        let mut a = Connection::connect(to, &per_path()).expect("connected");
        assert!(a.add_path(second()));
        send(&mut a, |a, _| usable(a) == 2);
        let big = Region::anonymous(32 << 20).expect("memory");
        a.post(Transfer::new(big).context(1)).expect("posted");
        for _ in 0..dropped * 50 {
            // The peer has no room for that much, and may be gone by now.
            let _ = a.poll();
        }
        drop(a);
        receiver.join().expect("received");
        until_threads(0);
    }
}

/// The memory of a datagram is free as soon as that left the driver: no thread may read it later, and none is lost for
/// it. Their DSCP is that of the socket, by which the threads send a Transfer meanwhile.
#[test]
fn datagrams__leave_by_paths_with_threads() {
    const SENT: u64 = 400;
    const LEN: usize = 16 << 20;
    let _alone = COUNTED.lock().unwrap_or_else(|it| it.into_inner());
    let mut endpoint = Endpoint::bind("127.0.0.1:0", per_path()).expect("bind");
    let to = endpoint.local_addr();
    let receiver = std::thread::spawn(move || {
        let mut b = accept(&mut endpoint);
        let into = Region::anonymous(LEN).expect("memory");
        b.post(Receive::new(into).context(1)).expect("posted");
        let (mut came, mut transfer) = (0, None);
        while let Ok(waited) = b.recv_datagram(Some(PATIENCE)) {
            let datagram = waited.got();
            let datagram = datagram.unwrap_or_else(|| panic!("none came: {:?}", b.account()));
            let (seed, rest) = datagram.split_first().expect("a seed");
            assert!(rest.iter().all(|it| it == seed), "other bytes");
            came += 1;
            transfer = transfer.or(b.poll().ok().flatten());
        }
        let transfer = transfer.or_else(|| b.poll().ok().flatten());
        let into = transfer.and_then(|it| it.into_region().ok());
        assert!(into.expect("it came").iter().all(|&it| it == 3));
        came
    });
    let mut a = Connection::connect(to, &per_path()).expect("connected");
    assert!(a.add_path(second()));
    let end = Instant::now() + PATIENCE;
    while usable(&a) < 2 {
        let account = a.account();
        let refused = (account.paths_refused, account.no_path);
        assert!(Instant::now() < end, "{:?}, {refused:?}", a.paths());
        let _ = a.recv_datagram(Some(Duration::from_millis(1)));
    }
    let all = Region::from_vec(vec![3; LEN]);
    a.post(Transfer::new(all).context(1)).expect("posted");
    for n in 0..SENT {
        a.set_dscp((n / 4 % 2) as u8 * 46).expect("set");
        let datagram = vec![n as u8; 1 + 100 * n as usize];
        while let Err(refused) = a.send_datagram(datagram.clone()) {
            let full = matches!(refused, Error::Post(PostError::Full));
            assert!(full && Instant::now() < end, "{refused}");
            let _ = a.recv_datagram(Some(Duration::from_millis(1)));
        }
        let _ = a.recv_datagram(Some(Duration::from_micros(200)));
    }
    let end = Instant::now() + PATIENCE;
    while a.datagram_bytes() > 0 {
        assert!(Instant::now() < end);
        let _ = a.recv_datagram(Some(Duration::from_millis(1)));
    }
    let left = a.account().protocol.unreliable_sent;
    a.close().expect("closed");
    let came: u64 = receiver.join().expect("received");
    assert!(came * 10 >= left * 9 && left > SENT / 2, "{came} of {left}");
}
