//! Tests that other threads can post to a worker in its own thread by handles.

use super::{PATIENCE, anywhere, content, region};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, PostError, TransferError};
use zerolane::memory::Memory;
use zerolane::request::{
    Fetch, Get, GetPieces, Immediate, MessageInline, OpenRegion, Put, PutInline, PutPieces,
    ReceiveMessage,
};
use zerolane::worker::{ConnectionHandle, EndpointHandle, Outcome, Worker, WorkerThread};
use zerolane::{
    Connection, Error, ExportedRegion, FetchOp, Options, Region, RegionKey, RegionNumber, Rights,
};

pub(super) fn pair(
    worker: &zerolane::worker::WorkerHandle,
) -> (EndpointHandle, ConnectionHandle, ConnectionHandle) {
    let endpoint = worker.listen(anywhere(), Options::default());
    let endpoint = endpoint.wait().expect("a port");
    let client = worker.connect(endpoint.local_addr(), &Options::default());
    let client = client.wait().expect("connected");
    let server = endpoint.accept().wait().expect("accepted");
    (endpoint, client, server)
}

pub(super) fn spawned() -> WorkerThread {
    let worker = Worker::new().expect("descriptors");
    worker.spawn().expect("a thread")
}

fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn handles__are_for_any_thread() {
    is_send_and_sync::<zerolane::worker::WorkerHandle>();
    is_send_and_sync::<ConnectionHandle>();
    is_send_and_sync::<EndpointHandle>();
}

#[test]
fn close__where_the_idle_timeout_is_without_end() {
    let never = Options::default().with(|it| {
        it.times.idle = Duration::MAX;
        it.times.spin = Duration::MAX;
    });
    let mut worker = Worker::new().expect("descriptors");
    worker.set_spin(Duration::MAX);
    let worker = worker.spawn().expect("a thread");
    let endpoint = worker
        .listen(anywhere(), never.clone())
        .wait()
        .expect("a port");
    let client = worker.connect(endpoint.local_addr(), &never);
    let client = client.wait().expect("connected");
    let server = endpoint.accept().wait().expect("accepted");
    let mut received = server.recv(region(1, 64));
    let sent = client.send(region(3, 64));
    let received = received.wait_for(Duration::MAX).expect("no timeout");
    assert!(received.expect("received").into_region().expect("a region")[..] == content(3, 64));
    sent.wait().expect("sent").result.expect("received");
    // Begun before the end is waited for: it is flushed without a limit.
    let closing = client.close();
    drop(server);
    closing.wait().expect("all was sent");
    worker.stop().expect("stopped");
}

#[test]
fn export__is_served_while_its_owner_sleeps() {
    let worker = spawned();
    let endpoint = worker.listen(anywhere(), Options::default()).wait();
    let endpoint = endpoint.expect("a port");
    let memory = ExportedRegion::new(Region::anonymous(1 << 20).expect("memory"));
    let memory = memory.expect("page-aligned");
    let exported = endpoint.export("m", &memory, Rights::ALL).wait();
    exported.expect("an endpoint");
    // This thread, the owner's, makes no call until its peer is done.
    let address = endpoint.local_addr();
    let mut peer = Connection::connect(address, &Options::default()).expect("connected");
    peer.set_timeout(Some(PATIENCE));
    let key = peer.open_region("m", Rights::ALL).expect("opened");
    for (n, len) in [(1, 8), (2, 1000), (3, 20_000), (4, 900_000)] {
        peer.put(&key, 64, &content(n, len)).expect("put");
        let mut back = vec![0; len];
        peer.get(&key, 64, &mut back).expect("got");
        assert!(back == content(n, len), "content");
        assert_eq!(
            peer.fetch_op(&key, 0, FetchOp::Increment).expect("counted"),
            n - 1
        );
    }
    peer.close().expect("closed");
    worker.stop().expect("stopped");
}

#[test]
fn requests__from_eight_threads_each_complete_once_with_their_content() {
    const THREADS: u64 = 8;
    const EACH: u64 = 200;
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let memory = ExportedRegion::new(Region::anonymous(1 << 20).expect("memory"));
    let memory = memory.expect("page-aligned");
    let key = server
        .export(&memory, Rights::ALL)
        .wait()
        .expect("exported");
    let total = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (client, total) = (client.clone(), Arc::clone(&total));
            std::thread::spawn(move || {
                let offset = 4096 + thread * 65_536;
                let pending: Vec<_> = (0..EACH)
                    .map(|n| {
                        let put =
                            client.post(Put::new(&key, offset + n * 64, region(n, 64)).context(n));
                        (n, put, client.post(Fetch::new(&key, 0, FetchOp::Increment)))
                    })
                    .collect();
                for (n, put, add) in pending {
                    let put = put.wait().expect("posted");
                    assert_eq!(put.context, n);
                    put.result.expect("put");
                    assert!(
                        put.into_region().expect("a region")[..] == content(n, 64),
                        "memory came back"
                    );
                    add.wait().expect("posted").result.expect("added");
                    total.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(total.load(Ordering::Relaxed), (THREADS * EACH) as usize);
    assert_eq!(memory.word(0).load(Ordering::Acquire), THREADS * EACH);
    for thread in 0..THREADS {
        for n in 0..EACH {
            let mut placed = [0; 64];
            memory.read((4096 + thread * 65_536 + n * 64) as usize, &mut placed);
            assert!(placed[..] == content(n, 64), "{thread}, {n}");
        }
    }
}

#[test]
fn requests__beyond_what_the_connection_takes_wait_in_order() {
    const SENDS: u64 = 9000;
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let sends: Vec<_> = (0..SENDS).map(|n| client.send(region(n, 16))).collect();
    let receives: Vec<_> = (0..SENDS)
        .map(|_| server.recv(Region::anonymous(16).expect("memory")))
        .collect();
    for (n, received) in receives.into_iter().enumerate() {
        let received = received.wait().expect("posted");
        assert_eq!(received.result, Ok(16));
        assert!(
            received.into_region().expect("a region")[..] == content(n as u64, 16),
            "{n}"
        );
    }
    for sent in sends {
        sent.wait().expect("posted").result.expect("sent");
    }
}

#[test]
fn pending__dropped_cancels_and_what_came_is_the_next_ones() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    for n in 0..50 {
        // At a different moment each time: before, while and after the Transfer arrives.
        let given_up = server.recv(Region::anonymous(64).expect("memory"));
        let sent = client.send(region(n, 64));
        std::thread::sleep(Duration::from_micros(n * 7));
        drop(given_up);
        let received = server.recv(Region::anonymous(64).expect("memory"));
        // The receive that was given up may have matched the send, which then fails, and is sent again.
        match sent.wait().expect("posted").result {
            Ok(64) => {}
            Err(TransferError::Refused(_) | TransferError::Cancelled) => {
                let again = client.send(region(n, 64)).wait().expect("posted");
                again.result.expect("sent");
            }
            other => panic!("{other:?}"),
        }
        let received = received.wait().expect("posted");
        assert_eq!(received.result, Ok(64), "{n}");
        assert!(
            received.into_region().expect("a region")[..] == content(n, 64),
            "{n}"
        );
    }
}

#[test]
fn cancel__is_answered_with_what_came_or_that_it_was_cancelled() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    for n in 0..50 {
        // At a different moment each time: before, while and after the Transfer arrives.
        let cancelled = server.recv(Region::anonymous(64).expect("memory"));
        let id = cancelled.id();
        let sent = client.send(region(n, 64));
        std::thread::sleep(Duration::from_micros(n * 7));
        let was_there = server.cancel(id).wait().expect("it lives");
        let mut received = cancelled.wait().expect("posted");
        assert!(!server.cancel(id).wait().expect("it lives"), "it is over");
        assert!(!client.cancel(id).wait().expect("it lives"), "another's");
        if received.result == Err(TransferError::Cancelled) {
            assert!(was_there, "{n}");
            let next = server.recv(Region::anonymous(64).expect("memory"));
            if sent.wait().expect("posted").result.is_err() {
                let again = client.send(region(n, 64)).wait().expect("posted");
                again.result.expect("sent");
            }
            received = next.wait().expect("posted");
        }
        assert_eq!(received.result, Ok(64), "{n}");
        let received = received.into_region().expect("a region");
        assert!(received[..] == content(n, 64), "{n}");
    }
}

#[test]
fn cancel__of_what_waits_for_room_gives_its_memory_back() {
    // More than the connection accepts at once.
    const MANY: u64 = 4100;
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let mut receives: Vec<_> = (0..MANY).map(|n| server.recv(region(n, 8))).collect();
    let last = receives.pop().expect("many");
    assert!(server.cancel(last.id()).wait().expect("it lives"));
    let refused = last.wait().expect_err("it waited for room");
    assert!(matches!(
        refused.error,
        Error::Transfer(TransferError::Cancelled)
    ));
    let memory = refused.memory.expect("its memory");
    assert_eq!(memory.as_slice(), Some(&content(MANY - 1, 8)[..]));
    // The others go on.
    client.send(region(7, 8)).detach();
    let first = receives.swap_remove(0).wait().expect("posted");
    assert_eq!(first.result, Ok(8));
}

#[test]
fn with__asks_the_connection_what_a_handle_has_no_method_for() {
    let worker = spawned();
    let (endpoint, client, server) = pair(&worker);
    let key = client.peer_key();
    assert!(key.is_some() && key == endpoint.public_key());
    let paths = client.with(|it| Ok(it.paths().len())).wait();
    assert_eq!(paths.expect("it lives"), 1);
    let idle = client.with(|it| Ok(it.is_idle())).wait();
    assert!(idle.expect("it lives"));
    drop(server);
    client.closed().wait().expect("the reason");
    assert!(client.with(|it| Ok(it.is_idle())).wait().is_err());
    // Asked for after the end, too.
    let ended = client.immediate().wait().expect_err("over");
    assert!(matches!(ended.error, Error::Closed(CloseReason::Peer(_))));
}

#[test]
fn accept__given_up_loses_no_connection() {
    let worker = spawned();
    let endpoint = worker.listen(anywhere(), Options::default()).wait();
    let endpoint = endpoint.expect("a port");
    for n in 0..20 {
        let mut given_up = endpoint.accept();
        let client = worker.connect(endpoint.local_addr(), &Options::default());
        let client = client.wait().expect("connected");
        if n % 2 == 0 {
            drop(given_up);
        } else if let Some(accepted) = given_up.wait_for(Duration::ZERO) {
            // It was quick: give it up after taking it.
            drop(accepted);
            continue;
        } else {
            drop(given_up);
        }
        let server = endpoint.accept().wait().expect("accepted");
        let received = server.recv(Region::anonymous(8).expect("memory"));
        client.send(region(n, 8)).detach();
        let received = received.wait().expect("posted");
        assert!(
            received.into_region().expect("a region")[..] == content(n, 8),
            "{n}"
        );
    }
}

#[test]
fn worker__gone_refuses_and_gives_memory_back() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let outstanding = server.recv(Region::anonymous(8).expect("memory"));
    drop(worker);
    assert!(outstanding.wait().is_err(), "each completes once");
    let refused = client.send(region(7, 100)).wait().expect_err("gone");
    let memory = refused.memory.expect("it came back");
    assert!(memory.as_slice() == Some(&content(7, 100)[..]), "as it was");
    assert!(matches!(refused.error, Error::Closed(_)));
}

#[test]
fn immediate__comes_to_handles_in_order_also_before_it_is_asked_for() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    let key = server
        .export(&memory, Rights::ALL)
        .wait()
        .expect("exported");
    for n in 0..10 {
        let put = client
            .post(Put::new(&key, 0, region(u64::from(n), 32)).immediate(n))
            .wait();
        put.expect("posted").result.expect("put");
        if n % 3 == 0 {
            drop(server.immediate());
        }
    }
    for n in 0..10 {
        assert_eq!(server.immediate().wait().expect("it came").number, n);
    }
}

#[test]
fn immediate__says_which_memory_and_how_many_bytes() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (memory, key) = exported(&server);
    let number = RegionNumber::new(3).expect("below 2^24");
    let numbered = server.export_numbered(number, &memory, Rights::ALL).wait();
    let numbered = numbered.expect("exported");
    let puts = [(key, 0), (numbered, 9), (key, 70_000), (numbered, 256)];
    for (number, (key, len)) in (0..).zip(puts) {
        let put = Put::new(&key, 1, region(7, len)).immediate(number);
        let put = client.post(put).wait().expect("posted");
        put.result.expect("put");
    }
    for (number, (region, length)) in (0..).zip(puts) {
        let told = Immediate {
            number,
            region,
            length,
        };
        assert_eq!(server.immediate().wait().expect("it came"), told);
    }
}

/// Requests of handles are posted later, so they own the bytes.
#[test]
fn inline__puts_and_messages_of_handles_need_no_memory() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (memory, key) = exported(&server);
    let put = PutInline::new(&key, 64, content(1, 256)).immediate(5);
    let put = client.post(put);
    let message = client.post(MessageInline::new(b"control".to_vec(), content(2, 256)));
    assert_eq!(server.immediate().wait().expect("it came").length, 256);
    let mut bytes = [0; 256];
    memory.read(64, &mut bytes);
    assert!(bytes[..] == content(1, 256), "content");
    let received = server.post(ReceiveMessage::new().payload(region(0, 256)));
    let received = received.wait().expect("it came");
    assert_eq!(received.control(), Some(&b"control"[..]));
    assert!(received.into_region().expect("a region")[..] == content(2, 256));
    for done in [put, message] {
        let done = done.wait().expect("posted");
        assert!(done.result.is_ok() && done.into_memory().is_none());
    }
    let too_long = client.post(MessageInline::new(b"", content(3, 257))).wait();
    let too_long = too_long.expect_err("refused").error;
    assert!(matches!(too_long, Error::NotInline { len: 257 }));
    let too_long = client.post(MessageInline::new(content(3, 129), b"")).wait();
    let too_long = too_long.expect_err("refused").error;
    assert!(matches!(too_long, Error::Post(PostError::ControlTooLong)));
}

pub(super) fn exported(server: &ConnectionHandle) -> (ExportedRegion, RegionKey) {
    let memory = ExportedRegion::new(Region::anonymous(1 << 20).expect("memory"));
    let memory = memory.expect("page-aligned");
    let key = server.export(&memory, Rights::ALL).wait();
    (memory, key.expect("exported"))
}

/// Waits until the worker has dropped the connection.
fn is_gone(connection: &ConnectionHandle) {
    let end = Instant::now() + PATIENCE;
    while connection.account().wait().is_ok() {
        assert!(Instant::now() < end, "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn immediate__is_there_after_the_end_of_its_connection() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (_memory, key) = exported(&server);
    for n in 0..10 {
        client
            .post(Put::new(&key, 0, region(7, 32)).immediate(n))
            .detach();
    }
    client.close().wait().expect("closed");
    is_gone(&server);
    drop(server.immediate());
    for n in 0..10 {
        assert_eq!(server.immediate().wait().expect("it came").number, n);
    }
    let none = server.immediate().wait().expect_err("there is no other");
    assert!(matches!(none.error, Error::Closed(_)));
}

#[test]
fn recv__takes_what_came_for_one_given_up_after_the_end_of_its_connection() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let given_up = server.recv(region(1, 64));
    client.send(region(3, 64)).wait().expect("sent");
    client.close().wait().expect("closed");
    is_gone(&server);
    drop(given_up);
    let received = server.recv(region(2, 8)).wait().expect("it came");
    assert!(
        received.into_region().expect("a region")[..] == content(3, 64),
        "content"
    );
    assert!(server.recv(region(1, 8)).wait().is_err(), "once");
}

/// Immediates kept for handles; beyond that their sender waits.
const KEPT: u32 = 1024;

/// Makes `client` put `count` immediates; the first [`KEPT`] have arrived when this returns.
fn put_immediates(client: &ConnectionHandle, key: &RegionKey, count: u32) {
    let puts: Vec<_> = (0..count)
        .map(|n| client.post(Put::new(key, 0, region(7, 8)).immediate(n)))
        .collect();
    for (n, mut put) in (0..).zip(puts) {
        if n >= KEPT {
            put.detach();
            continue;
        }
        let done = put.wait_for(PATIENCE).expect("in time").expect("posted");
        done.result.expect("put");
    }
}

fn in_time<T>(mut pending: zerolane::worker::Pending<T>) -> Outcome<T> {
    pending.wait_for(PATIENCE).expect("it is held up")
}

#[test]
fn immediate__not_asked_for_has_its_sender_wait_and_nobody_else() {
    const PUTS: u32 = 3 * KEPT;
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (_memory, key) = exported(&server);
    put_immediates(&client, &key, PUTS);
    for len in [64, 100_000] {
        let received = client.recv(region(1, len));
        let sent = in_time(server.send(region(3, len))).expect("posted");
        sent.result.expect("sent");
        let received = in_time(received)
            .expect("it came")
            .into_region()
            .expect("a region");
        assert!(received[..] == content(3, len), "content");
        let received = server.recv(region(1, len));
        client.send(region(4, len)).detach();
        let received = in_time(received)
            .expect("it came")
            .into_region()
            .expect("a region");
        assert!(received[..] == content(4, len), "content");
    }
    for n in 0..PUTS {
        assert_eq!(in_time(server.immediate()).expect("it came").number, n);
    }
}

/// As with memory that is served by its export alone, nothing accepts.
#[test]
fn accept__not_asked_for_keeps_no_connection_that_is_over() {
    const CLIENTS: usize = 3;
    let mut worker = Worker::new().expect("descriptors");
    let mut listening = worker.handle().listen(anywhere(), Options::default());
    let end = Instant::now() + PATIENCE;
    let endpoint = loop {
        worker.progress().expect("allowed");
        if let Some(endpoint) = listening.wait_for(Duration::ZERO) {
            break endpoint.expect("a port");
        }
        assert!(Instant::now() < end, "it listens");
    };
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    endpoint.export("m", &memory, Rights::ALL).detach();
    let address = endpoint.local_addr();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            std::thread::spawn(move || {
                let others = spawned();
                let client = others.connect(address, &Options::default());
                let client = in_time(client).expect("connected");
                let opened =
                    in_time(client.post(OpenRegion::new("m", Rights::ALL))).expect("posted");
                put_immediates(&client, &opened.key().expect("opened"), 3 * KEPT);
            })
        })
        .collect();
    while clients.iter().any(|it| !it.is_finished()) || worker.connections() > 0 {
        worker
            .wait(Some(Duration::from_millis(10)))
            .expect("allowed");
        let left = worker.connections();
        assert!(Instant::now() < end, "{left} are kept");
    }
    for client in clients {
        client.join().expect("no panic");
    }
}

#[test]
fn immediate__not_asked_for_holds_up_no_end() {
    let (worker, other) = (spawned(), spawned());
    let endpoint = worker.listen(anywhere(), Options::default());
    let endpoint = endpoint.wait().expect("a port");
    let client = other.connect(endpoint.local_addr(), &Options::default());
    let client = client.wait().expect("connected");
    let server = endpoint.accept().wait().expect("accepted");
    let (_memory, key) = exported(&server);
    put_immediates(&client, &key, 3 * KEPT);
    let received = server.recv(region(1, 8));
    // It tells its peer, and ends.
    drop(other);
    let ended = in_time(received);
    assert!(!ended.is_ok_and(|it| it.result.is_ok()), "nothing was sent");
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(worker.stop()));
    let ended = ended.recv_timeout(PATIENCE);
    ended.expect("in time").expect("stopped");
    drop(server);
}

/// More than is kept for handles: their sender waits with the rest, until the last handle is dropped.
#[test]
fn drop__with_much_unread_ends_the_connection() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (_memory, key) = exported(&server);
    for n in 0..3000 {
        client
            .post(Put::new(&key, 0, region(7, 8)).immediate(n))
            .detach();
    }
    let _ = client
        .post(Get::new(&key, 0, region(1, 8)).fence(true))
        .wait_for(PATIENCE / 20);
    drop(server);
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(worker.stop()));
    let ended = ended.recv_timeout(PATIENCE);
    ended.expect("in time").expect("stopped");
}

#[test]
fn put_vectored__and_get_vectored_are_one_request_each() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (memory, key) = exported(&server);
    let pieces = |n: u64| {
        vec![
            (n * 5000, region(n, 3000).into()),
            (900_000 + n, region(n, 1).into()),
        ]
    };
    let puts: Vec<_> = (0..20)
        .map(|n| client.post(PutPieces::new(&key, pieces(n)).context(n)))
        .collect();
    for (n, put) in (0..).zip(puts) {
        let put = put.wait().expect("posted");
        assert_eq!((put.context, put.result), (n, Ok(3001)));
        assert_eq!(put.into_pieces().len(), 2);
    }
    let into = (0..20).map(|n| (n * 5000, Region::anonymous(3000).expect("memory")));
    let got = client
        .post(GetPieces::new(&key, into.collect()).context(77))
        .wait()
        .expect("posted");
    assert_eq!((got.context, got.result), (77, Ok(60_000)));
    let mut last = [0; 20];
    memory.read(900_000, &mut last);
    for (n, piece) in (0..).zip(got.into_pieces()) {
        assert!(piece.as_slice() == Some(&content(n, 3000)[..]), "{n}");
        assert_eq!(last[n as usize], content(n, 1)[0]);
    }
}

/// The pieces that a refusal gives back.
fn pieces_of(memory: Option<Memory>) -> Vec<Memory> {
    match memory {
        Some(Memory::Gathered(pieces)) => pieces,
        other => panic!("{other:?}"),
    }
}

#[test]
fn put_vectored__refused_gives_the_pieces_back() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (_memory, key) = exported(&server);
    let none = client
        .post(PutPieces::new(&key, vec![]))
        .wait()
        .expect_err("none");
    assert!(matches!(none.error, Error::Post(PostError::NoPieces)));
    // It does not delay later requests.
    client
        .post(Put::new(&key, 0, region(1, 8)))
        .wait()
        .expect("posted")
        .result
        .expect("put");
    drop(worker);
    let pieces = vec![(0, region(5, 10)), (50, region(6, 20))];
    let refused = client
        .post(GetPieces::new(&key, pieces))
        .wait()
        .expect_err("gone");
    let back = pieces_of(refused.memory);
    let back: Vec<_> = back.iter().filter_map(Memory::as_slice).collect();
    assert!(back == [content(5, 10), content(6, 20)]);
}

/// Pieces for which there was no room, then a put to the last one's place.
#[test]
fn put_vectored__of_more_than_fit_comes_before_what_was_posted_after_it() {
    const PIECES: u64 = 20_000;
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let (memory, key) = exported(&server);
    let many = |n: u64| {
        let pieces = (0..PIECES).map(move |at| (at * 8, region(n, 8).into()));
        PutPieces::new(&key, pieces.collect())
    };
    let word = |at: u64| {
        let mut word = [0; 8];
        memory.read(at as usize * 8, &mut word);
        word.to_vec()
    };
    let first = client.post(many(1));
    let second = client.post(many(2));
    let then = client.post(Put::new(&key, (PIECES - 1) * 8, region(3, 8)));
    for put in [first, second] {
        let put = put.wait().expect("posted");
        assert_eq!(put.result, Ok(PIECES as usize * 8));
        assert_eq!(put.into_pieces().len() as u64, PIECES);
    }
    then.wait().expect("posted").result.expect("put");
    assert_eq!(word(0), content(2, 8));
    assert_eq!(word(PIECES - 2), content(2, 8));
    assert_eq!(word(PIECES - 1), content(3, 8));
    // One that is given up leaves no others behind it.
    drop(client.post(many(4)));
    let then = client.post(Put::new(&key, 0, region(5, 8))).wait();
    then.expect("posted").result.expect("put");
    // Closing delivers the rest, and `finish` waits for its turn.
    client.post(many(6)).detach();
    let finished = client.finish();
    client.close().wait().expect("closed");
    finished.wait().expect("finished");
    assert_eq!(word(PIECES - 1), content(6, 8));
}

#[test]
fn close__delivers_what_was_sent_before() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    let received = server.recv(Region::anonymous(1 << 20).expect("memory"));
    let id = received.id();
    client.send(region(5, 1 << 20)).detach();
    client.close().wait().expect("closed");
    let received = received.wait().expect("posted");
    assert_eq!(received.id, id);
    assert!(received.into_region().expect("a region")[..] == content(5, 1 << 20));
    let end = server.recv(Region::anonymous(8).expect("memory")).wait();
    assert!(end.is_err() || end.is_ok_and(|it| it.result.is_err()));
}

/// Half a second without progress.
fn impatient() -> Options {
    Options::default().with(|it| it.times.idle = Duration::from_millis(500))
}

/// The peer is alive all the time, and takes no payload.
#[test]
fn close__says_that_something_was_not_sent() {
    let worker = spawned();
    let endpoint = worker.listen(anywhere(), Options::default());
    let endpoint = endpoint.wait().expect("a port");
    // The second time, more than the connection accepts at once: some requests are not even posted.
    for sends in [1, 3000] {
        let client = worker.connect(endpoint.local_addr(), &impatient());
        let client = client.wait().expect("connected");
        let _server = endpoint.accept().wait().expect("accepted");
        for _ in 0..sends {
            client.send(region(5, 1 << 16)).detach();
        }
        let closed = in_time(client.close()).map_err(Error::from);
        assert!(matches!(closed, Err(Error::Closed(_))), "{closed:?}");
    }
}

/// Sent at a rate at which it takes several times as long as an end waits without progress.
#[test]
fn close__waits_as_long_as_something_moves() {
    const LEN: usize = 3 << 20;
    let slow = Options::default().with(|it| {
        // Generous, because a suspended thread makes no progress, either.
        it.times.idle = Duration::from_secs(2);
        it.rate.max = Some(1 << 19);
    });
    let worker = spawned();
    let endpoint = worker.listen(anywhere(), Options::default());
    let endpoint = endpoint.wait().expect("a port");
    let connect = || worker.connect(endpoint.local_addr(), &slow).wait();
    let by_handle = connect().expect("connected");
    let server = endpoint.accept().wait().expect("accepted");
    let first = server.recv(Region::anonymous(LEN).expect("memory"));
    by_handle.send(region(5, LEN)).detach();
    let closed = by_handle.close();
    let own = connect().expect("connected").release().wait();
    let mut own = own.expect("nothing was asked for");
    let server = endpoint.accept().wait().expect("accepted");
    let second = server.recv(Region::anonymous(LEN).expect("memory"));
    own.post_send(region(6, LEN)).expect("posted");
    own.close().expect("it was delivered");
    in_time(closed).expect("it was delivered");
    for (seed, received) in [(5, first), (6, second)] {
        let received = in_time(received)
            .expect("it came")
            .into_region()
            .expect("a region");
        assert!(received[..] == content(seed, LEN), "content");
    }
}

#[test]
fn finish__ends_the_peers_receives_behind_what_was_sent() {
    let worker = spawned();
    let (_endpoint, client, server) = pair(&worker);
    // More than the connection accepts at once: some wait for room.
    let count = 3000;
    let sent: Vec<_> = (0..count).map(|n| client.send(region(n, 8))).collect();
    let finished = client.finish();
    let receives: Vec<_> = (0..=count).map(|n| server.recv(region(n + 1, 8))).collect();
    finished.wait().expect("open");
    for it in sent {
        assert_eq!(it.wait().expect("over").result, Ok(8));
    }
    let refused = client.send(region(3, 8)).wait().expect_err("finished");
    assert!(matches!(refused.error, Error::Post(PostError::Finished)));
    for (n, it) in (0..).zip(receives) {
        let received = it.wait().expect("over");
        if n == count {
            assert_eq!(received.result, Err(TransferError::Finished));
            continue;
        }
        assert!(
            received.into_region().expect("a region")[..] == content(n, 8),
            "content"
        );
    }
    // The other direction stays open.
    let back = client.recv(region(4, 8));
    server.send(region(5, 8)).wait().expect("sent");
    assert_eq!(back.wait().expect("received").result, Ok(8));
    worker.stop().expect("stopped");
}

/// The ends of connections with handles are not events: none wakes the thread.
#[test]
fn stop__ends_while_handles_live() {
    let worker = spawned();
    let handles = pair(&worker);
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(worker.stop()));
    let ended = ended.recv_timeout(PATIENCE);
    ended.expect("in time").expect("stopped");
    drop(handles);
}
