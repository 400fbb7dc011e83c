//! Tests workers that become a thread late: handles of what they have by then, and the worker of the process.

use super::fork::in_a_child;
use super::handles::pair;
use super::{PATIENCE, anywhere, content, region};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerolane::worker::{
    ConnectionHandle, ConnectionId, EndpointId, Event, Worker, WorkerHandle, background,
};
use zerolane::{Error, Options, Process};

/// A worker that listens, and connections to its own endpoint.
struct Made {
    worker: Worker,
    endpoint: EndpointId,
    connected: Vec<ConnectionId>,
    accepted: Vec<ConnectionId>,
}

/// Makes `count` connections, and takes the events that say so.
fn made(count: usize) -> Made {
    let mut worker = Worker::new().expect("descriptors");
    let endpoint = worker
        .listen(anywhere(), Options::default())
        .expect("a port");
    let address = worker.endpoint(endpoint).expect("it listens").local_addr();
    for _ in 0..count {
        worker.connect(address, &Options::default()).expect("begun");
    }
    let (mut connected, mut accepted) = (Vec::new(), Vec::new());
    let end = Instant::now() + PATIENCE;
    while connected.len() < count || accepted.len() < count {
        assert!(Instant::now() < end, "in time");
        worker.wait(Some(PATIENCE)).expect("it goes on");
        while let Some(event) = worker.next_event() {
            match event {
                Event::Connected { connection } => connected.push(connection),
                Event::Accepted { connection, .. } => accepted.push(connection),
                other => panic!("{other:?}"),
            }
        }
    }
    Made {
        worker,
        endpoint,
        connected,
        accepted,
    }
}

/// The handles of the two ends of one connection.
fn ends(made: &mut Made) -> (ConnectionHandle, ConnectionHandle) {
    let mut handle = |id| made.worker.connection_handle(id).expect("established");
    (handle(made.connected[0]), handle(made.accepted[0]))
}

fn exchange(from: &ConnectionHandle, to: &ConnectionHandle, seed: u64) {
    let mut received = to.recv(region(1, 64));
    from.send(region(seed, 64)).detach();
    let received = received.wait_for(PATIENCE).expect("in time");
    let received = received.expect("posted").into_region().expect("a region");
    assert!(received[..] == content(seed, 64), "content");
}

#[test]
fn connection_handle__made_before_the_thread_posts_by_it() {
    let mut made = made(1);
    let (client, server) = ends(&mut made);
    assert_eq!(client.peer_key().is_some(), server.peer_key().is_some());
    let _thread = made.worker.spawn().expect("a thread");
    exchange(&client, &server, 3);
    exchange(&server, &client, 4);
    client.close().wait().expect("closed");
}

#[test]
fn connection_handle__gets_what_came_before_in_order() {
    let mut made = made(1);
    let (ours, theirs) = (made.accepted[0], made.connected[0]);
    for _ in 0..8 {
        let server = made.worker.connection(ours).expect("open");
        server.post_recv(region(1, 64)).expect("posted");
    }
    for seed in 0..4 {
        let client = made.worker.connection(theirs).expect("open");
        client.post_send(region(seed, 64)).expect("posted");
    }
    // Their events are there, and are not taken.
    let end = Instant::now() + PATIENCE;
    while made
        .worker
        .connection(ours)
        .is_some_and(|it| it.in_flight() > 4)
    {
        assert!(Instant::now() < end, "in time");
        made.worker.progress().expect("it goes on");
    }
    let (client, server) = ends(&mut made);
    assert!(
        made.worker.next_event().is_none(),
        "a connection with a handle has no events"
    );
    let _thread = made.worker.spawn().expect("a thread");
    // Received by requests of the time before: four that have come, four that come now.
    for seed in 4..8 {
        client.send(region(seed, 64)).wait().expect("sent");
    }
    for seed in 0..8 {
        let mut received = server.recv(region(1, 8));
        let received = received.wait_for(PATIENCE).expect("in time");
        let received = received.expect("posted").into_region().expect("a region");
        assert!(received[..] == content(seed, 64), "{seed}");
    }
}

#[test]
fn connection_handle__is_one_and_of_an_established_connection() {
    let mut made = made(2);
    let (client, _server) = ends(&mut made);
    assert!(made.worker.connection_handle(made.connected[0]).is_none());
    let none = ConnectionId::from_u64(4711);
    assert!(made.worker.connection_handle(none).is_none());
    assert!(made.worker.close(made.connected[1]));
    assert!(made.worker.connection_handle(made.connected[1]).is_none());
    let address = made.worker.endpoint(made.endpoint).expect("it listens");
    let address = address.local_addr();
    let begun = made.worker.connect(address, &Options::default());
    assert!(
        made.worker
            .connection_handle(begun.expect("begun"))
            .is_none()
    );
    // It closes with its handle.
    drop(client);
    let end = Instant::now() + PATIENCE;
    while made.worker.connection(made.connected[0]).is_some() {
        assert!(Instant::now() < end, "in time");
        let soon = Some(Duration::from_millis(10));
        made.worker.wait(soon).expect("it goes on");
        while made.worker.next_event().is_some() {}
    }
}

#[test]
fn endpoint_handle__gets_connections_of_before_and_after() {
    let mut made = made(0);
    let address = made.worker.endpoint(made.endpoint).expect("it listens");
    let address = address.local_addr();
    let begun = made.worker.connect(address, &Options::default());
    let begun = begun.expect("begun");
    // Both events are there, and are not taken.
    let end = Instant::now() + PATIENCE;
    let early = loop {
        assert!(Instant::now() < end, "in time");
        made.worker.progress().expect("it goes on");
        if made.worker.connections() == 2
            && let Some(handle) = made.worker.connection_handle(begun)
        {
            break handle;
        }
    };
    let endpoint = made.worker.endpoint_handle(made.endpoint);
    let endpoint = endpoint.expect("it listens");
    assert_eq!(endpoint.local_addr(), address);
    assert!(made.worker.endpoint_handle(made.endpoint).is_none());
    assert!(
        made.worker
            .endpoint_handle(EndpointId::from_u64(4711))
            .is_none()
    );
    let thread = made.worker.spawn().expect("a thread");
    let before = endpoint.accept().wait().expect("accepted");
    exchange(&early, &before, 3);
    let late = thread.connect(address, &Options::default());
    let late = late.wait().expect("connected");
    let after = endpoint.accept().wait().expect("accepted");
    exchange(&after, &late, 4);
    drop(endpoint);
    let refused = thread.connect(
        address,
        &Options::default().with(|it| it.times.connect = Duration::from_millis(200)),
    );
    refused.wait().expect_err("it closes with its handle");
}

fn works(worker: &WorkerHandle) {
    let (_endpoint, client, server) = pair(worker);
    exchange(&client, &server, 3);
}

/// One test, because the worker is the process's.
#[test]
fn background__is_one_of_each_process_and_starts_again() {
    // Before the first use here.
    in_a_child(|| works(&background().expect("a thread")));
    let ours = background().expect("a thread");
    let (endpoint, client, server) = pair(&ours);
    // The same worker: a wait for a connection of its endpoint is answered.
    let theirs = background().expect("the same");
    let connecting = theirs.connect(endpoint.local_addr(), &Options::default());
    endpoint.accept().wait().expect("accepted");
    connecting.wait().expect("connected");
    let made_in = Process::current();
    in_a_child(|| {
        assert_eq!(Process::current().forks(), made_in.forks() + 1);
        let refused = client.account().wait().expect_err("the parent's");
        assert!(matches!(refused.error, Error::Forked), "{refused}");
        works(&background().expect("its own"));
        in_a_child(|| works(&background().expect("its own")));
        works(&background().expect("its own still"));
    });
    // A lock that another thread holds now is never released in the child.
    let end = Instant::now() + PATIENCE;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && Instant::now() < end {
                let _ = background();
            }
        });
        for _ in 0..10 {
            in_a_child(|| drop(background().expect("its own")));
        }
        over.store(true, Ordering::Relaxed);
    });
    exchange(&client, &server, 5);
    drop((endpoint, client, server));
    // It was stopped, against the rules.
    ours.stop();
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let again = background().expect("a thread");
        let listening = again.listen(anywhere(), Options::default());
        if listening.wait().is_ok() {
            return works(&again);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not start again");
}
