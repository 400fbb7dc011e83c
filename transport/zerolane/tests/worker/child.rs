//! Tests that connections, endpoints, workers and queues stay the parent's after fork.

use super::fork::in_a_child;
use super::{PATIENCE, anywhere, content, plain, region};
use nix::errno::Errno;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane::options::LaneChoice;
use zerolane::request::{Message, Put, PutInline, ReceiveMessage, WorkKind};
use zerolane::worker::{ConnectionId, Event, Worker};
use zerolane::{
    Completion, CompletionQueue, Connection, Endpoint, Error, ExportedRegion, Options, Region,
    Rights, Waker,
};

fn is_forked<T: std::fmt::Debug>(outcome: Result<T, impl Into<Error>>) {
    let error = outcome.expect_err("refused").into();
    assert!(matches!(error, Error::Forked), "{error}");
}

fn pair_of(options: &Options) -> (Connection, Connection) {
    let mut endpoint = Endpoint::bind(anywhere(), options.clone()).expect("a port");
    let (address, options) = (endpoint.local_addr(), options.clone());
    let connecting = std::thread::spawn(move || Connection::connect(address, &options));
    let accepted = endpoint.accept(Some(PATIENCE)).expect("no error");
    let connected = connecting.join().expect("no panic");
    (connected.expect("connected"), accepted.expect("in time"))
}

/// The completion of a receive, if it comes soon.
fn next_received(connection: &mut Connection) -> Option<Completion> {
    let completion = connection
        .wait(Some(Duration::from_millis(5)))
        .map(zerolane::Waited::got);
    let completion = completion.expect("it goes on");
    completion.filter(|it| it.kind() == WorkKind::Receive)
}

/// Sends from one to the other, often enough to detect a reused number.
fn talk(from: &mut Connection, to: &mut Connection) {
    for seed in 0..20 {
        from.post_send(region(seed, 5000)).expect("posted");
        to.post_recv(Region::from_vec(vec![0; 5000]))
            .expect("posted");
        let received = loop {
            from.poll().expect("it goes on");
            if let Some(received) = next_received(to) {
                break received;
            }
        };
        assert_eq!(received.result.expect("whole"), 5000);
        assert!(
            received.into_region().expect("a region")[..] == content(seed, 5000),
            "content"
        );
    }
}

#[test]
fn connection__is_refused_in_a_child_and_goes_on_in_its_parent() {
    let sealed = Options::default().with(|it| it.lane.choice = LaneChoice::Udp);
    let plain_udp = plain().with(|it| it.lane.choice = LaneChoice::Udp);
    for options in [Options::default(), sealed, plain_udp] {
        let (mut ours, mut peers) = pair_of(&options);
        ours.set_timeout(Some(PATIENCE / 4));
        let memory = ExportedRegion::new(Region::memfd(4096).expect("memory")).expect("aligned");
        let lent = ours.export(&memory, Rights::ALL).expect("exported");
        let theirs = peers.export(&memory, Rights::ALL).expect("exported");
        talk(&mut ours, &mut peers);
        talk(&mut peers, &mut ours);
        // A receive that the child must leave alone.
        let receiving = ours.post_recv(region(1, 64)).expect("posted");
        let mut kept = Some(ours);
        in_a_child(|| {
            let mut ours = kept.take().expect("there");
            is_forked(ours.send(b"by the child"));
            is_forked(ours.recv_into(&mut [0; 8]));
            is_forked(ours.put(&theirs, 0, b"by the child"));
            is_forked(ours.get(&theirs, 0, &mut [0; 8]));
            is_forked(ours.fetch_add(&theirs, 8, 1));
            is_forked(ours.open_region("m", Rights::ALL));
            is_forked(ours.send_message(b"control", None));
            is_forked(ours.recv_message(None));
            let refused = ours.post_send(region(7, 100)).expect_err("refused");
            assert!(matches!(refused.error, Error::Forked));
            assert_eq!(refused.memory.as_slice(), Some(&content(7, 100)[..]));
            is_forked(ours.post_recv(region(7, 100)));
            is_forked(ours.post(Put::new(&theirs, 0, region(7, 100))));
            is_forked(ours.post(PutInline::new(&theirs, 0, b"by the child")));
            is_forked(ours.post(Message::new(b"control")));
            is_forked(ours.export(&memory, Rights::ALL));
            assert!(!ours.revoke(&lent) && !ours.revoke_region(&memory));
            assert!(!ours.cancel(receiving));
            is_forked(ours.finish());
            is_forked(ours.poll());
            is_forked(ours.poll_batch(&mut Vec::new(), 8));
            is_forked(ours.wait(Some(PATIENCE)));
            is_forked(ours.announced(Some(PATIENCE)));
            is_forked(ours.wait_arrived(receiving, 0, Some(PATIENCE)));
            assert_eq!(
                ours.next_timeout(),
                Some(Duration::ZERO),
                "it asks, and is told"
            );
            is_forked(ours.close());
        });
        let mut ours = kept.expect("the child's only");
        peers.post_send(region(3, 64)).expect("posted");
        let received = loop {
            peers.poll().expect("it goes on");
            if let Some(received) = next_received(&mut ours) {
                break received;
            }
        };
        assert_eq!(received.id, receiving);
        assert!(
            received.into_region().expect("a region")[..] == content(3, 64),
            "content"
        );
        talk(&mut ours, &mut peers);
        talk(&mut peers, &mut ours);
        // The region that the child tried to revoke is still served.
        let serving = std::thread::spawn(move || {
            while ours
                .wait(Some(PATIENCE))
                .map(zerolane::Waited::got)
                .is_ok_and(|it| it.is_none())
            {}
        });
        peers.put(&lent, 16, b"by the peer").expect("put");
        let mut bytes = [0; 11];
        memory.read(16, &mut bytes);
        assert_eq!(&bytes, b"by the peer");
        peers.close().expect("nothing was lost");
        serving.join().expect("no panic");
    }
}

#[test]
fn close__in_a_child_without_another_call_says_nothing() {
    for lane in [LaneChoice::Udp, LaneChoice::Best] {
        let options = Options::default().with(|it| it.lane.choice = lane);
        let (ours, mut peers) = pair_of(&options);
        let mut kept = Some(ours);
        in_a_child(|| drop(kept.take()));
        in_a_child(|| is_forked(kept.take().expect("there").close()));
        talk(&mut kept.expect("the children's only"), &mut peers);
    }
}

/// T35: three children of one server that forks before it accepts.
#[test]
fn endpoint__accepts_in_the_process_that_bound_it() {
    for lane in [LaneChoice::Udp, LaneChoice::Best] {
        let options = Options::default().with(|it| it.lane.choice = lane);
        let mut endpoint = Endpoint::bind(anywhere(), options.clone()).expect("a port");
        let address = endpoint.local_addr();
        for _ in 0..3 {
            let mut kept = Some(&mut endpoint);
            in_a_child(|| {
                let endpoint = kept.take().expect("there");
                is_forked(endpoint.accept(Some(PATIENCE)));
                is_forked(endpoint.give_to(0));
                // The child's own objects work as usual.
                drop(pair_of(&Options::default()));
            });
        }
        let connecting = std::thread::spawn(move || Connection::connect(address, &options));
        let accepted = endpoint.accept(Some(PATIENCE)).expect("no error");
        let mut connected = connecting.join().expect("no panic").expect("connected");
        talk(&mut connected, &mut accepted.expect("in time"));
    }
}

#[test]
fn endpoint__dropped_in_a_child_listens_on() {
    let mut endpoint = Endpoint::bind(anywhere(), Options::default()).expect("a port");
    let address = endpoint.local_addr();
    let mut kept = Some(endpoint);
    in_a_child(|| drop(kept.take()));
    endpoint = kept.expect("the child's only");
    let connecting = std::thread::spawn(move || Connection::connect(address, &Options::default()));
    let accepted = endpoint.accept(Some(PATIENCE)).expect("no error");
    assert_eq!(
        accepted.expect("in time").account().lane,
        connecting
            .join()
            .expect("no panic")
            .expect("connected")
            .account()
            .lane,
        "the rendezvous in memory is there too"
    );
}

/// The connection that a worker's endpoint accepts, and its client.
fn accepted(worker: &mut Worker, address: SocketAddr) -> (ConnectionId, Connection) {
    let connecting = std::thread::spawn(move || Connection::connect(address, &Options::default()));
    for _ in 0..1000 {
        worker.wait(Some(PATIENCE)).expect("it goes on");
        while let Some(event) = worker.next_event() {
            if let Event::Accepted { connection, .. } = event {
                let connected = connecting.join().expect("no panic");
                return (connection, connected.expect("connected"));
            }
        }
    }
    panic!("none was accepted");
}

#[test]
fn worker__is_refused_in_a_child_and_goes_on_in_its_parent() {
    let mut worker = Worker::new().expect("descriptors");
    let endpoint = worker
        .listen(anywhere(), Options::default())
        .expect("a port");
    let address = worker.endpoint(endpoint).expect("it listens").local_addr();
    let (id, _peers) = accepted(&mut worker, address);
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory")).expect("aligned");
    let mut kept = Some(worker);
    in_a_child(|| {
        let worker = kept.as_mut().expect("there");
        is_forked(worker.progress());
        is_forked(worker.wait(Some(PATIENCE)));
        is_forked(worker.arm());
        is_forked(worker.listen(anywhere(), Options::default()));
        is_forked(worker.connect(address, &Options::default()));
        is_forked(worker.export(endpoint, "m", &memory, Rights::ALL));
        is_forked(
            worker
                .connection(id)
                .expect("a copy")
                .post_send(region(1, 8)),
        );
        assert!(!worker.close(id) && !worker.close_endpoint(endpoint));
        assert!(worker.release(id).is_none() && worker.next_event().is_none());
        // The parent's connection, for a worker of the child's own.
        let mut own = Worker::new().expect("descriptors");
        let connecting = Endpoint::bind(anywhere(), Options::default()).expect("a port");
        let listens = own.listen_on(connecting).expect("its own");
        is_forked(own.export(listens, "m", &memory, Rights::ALL));
        is_forked(kept.take().expect("there").spawn());
    });
    let mut worker = kept.expect("the child's only");
    // The parent's worker still watches its descriptors.
    let (again, peers) = accepted(&mut worker, address);
    assert_ne!(id, again);
    drop(peers);
    assert!(worker.close(id) && worker.close_endpoint(endpoint));
}

#[test]
fn queue__is_empty_and_refused_in_a_child() {
    let (mut ours, mut peers) = pair_of(&Options::default());
    let queue = CompletionQueue::new(8).expect("a queue");
    ours.set_completion_queue(&queue, 7);
    let posted = ours.post(ReceiveMessage::new()).expect("posted");
    assert!(ours.cancel(posted));
    ours.poll().expect("it goes on");
    assert_eq!(queue.len(), 1);
    in_a_child(|| {
        assert!(queue.poll().is_none() && queue.is_empty());
        assert_eq!(queue.poll_batch(&mut Vec::new(), 8), 0);
        is_forked(queue.check_process());
        is_forked(queue.wait(Some(PATIENCE)));
        // Nor does it take completions of a connection of the child's.
        let (mut own, _peers) = pair_of(&Options::default());
        own.set_completion_queue(&queue, 8);
        is_forked(own.poll());
        is_forked(own.wait(Some(PATIENCE)));
    });
    // The descriptor is readable for it, as before.
    let (tag, completion) = queue
        .wait(Some(PATIENCE))
        .expect("no error")
        .expect("there");
    assert_eq!((tag, completion.id), (7, posted));
    peers.poll().expect("connected");
}

#[test]
fn exported__memory_is_the_parents_to_revoke() {
    for make in [Region::anonymous, Region::memfd] {
        let memory = ExportedRegion::new(make(4096).expect("memory")).expect("aligned");
        memory.write(0, b"parent");
        let mut kept = Some(memory.clone());
        in_a_child(|| {
            let memory = kept.take().expect("there");
            let memory = memory.revoke().expect_err("the parent's");
            memory.clone().end();
            assert!(!memory.is_revoked());
            let (mut own, _peers) = pair_of(&Options::default());
            is_forked(own.export(&memory, Rights::ALL));
            is_forked(own.export_named("m", &memory, Rights::ALL));
            // Works on a copy, or on nothing.
            let written = memory.try_write(0, b"child!");
            assert_eq!(written.is_ok(), memory.try_read(0, &mut [0; 6]).is_ok());
        });
        let mut bytes = [0; 6];
        memory.read(0, &mut bytes);
        assert_eq!(&bytes, b"parent");
        drop(kept);
        assert_eq!(memory.revoke().expect("the only handle").len(), 4096);
    }
}

#[test]
fn wake__in_a_child_does_not_wake_the_parent() {
    let waker = Waker::default();
    let event = waker.descriptor().expect("a descriptor");
    assert!(waker.arm());
    in_a_child(|| waker.wake());
    let mut count = [0; 8];
    assert_eq!(nix::unistd::read(event, &mut count), Err(Errno::EAGAIN));
    waker.wake();
    assert_eq!(nix::unistd::read(event, &mut count), Ok(8));
}
