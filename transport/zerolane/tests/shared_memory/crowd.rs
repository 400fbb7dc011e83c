//! Tests that more processes than a listener has places for are served, and that idle ones keep no others out.

use crate::places::name;
use crate::{PATIENCE, content, listen, options};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use zerolane::counters::{Account, LaneKind, NoSharedMemory};
use zerolane::options::LaneChoice;
use zerolane::request::WorkKind;
use zerolane::worker::{ConnectionId, Event, Worker};
use zerolane::{Connection, Region};

/// More than a listener handles at a time. Both ends of each take two descriptors of a process, which may have 1024.
const COMERS: usize = 160;
const LONGEST: usize = 70_000;

/// Runs the test `name` in a process of its own, one at a time: other tests of this program would share its
/// descriptors.
fn alone(name: &str, test: fn()) {
    const ALONE: &str = "ZL_ALONE";
    static ONE: Mutex<()> = Mutex::new(());
    if std::env::var_os(ALONE).is_some() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard one");
        return test();
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut process = Command::new(std::env::current_exe().expect("this program"));
    process.args(["--exact", "--include-ignored", "--nocapture"]);
    let output = process.arg(name).env(ALONE, "").output().expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{name}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The message of the client with this number, and its answer with `seed`: without a grant, and with one.
fn said(number: usize, seed: usize) -> Vec<u8> {
    let mut said = content(number + seed, [16, 3000, LONGEST, 20_000][number % 4]);
    said[..8].copy_from_slice(&(number as u64).to_le_bytes());
    said
}

/// The number of the client that sent it.
fn number_of(said: &[u8]) -> usize {
    let (number, _) = said.split_first_chunk().expect("a number");
    u64::from_le_bytes(*number) as usize
}

fn post(worker: &mut Worker, connection: ConnectionId, said: Vec<u8>) {
    let it = worker.connection(connection).expect("lives");
    it.post_send(Region::from_vec(said)).expect("posted");
}

fn post_receive(worker: &mut Worker, connection: ConnectionId) {
    let it = worker.connection(connection).expect("lives");
    let place = Region::anonymous(LONGEST).expect("memory");
    it.post_recv(place).expect("posted");
}

/// Clients that have all met a listener of this lane before the first of them sends. Each sends, and is answered.
/// Returns their accounts, and those of the accepted connections.
fn crowd(lane: LaneChoice) -> [Vec<Account>; 2] {
    let options = options(lane).with(|it| {
        it.listen.max_connections_of_origin = 2 * COMERS;
        it.times.connect = PATIENCE;
    });
    let mut listener = Worker::new().expect("a worker");
    let any = "127.0.0.1:0";
    let endpoint = listener.listen(any, options.clone()).expect("a port");
    let to = listener.endpoint(endpoint).expect("listening").local_addr();
    let mut comers = Worker::new().expect("a worker");
    let mut calls = HashMap::new();
    for number in 0..COMERS {
        let call = comers.connect(to, &options).expect("met");
        calls.insert(call, number);
        post(&mut comers, call, said(number, 0));
        post_receive(&mut comers, call);
        if number % 60 == 59 {
            // It finds them, and receives nothing.
            for _ in 0..1000 {
                listener.progress().expect("turns");
            }
        }
    }
    let mut accepted = Vec::new();
    let mut answered = Vec::new();
    let end = Instant::now() + PATIENCE;
    while answered.len() < COMERS {
        assert!(
            Instant::now() < end,
            "{} accepted, {} answered",
            accepted.len(),
            answered.len()
        );
        comers.progress().expect("turns");
        listener.progress().expect("turns");
        while let Some(event) = comers.next_event() {
            match event {
                Event::Connected { .. } => {}
                Event::Completed {
                    connection,
                    completion,
                } => {
                    let len = completion.result.expect("no failure");
                    if completion.kind() == WorkKind::Receive {
                        let number = calls[&connection];
                        let found = completion.into_region().expect("a region");
                        assert!(found[..len] == said(number, 1)[..], "answer {number}");
                        answered.push(connection);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = listener.next_event() {
            match event {
                Event::Accepted { connection, .. } => {
                    post_receive(&mut listener, connection);
                    accepted.push(connection);
                }
                Event::Completed {
                    connection,
                    completion,
                } => {
                    let len = completion.result.expect("no failure");
                    if completion.kind() == WorkKind::Receive {
                        let found = completion.into_region().expect("a region");
                        let number = number_of(&found);
                        assert!(found[..len] == said(number, 0)[..], "comer {number}");
                        post(&mut listener, connection, said(number, 1));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let ends = [(&mut comers, answered), (&mut listener, accepted)];
    ends.map(|(worker, ids)| {
        let account = |id| worker.connection(id).expect("lives").account();
        ids.into_iter().map(account).collect()
    })
}

/// Their directory has room for all of them, and the listener for the first.
#[test]
fn crowd__of_hundreds_that_insist_is_served() {
    alone("crowd::crowd__of_hundreds_that_insist_is_served", || {
        for accounts in crowd(LaneChoice::SharedMemory) {
            assert_eq!(accounts.len(), COMERS);
            assert!(accounts.iter().all(|it| it.lane == LaneKind::SharedMemory));
        }
    });
}

/// Nothing is lost if some are late: they use UDP.
#[test]
fn crowd__of_hundreds_that_take_the_best_is_served() {
    let name = "crowd::crowd__of_hundreds_that_take_the_best_is_served";
    alone(name, best);
}

fn best() {
    let [comers, accepted] = crowd(LaneChoice::Best);
    for accounts in [&comers, &accepted] {
        assert_eq!(accounts.len(), COMERS, "each is one connection");
    }
    for account in &comers {
        let why = account.no_shared_memory;
        let by_udp = account.lane == LaneKind::Udp;
        let late = matches!(
            why,
            Some(NoSharedMemory::NotAdmitted | NoSharedMemory::Rejected)
        );
        assert!(late || why.is_none() && !by_udp, "{why:?}");
    }
    let by_udp = |accounts: &[Account]| {
        let udp = accounts.iter().filter(|it| it.lane == LaneKind::Udp);
        udp.count()
    };
    assert_eq!(by_udp(&comers), by_udp(&accepted));
}

/// The socket's path where this user's processes meet the listener at `address`.
fn rendezvous(address: SocketAddr) -> PathBuf {
    let user = nix::unistd::geteuid();
    let places = [
        std::env::var_os("XDG_RUNTIME_DIR").map(|it| Path::new(&it).join("zerolane")),
        Some(format!("/run/user/{user}/zerolane").into()),
        Some(format!("/tmp/zerolane-{user}").into()),
    ];
    let mut paths = places.into_iter().flatten().map(|it| name(&it, address));
    paths.find(|it| it.exists()).expect("it is met somewhere")
}

/// Idle processes that connect: at most `most`, and at most as many as may wait.
fn idlers(at: &Path, most: usize) -> Vec<OwnedFd> {
    let at = UnixAddr::new(at).expect("short");
    let mut idle = Vec::new();
    let mut tries = 0;
    while idle.len() < most && tries < 10 {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let it = socket(AddressFamily::Unix, SockType::Stream, flags, None).expect("a socket");
        match connect(it.as_raw_fd(), &at) {
            Ok(()) => idle.push(it),
            Err(Errno::EAGAIN) => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    idle
}

/// All places, or also all places in the backlog, are taken by idle processes of this user.
#[test]
fn crowd__of_idlers_keeps_nobody_out_for_long() {
    alone(
        "crowd::crowd__of_idlers_keeps_nobody_out_for_long",
        idlers_come,
    );
}

fn idlers_come() {
    // The kernel may have a shorter backlog than requested.
    for most in [400, usize::MAX] {
        let mut endpoint = listen(LaneChoice::Best);
        let to = endpoint.local_addr();
        let at = rendezvous(to);
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let listening = std::thread::spawn(move || {
            let mut received = 0;
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let accepted = endpoint.accept(Some(Duration::from_millis(20)));
                let Some(mut connection) = accepted.expect("accepting") else {
                    continue;
                };
                let mut place = vec![0; LONGEST];
                let len = connection.recv_into(&mut place).expect("received");
                let number = number_of(&place);
                assert!(place[..len] == said(number, 0)[..], "comer {number}");
                connection.close().expect("closed");
                received += 1;
            }
            received
        });
        let idle = idlers(&at, most);
        assert!(idle.len() > 128, "{} came", idle.len());
        for number in 0..5 {
            let mut connection =
                Connection::connect(to, &options(LaneChoice::Best)).expect("connected");
            connection.send(&said(number, 0)).expect("sent");
            let account = connection.account();
            match account.no_shared_memory {
                Some(
                    NoSharedMemory::NotAdmitted
                    | NoSharedMemory::QueueFull
                    | NoSharedMemory::Rejected,
                ) => {
                    assert_eq!(account.lane, LaneKind::Udp);
                }
                why => assert_eq!((why, account.lane), (None, LaneKind::SharedMemory)),
            }
            connection.close().expect("closed");
        }
        drop(stop);
        assert_eq!(listening.join().expect("no panic"), 5);
        drop(idle);
    }
}

/// Bytes of memory shared between processes that this one has touched.
fn shared_bytes() -> usize {
    let all = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux 4.14");
    let line = all.lines().find_map(|it| it.strip_prefix("Pss_Shmem:"));
    let kibibytes = line.and_then(|it| it.split_whitespace().next());
    kibibytes.expect("a figure").parse::<usize>().expect("one") * 1024
}

/// The memory of other tests would count, too.
#[test]
#[ignore = "a measurement: --ignored --exact --nocapture"]
fn idle__pairs_take_what_they_used() {
    alone("crowd::idle__pairs_take_what_they_used", measure_idle_pairs);
}

fn measure_idle_pairs() {
    const PAIRS: usize = 50;
    let options =
        options(LaneChoice::SharedMemory).with(|it| it.listen.max_connections_of_origin = PAIRS);
    let mut endpoint = zerolane::Endpoint::bind("127.0.0.1:0", options.clone()).expect("a port");
    let to = endpoint.local_addr();
    let before = shared_bytes();
    let say = |when: &str| {
        let each = (shared_bytes() - before) / PAIRS;
        println!("{when}: {} KiB for each pair", each >> 10);
    };
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let options = options.clone();
        let connecting = std::thread::spawn(move || Connection::connect(to, &options));
        let accepted = endpoint.accept(Some(PATIENCE)).expect("accepting");
        let connected = connecting.join().expect("no panic").expect("connected");
        pairs.push((connected, accepted.expect("in time")));
    }
    say("connected");
    for (len, when) in [(8, "a word to and fro"), (1 << 20, "1 MiB to and fro")] {
        for (a, b) in &mut pairs {
            let said = content(3, len);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut place = vec![0; len];
                    b.recv_into(&mut place).expect("received");
                    b.send(&place).expect("sent");
                });
                a.send(&said).expect("sent");
                let mut place = vec![0; len];
                a.recv_into(&mut place).expect("received");
                assert!(place == said, "content");
            });
        }
        say(when);
    }
}
