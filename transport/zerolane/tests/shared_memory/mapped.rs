//! Tests that mapped regions are accessed without their owner's CPU, and belong to it alone once revoked.

use crate::child::{Job, child, lane_of, told};
use crate::{PATIENCE, accept, listen, options, signal};
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};
use zerolane::options::LaneChoice;
use zerolane::request::{Get, OpenRegion, Put};
use zerolane::worker::Worker;
use zerolane::{Connection, Endpoint, ExportedRegion, FetchOp, Options, Region, RegionKey, Rights};

const WORD: usize = 8;
/// A child that puts without end.
const PUTS: Job = Job {
    then: "put",
    ..Job::SEND
};
/// Bytes of a child's put: large enough that the kernel usually stops the child in the middle.
pub(crate) const PUT: usize = 4 << 20;

fn shared() -> Options {
    options(LaneChoice::SharedMemory)
}

pub(crate) fn memfd(len: usize) -> ExportedRegion {
    ExportedRegion::new(Region::memfd(len).expect("memory")).expect("page-aligned")
}

pub(crate) fn connect(to: SocketAddr) -> (Connection, RegionKey) {
    let mut connection = Connection::connect(to, &shared()).expect("met");
    let key = connection
        .open_region("m", Rights::ALL)
        .expect("it is exported");
    (connection, key)
}

/// Exports `memory` to a peer that connects, and serves it until `over`.
fn serve_until(
    endpoint: &mut Endpoint,
    memory: &ExportedRegion,
    over: impl Fn() -> bool,
) -> Connection {
    let mut connection = accept(endpoint);
    connection
        .export_named("m", memory, Rights::ALL)
        .expect("room");
    let end = Instant::now() + PATIENCE;
    while !over() {
        assert!(Instant::now() < end, "it never came");
        if connection.wait(Some(Duration::from_millis(1))).is_err() {
            // The peer ended, which it may do only after finishing.
            assert!(over(), "it is gone");
        }
    }
    connection
}

/// The least and greatest number in `bytes`.
pub(crate) fn numbers(bytes: &[u8]) -> (u64, u64) {
    let words = bytes.as_chunks::<WORD>().0.iter();
    let numbers = words.map(|it| u64::from_ne_bytes(*it));
    numbers.fold((u64::MAX, 0), |(least, most), it| {
        (least.min(it), most.max(it))
    })
}

#[test]
fn mapped__of_an_owner_that_makes_no_call_is_put_to_got_from_and_counted_in() {
    let memory = memfd(1 << 20);
    let mut endpoint = listen(LaneChoice::SharedMemory);
    let to = endpoint.local_addr();
    let opened = AtomicBool::new(false);
    let (done, is_done) = channel();
    std::thread::scope(|scope| {
        let (endpoint, memory, opened) = (&mut endpoint, &memory, &opened);
        let owner = scope.spawn(move || {
            let connection = serve_until(endpoint, memory, || opened.load(Ordering::Acquire));
            // No call from now on.
            is_done.recv_timeout(PATIENCE).expect("done without it");
            connection
        });
        let (mut connection, key) = connect(to);
        opened.store(true, Ordering::Release);
        // Lets it finish its last step.
        sleep(Duration::from_millis(20));
        let before = connection.account().direct_operations;
        for (seed, (offset, len)) in [(0, 8), (8, 1), (13, 300), (4096, 70_000), (3, 1_000_003)]
            .into_iter()
            .enumerate()
        {
            let bytes = crate::content(seed, len);
            connection.put(&key, offset, &bytes).expect("at once");
            let mut there = vec![0; len];
            memory.read(offset as usize, &mut there);
            assert!(there == bytes, "{len} at {offset}");
            let mut back = vec![0; len];
            connection.get(&key, offset, &mut back).expect("at once");
            assert!(back == bytes, "{len} at {offset}");
        }
        memory.word(64).store(40, Ordering::SeqCst);
        assert_eq!(connection.fetch_add(&key, 64, 2).expect("at once"), 40);
        let swapped = connection.compare_and_swap(&key, 64, 42, 7);
        assert_eq!(swapped.expect("at once"), 42);
        assert_eq!(memory.word(64).load(Ordering::SeqCst), 7);
        assert_eq!(connection.account().direct_operations - before, 12);
        done.send(()).expect("it waits");
        owner.join().expect("no panic");
    });
}

#[test]
fn mapped__fetch_ops_are_atomic_with_the_owners_and_those_of_its_other_peers() {
    const ROUNDS: u64 = 20_000;
    let memory = memfd(4096);
    let mut endpoint = listen(LaneChoice::Best);
    let to = endpoint.local_addr();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut connections: Vec<_> = (0..2).map(|_| accept(&mut endpoint)).collect();
            for connection in &mut connections {
                let exported = connection.export_named("m", &memory, Rights::ALL);
                exported.expect("room");
            }
            while !over.load(Ordering::Acquire) {
                for connection in &mut connections {
                    let _ = connection.poll();
                }
            }
        });
        let peers: Vec<_> = [LaneChoice::SharedMemory, LaneChoice::Udp]
            .into_iter()
            .map(|lane| {
                scope.spawn(move || {
                    let mut connection = Connection::connect(to, &options(lane)).expect("met");
                    let key = connection.open_region("m", Rights::ALL).expect("exported");
                    // Puts over UDP need the owner's calls.
                    let rounds = match lane {
                        LaneChoice::Udp => ROUNDS / 10,
                        _ => ROUNDS,
                    };
                    for _ in 0..rounds {
                        connection
                            .fetch_op(&key, 8, FetchOp::Increment)
                            .expect("done");
                    }
                    (rounds, connection.account().direct_operations)
                })
            })
            .collect();
        for _ in 0..ROUNDS {
            memory.word(8).fetch_add(1, Ordering::SeqCst);
        }
        let done: Vec<_> = peers
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .collect();
        over.store(true, Ordering::Release);
        serving.join().expect("no panic");
        let counted = memory.word(8).load(Ordering::SeqCst);
        assert_eq!(counted, ROUNDS + done[0].0 + done[1].0);
        assert_eq!((done[0].1, done[1].1), (ROUNDS, 0));
    });
}

/// Revokes memory of which another thread drops its handle soon.
pub(crate) fn revoked(mut handle: ExportedRegion) -> Region {
    let end = Instant::now() + PATIENCE;
    loop {
        handle = match handle.revoke() {
            Ok(region) => return region,
            Err(handle) => handle,
        };
        assert!(Instant::now() < end, "another handle");
    }
}

#[test]
fn mapped__revoked_under_puts_has_all_that_completed_and_changes_no_more() {
    const LEN: usize = 64 << 10;
    for round in 0..60 {
        let memory = memfd(LEN);
        let mut endpoint = listen(LaneChoice::SharedMemory);
        let to = endpoint.local_addr();
        let over = AtomicBool::new(false);
        let (started, has_begun) = channel();
        std::thread::scope(|scope| {
            let serving = {
                let (memory, over) = (memory.clone(), &over);
                scope.spawn(move || {
                    let connection = serve_until(&mut endpoint, &memory, || memory.is_revoked());
                    drop(memory);
                    let mut connection = connection;
                    while !over.load(Ordering::Acquire) {
                        let _ = connection.wait(Some(Duration::from_millis(1)));
                    }
                })
            };
            let putting = scope.spawn(move || {
                let (mut connection, key) = connect(to);
                let _ = started.send(());
                for number in 1_u64.. {
                    let bytes = number.to_ne_bytes().repeat(LEN / WORD);
                    if connection.put(&key, 0, &bytes).is_err() {
                        return (number - 1, connection.account().direct_operations);
                    }
                }
                unreachable!("it is revoked")
            });
            has_begun.recv_timeout(PATIENCE).expect("it connects");
            sleep(Duration::from_micros(400 + 37 * round));
            let mut own = revoked(memory);
            let there = own.to_vec();
            let (completed, direct) = putting.join().expect("no panic");
            over.store(true, Ordering::Release);
            serving.join().expect("no panic");
            assert!(own[..] == there[..], "round {round}: it changed");
            let (least, most) = numbers(&there);
            // Consecutive puts: the last one may be partly done.
            assert!(
                least >= completed && most <= completed + 1,
                "{completed}: {least} to {most}"
            );
            assert!(direct >= completed, "{direct} of {completed}");
            own.fill(0);
        });
    }
}

/// Puts without end, until one is refused: the job of a child.
pub(crate) fn put_without_end(connection: &mut Connection) {
    let key = connection
        .open_region("m", Rights::ALL)
        .expect("it is exported");
    println!("zl puts");
    for number in 1_u64.. {
        let bytes = number.to_ne_bytes().repeat(PUT / WORD);
        if connection.put(&key, 0, &bytes).is_err() {
            println!("zl refused {}", connection.account().direct_operations);
            return;
        }
    }
}

#[test]
fn mapped__by_a_process_that_is_stopped_or_killed_in_the_middle_is_its_owners_alone() {
    let (mut abandoned, mut seen) = (0, 0);
    for round in 0..24_u64 {
        let memory = memfd(PUT);
        let mut endpoint = listen(LaneChoice::SharedMemory);
        let (mut child, mut said) = child(endpoint.local_addr(), &PUTS);
        let put = || memory.word(0).load(Ordering::Relaxed) > 1;
        let mut connection = serve_until(&mut endpoint, &memory, put);
        lane_of(&mut said);
        sleep(Duration::from_micros(300 + 131 * round));
        let killed = round % 3 == 2;
        match killed {
            true => child.kill().expect("ours"),
            false => signal(&child, SIGSTOP),
        }
        let mut own = memory.revoke().expect("the only handle");
        let (least, most) = numbers(&own);
        assert!(most - least <= 1, "{least} to {most}");
        abandoned += u32::from(most != least);
        own.fill(0xa5);
        if !killed {
            signal(&child, SIGCONT);
            // Its put continues, and the next one is refused.
            let end = Instant::now() + PATIENCE;
            let told = std::thread::spawn(move || told(&mut said, "refused"));
            while !told.is_finished() {
                assert!(Instant::now() < end, "it puts on");
                let _ = connection.wait(Some(Duration::from_millis(1)));
            }
            let direct: u64 = told.join().expect("no panic").parse().expect("a number");
            seen += u32::from(direct > 0);
        }
        assert!(crate::is_all(&own, 0xa5), "round {round}: it changed");
        let _ = child.kill();
        child.wait().expect("killed");
    }
    eprintln!("{abandoned} of 24 in the middle of a put");
    assert_eq!(seen, 16, "all put by themselves");
}

#[test]
fn mapped__of_a_peer_that_died_is_refused_soon() {
    let memory = memfd(4096);
    let mut endpoint = listen(LaneChoice::SharedMemory);
    let to = endpoint.local_addr();
    let opened = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let connection = serve_until(&mut endpoint, &memory, || opened.load(Ordering::Acquire));
            drop(connection);
        });
        let (mut connection, key) = connect(to);
        opened.store(true, Ordering::Release);
        let end = Instant::now() + PATIENCE;
        while connection.put(&key, 0, b"anything").is_ok() {
            assert!(Instant::now() < end, "nobody is there");
        }
    });
}

#[test]
fn mapped__handles_of_a_worker_complete_at_once_and_in_order() {
    const PUTS: u64 = 3_000;
    let memory = memfd(1 << 16);
    let owner = Worker::new().expect("a worker").spawn().expect("a thread");
    let any = "127.0.0.1:0";
    let endpoint = owner.listen(any, shared()).wait().expect("listening");
    endpoint
        .export("m", &memory, Rights::ALL)
        .wait()
        .expect("room");
    let worker = Worker::new().expect("a worker").spawn().expect("a thread");
    let connection = worker
        .connect(endpoint.local_addr(), &shared())
        .wait()
        .expect("met");
    let opened = connection.post(OpenRegion::new("m", Rights::ALL)).wait();
    let key = opened.expect("exported").key().expect("a key");
    let puts: Vec<_> = (0..PUTS)
        .map(|number| {
            let bytes = number.to_ne_bytes().to_vec();
            connection.post(Put::new(&key, number * 8, Region::from_vec(bytes)))
        })
        .collect();
    for put in puts {
        put.wait().expect("put").result.expect("placed");
    }
    for number in 0..PUTS {
        let there = memory.word(number as usize * 8).load(Ordering::Acquire);
        assert_eq!(there, number);
    }
    let got = connection.post(Get::new(&key, 8, Region::from_vec(vec![0; 8])));
    let got = got.wait().expect("got");
    got.result.expect("whole");
    assert_eq!(
        got.into_region().expect("a region")[..],
        1_u64.to_ne_bytes()
    );
}
