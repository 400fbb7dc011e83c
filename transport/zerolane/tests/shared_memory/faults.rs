//! Tests that shared memory survives lack of memory and descriptors, and dead peers with live sockets.

use crate::child::{Job, child, lane_of, told};
use crate::{PATIENCE, accept, content, listen, options, region};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::BufReader;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use zerolane::options::LaneChoice;
use zerolane::worker::{Event, Worker};
use zerolane::{Connection, Region};

#[test]
fn connect__where_no_memory_can_be_made_is_by_udp_and_says_why() {
    let job = Job {
        lane: "best",
        first: "make no files",
        ..Job::SEND
    };
    let mut endpoint = listen(LaneChoice::Best);
    let (mut child, mut said) = child(endpoint.local_addr(), &job);
    let mut connection = accept(&mut endpoint);
    assert_eq!(lane_of(&mut said), "Udp Some(System)");
    let mut buffer = vec![0; crate::LEN];
    connection.recv_into(&mut buffer).expect("by UDP");
    assert!(buffer == content(0, crate::LEN), "content");
    child.kill().expect("ours");
    child.wait().expect("killed");
}

/// The peer's process ends, and a child of it keeps its end of the socket.
#[test]
fn worker__asleep_misses_a_dead_peer_whose_child_has_the_socket() {
    let lane = options(LaneChoice::SharedMemory).with(|it| {
        // Not detected by a timeout.
        it.times.idle = Duration::from_secs(600);
    });
    let mut worker = Worker::new().expect("a worker");
    let any = "127.0.0.1:0";
    let endpoint = worker.listen(any, lane).expect("a port");
    let to = worker.endpoint(endpoint).expect("listening").local_addr();
    let job = Job {
        first: "lend",
        then: "stay",
        ..Job::SEND
    };
    let (mut child, mut said) = child(to, &job);
    let group = Pid::from_raw(child.id() as i32);
    let mut accepted = false;
    let mut killed = false;
    let end = Instant::now() + PATIENCE;
    let closed = loop {
        if Instant::now() > end {
            break false;
        }
        worker
            .wait(Some(Duration::from_millis(200)))
            .expect("turns");
        let event = worker.next_event();
        match event {
            Some(Event::Accepted { .. }) => accepted = true,
            Some(Event::Closed { .. }) => break true,
            _ => {}
        }
        if accepted && !killed {
            killed = true;
            // It reports that once the connection is established, which this end has done.
            for _ in 0..20 {
                worker.wait(Some(Duration::from_millis(5))).expect("turns");
            }
            told(&mut said, "lent");
            child.kill().expect("ours");
            child.wait().expect("killed");
        }
    };
    killpg(group, Signal::SIGKILL).expect("its child lives");
    assert!(killed && closed, "missed");
}

/// A listener without descriptors, and then with some; see the test below.
#[test]
#[ignore = "the job of a child process"]
fn listener__job() {
    if std::env::var("ZL_LISTEN").is_err() {
        return;
    }
    let mut worker = Worker::new().expect("a worker");
    let any = "127.0.0.1:0";
    let options = options(LaneChoice::SharedMemory);
    let endpoint = worker.listen(any, options).expect("a port");
    let at = worker.endpoint(endpoint).expect("listening").local_addr();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).expect("less");
    println!("zl at {at}");
    let exhausted = |worker: &mut Worker| {
        let listening = worker.endpoint(endpoint).expect("listening");
        listening.counters().exhausted
    };
    let end = Instant::now() + PATIENCE;
    while exhausted(&mut worker) == 0 {
        assert!(Instant::now() < end, "nobody came");
        worker.wait(Some(Duration::from_millis(20))).expect("turns");
    }
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        worker.wait(Some(Duration::from_millis(20))).expect("turns");
    }
    println!("zl exhausted {}", exhausted(&mut worker));
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("more");
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        worker.wait(Some(Duration::from_millis(20))).expect("turns");
        match worker.next_event() {
            Some(Event::Accepted { connection, .. }) => {
                let it = worker.connection(connection).expect("lives");
                let memory = Region::anonymous(100).expect("memory");
                it.post_recv(memory).expect("posted");
            }
            Some(Event::Completed { completion, .. }) => {
                assert!(completion.into_region().expect("a region")[..] == content(7, 100)[..]);
                println!("zl received");
                return;
            }
            _ => {}
        }
    }
}

#[test]
fn listen__without_descriptors_neither_spins_nor_forgets_who_waits() {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "faults::listener__job",
            "--ignored",
            "--nocapture",
        ])
        .env("ZL_LISTEN", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawned");
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let at: SocketAddr = told(&mut said, "at").parse().expect("an address");
    let sending = std::thread::spawn(move || {
        let patient = options(LaneChoice::SharedMemory).with(|it| it.times.connect = PATIENCE);
        let mut connection = Connection::connect(at, &patient)?;
        connection.send(&region(7, 100)[..])?;
        connection.close()
    });
    let exhausted: u64 = told(&mut said, "exhausted").parse().expect("a number");
    told(&mut said, "received");
    child.wait().expect("done");
    let sent = sending.join().expect("no panic");
    assert!(sent.is_ok(), "{sent:?}");
    // A listener that spins would check some 100 000 times.
    assert!((1..500).contains(&exhausted), "{exhausted} times");
}
