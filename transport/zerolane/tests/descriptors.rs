//! Tests that an endpoint without a free descriptor refuses clients with a reason.
//!
//! A separate program, because it lowers its limit of descriptors.
#![allow(non_snake_case)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, Reason};
use zerolane::options::LaneChoice;
use zerolane::worker::{Event, Worker};
use zerolane::{Connection, Error, Options, Security};

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("Linux has it")
        .count()
}

/// The number of the next descriptor.
fn lowest_free() -> u64 {
    let next = std::fs::File::open("/dev/null").expect("a descriptor");
    next.as_raw_fd() as u64
}

fn limit(files: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let lower = Rlimit {
        current: Some(files),
        maximum,
    };
    setrlimit(Resource::Nofile, lower).expect("a lower limit");
}

/// A new client gets the reason, encrypted or not; connections stay open, and clients are accepted again once there are
/// descriptors.
#[test]
fn accept__without_a_descriptor_refuses_in_words_and_leaks_nothing() {
    for security in [Security::default(), Security::plain()] {
        // A client that could use shared memory would need descriptors of its own, and use the listener's for a
        // visitor.
        let options = Options::default().with(|it| {
            it.security = security;
            it.lane.choice = LaneChoice::Udp;
        });
        let mut worker = Worker::new().expect("descriptors");
        let anywhere = "127.0.0.1:0";
        let endpoint = worker.listen(anywhere, options.clone()).expect("a port");
        let address = worker.endpoint(endpoint).expect("listens").local_addr();
        let (connect, connecting) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        // Threads and their channels open no descriptors; the client's socket needs one, which is reserved from the
        // start.
        let client = std::thread::spawn(move || {
            while connecting.recv().is_ok() {
                let connected = Connection::connect(address, &options);
                tell.send(connected.map(drop)).expect("waited for");
            }
        });
        let connected = |worker: &mut Worker| {
            connect.send(()).expect("it lives");
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                assert!(Instant::now() < end, "no answer in time");
                worker
                    .wait(Some(Duration::from_millis(5)))
                    .expect("the system allows it");
                while let Some(event) = worker.next_event() {
                    assert!(!matches!(event, Event::EndpointFailed { .. }), "{event:?}");
                }
                if let Ok(connected) = told.try_recv() {
                    return connected;
                }
            }
        };
        connected(&mut worker).expect("enough descriptors");
        let before = getrlimit(Resource::Nofile).current.expect("limited");
        while worker.connections() > 0 {
            worker
                .wait(Some(Duration::from_millis(5)))
                .expect("the system allows it");
            while worker.next_event().is_some() {}
        }
        // There is a descriptor for the client's socket, none for the server's.
        let open = open_files();
        limit(lowest_free() + 1);
        let refused = connected(&mut worker);
        limit(before);
        let busy = |reason| matches!(reason, Reason::Busy);
        match refused {
            Err(Error::Closed(CloseReason::Rejected { reason, .. })) if busy(reason) => {}
            other => panic!("{other:?}"),
        }
        let endpoint = worker.endpoint(endpoint).expect("it goes on");
        assert!(endpoint.counters().exhausted >= 1);
        assert!(open_files() <= open, "{} are open", open_files());
        connected(&mut worker).expect("descriptors again");
        drop(connect);
        client.join().expect("no panic");
    }
}
