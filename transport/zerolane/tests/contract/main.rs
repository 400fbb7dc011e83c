//! Tests that calls keep their contract, however busy the connection is.
//!
//! Timeouts and wakers are obeyed while data flows, a wake-up ends no request, and a refused post gives its memory
//! back.
#![allow(non_snake_case)]

mod account;
mod queue;
mod requests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerolane::advanced::{Offer, Read};
use zerolane::failure::{PostError, Posted, Refused};
use zerolane::memory::Memory;
use zerolane::options::LaneChoice;
use zerolane::request::{
    Fetch, Get, Message, MessageInline, Put, PutInline, PutPieces, ReceiveMessage, WorkKind,
};
use zerolane::worker::Worker;
use zerolane::{
    CompletionQueue, Connection, Endpoint, Error, ExportedRegion, FetchOp, Options, Region,
    RegionKey, Rights,
};

/// Bounds how long a failure takes to show; otherwise never reached.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two ends of one connection; the first one connected.
fn pair() -> (Connection, Connection) {
    pair_by(LaneChoice::default())
}

fn pair_by(lane: LaneChoice) -> (Connection, Connection) {
    let options = Options::default().with(|it| it.lane.choice = lane);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("a port");
    let address = endpoint.local_addr();
    let connecting = std::thread::spawn(move || Connection::connect(address, &options));
    let accepted = endpoint.accept(Some(PATIENCE)).expect("no error");
    let accepted = accepted.expect("in time");
    (
        connecting.join().expect("no panic").expect("connected"),
        accepted,
    )
}

/// Bytes that identify their offset.
fn content(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}

/// System calls with which a connection read its socket: one for each poll.
fn turns(connection: &Connection) -> u64 {
    let account = connection.account();
    account.rx_data_syscalls + account.rx_control_syscalls + account.rx_empty_polls
}

/// A connection with datagrams in its socket, and the end that sent them, which must live as long.
fn with_a_full_socket() -> (Connection, Connection) {
    let (mut target, mut source) = pair_by(LaneChoice::Udp);
    for n in 0..60 {
        source.post(Message::new(content(n, 100))).expect("posted");
        source.poll().expect("connected");
    }
    for _ in 0..60 {
        target.post(ReceiveMessage::new()).expect("posted");
    }
    (target, source)
}

#[test]
fn wait__of_no_time_is_one_turn_however_much_there_is() {
    let (mut target, _source) = with_a_full_socket();
    let before = turns(&target);
    assert!(
        target
            .announced(Some(Duration::ZERO))
            .expect("connected")
            .got()
            .is_none()
    );
    assert_eq!(turns(&target) - before, 1, "a busy socket keeps no one");
}

#[test]
fn wait__woken_before_is_one_turn_however_much_there_is() {
    let (mut target, _source) = with_a_full_socket();
    target.waker().wake();
    let before = turns(&target);
    assert!(target.announced(None).expect("connected").got().is_none());
    assert_eq!(turns(&target) - before, 1, "a busy socket keeps no one");
}

/// Tells the peer to keep sending until dropped.
struct Flood {
    goes_on: &'static AtomicBool,
    thread: JoinHandle<bool>,
}

impl Flood {
    /// Floods the memory of the returned connection with puts.
    fn begin() -> (Connection, Flood) {
        let goes_on: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(true)));
        let (mut target, mut source) = pair();
        let memory = Region::anonymous(1 << 20).expect("memory");
        let memory = ExportedRegion::new(memory).expect("page-aligned");
        target
            .export_named("m", &memory, Rights::ALL)
            .expect("exported");
        let thread = std::thread::spawn(move || {
            let key = source.open_region("m", Rights::ALL).expect("opened");
            flood(&mut source, &key, goes_on)
        });
        while memory.word(0).load(Ordering::Acquire) == 0 {
            target.poll().expect("connected");
        }
        (target, Flood { goes_on, thread })
    }

    fn end(self, target: &mut Connection) {
        self.goes_on.store(false, Ordering::Release);
        while !self.thread.is_finished() {
            let _ = target.wait(Some(Duration::from_millis(1)));
        }
        assert!(self.thread.join().expect("no panic"), "ended by itself");
    }
}

/// Puts until told to end; false if that took too long.
fn flood(source: &mut Connection, key: &RegionKey, goes_on: &AtomicBool) -> bool {
    let bytes = Region::from_vec(vec![7; 1 << 20]).share();
    let end = Instant::now() + PATIENCE;
    let mut in_time = true;
    while goes_on.load(Ordering::Acquire) && in_time {
        while source.in_flight() < 8 {
            source
                .post(Put::new(key, 0, bytes.clone()).signalled(false))
                .expect("posted");
        }
        source.poll().expect("connected");
        in_time = Instant::now() < end;
    }
    in_time
}

#[test]
fn wait__times_out_while_data_flows() {
    let (mut target, flood) = Flood::begin();
    for _ in 0..200 {
        let nothing = target
            .wait(Some(Duration::from_millis(1)))
            .map(zerolane::Waited::got);
        assert!(nothing.expect("connected").is_none());
    }
    flood.end(&mut target);
}

#[test]
fn wait__is_woken_while_data_flows() {
    let (mut target, flood) = Flood::begin();
    let waker = target.waker();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| waker.wake());
            assert!(target.wait(None).expect("connected").got().is_none());
        }
    });
    flood.end(&mut target);
}

/// As above, for a worker that owns the connection.
#[test]
fn wait__of_a_worker_times_out_while_data_flows() {
    let (target, flood) = Flood::begin();
    let mut worker = Worker::new().expect("descriptors");
    let id = worker.adopt(target).expect("adopted");
    for _ in 0..200 {
        let event = worker
            .wait(Some(Duration::from_millis(1)))
            .map(zerolane::Waited::got);
        let event = event.expect("allowed");
        assert!(event.is_none(), "{:?}", worker.next_event());
    }
    flood.end(&mut worker.release(id).expect("connected"));
}

#[test]
fn wait__of_a_worker_is_woken_while_data_flows() {
    let (target, flood) = Flood::begin();
    let mut worker = Worker::new().expect("descriptors");
    let id = worker.adopt(target).expect("adopted");
    let waker = worker.waker();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| waker.wake());
            let told = worker.wait(None).expect("allowed").got().is_some();
            assert!(!told, "{:?}", worker.next_event());
        }
    });
    flood.end(&mut worker.release(id).expect("connected"));
}

/// Answers every request of a blocking end, until that end closes.
fn serve(mut connection: Connection) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let memory = Region::anonymous(1 << 20).expect("memory");
        let memory = ExportedRegion::new(memory).expect("page-aligned");
        connection
            .export_named("m", &memory, Rights::ALL)
            .expect("exported");
        let region = || Region::anonymous(100_000).expect("memory");
        loop {
            // The other end may have closed once it had its last answer.
            if connection.post_recv(region()).is_err()
                || connection
                    .post(ReceiveMessage::new().payload(region()))
                    .is_err()
            {
                return;
            }
            let completion = loop {
                match connection.wait(None).map(zerolane::Waited::got) {
                    Ok(Some(completion)) if completion.kind() != WorkKind::Send => {
                        break completion;
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            };
            let Ok(len) = completion.result else { return };
            // Sent back as it came, a message as a message.
            let control = completion.control().map(<[u8]>::to_vec);
            let bytes = completion.into_region().expect("a region")[..len].to_vec();
            match control {
                None => connection.send(&bytes),
                Some(control) => connection.send_message(&control, Some(&bytes)),
            }
            .expect("answered");
        }
    })
}

/// Makes every call that waits for the end of a request, with `before` called before each.
fn every_blocking_call(connection: &mut Connection, mut before: impl FnMut()) {
    before();
    let key = connection.open_region("m", Rights::ALL).expect("opened");
    let bytes = content(3, 50_000);
    before();
    connection.put(&key, 8, &bytes).expect("put");
    let mut back = vec![0; bytes.len()];
    before();
    connection.get(&key, 8, &mut back).expect("got");
    assert!(back == bytes, "content");
    before();
    let word = connection.fetch_add(&key, 0, 5).expect("added");
    before();
    assert_eq!(
        connection
            .fetch_op(&key, 0, FetchOp::Increment)
            .expect("added"),
        word + 5
    );
    before();
    connection.send(&bytes).expect("sent");
    back.fill(0);
    before();
    assert_eq!(connection.recv_into(&mut back).expect("received"), 50_000);
    assert!(back == bytes, "content");
    before();
    connection
        .send_message(b"control", Some(&bytes))
        .expect("sent");
    back.fill(0);
    before();
    let message = connection.recv_message(Some(&mut back)).expect("received");
    assert_eq!(
        (&message.control[..], message.payload),
        (&b"control"[..], 50_000)
    );
    assert!(back == bytes, "content");
}

#[test]
fn requests__go_on_when_woken_and_the_next_wait_is_ended() {
    let (mut connection, peer) = pair();
    let peer = serve(peer);
    let waker = connection.waker();
    every_blocking_call(&mut connection, || waker.wake());
    let begin = Instant::now();
    assert!(
        connection
            .wait(Some(PATIENCE))
            .expect("connected")
            .got()
            .is_none()
    );
    assert!(begin.elapsed() < PATIENCE, "the wakes ended no wait");
    connection.close().expect("closed");
    peer.join().expect("no panic");
}

#[test]
fn requests__go_on_while_another_thread_wakes_all_the_time() {
    let (mut connection, peer) = pair();
    let peer = serve(peer);
    let waker = connection.waker();
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on.load(Ordering::Acquire) {
                waker.wake();
                std::thread::yield_now();
            }
        });
        // Also when one of them fails.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let end = End(&goes_on);
        for _ in 0..20 {
            every_blocking_call(&mut connection, || {});
        }
        drop(end);
    });
    connection.close().expect("closed");
    peer.join().expect("no panic");
}

/// A queue that has room again wakes the connections that waited for it.
#[test]
fn requests__go_on_when_the_queue_has_room_again() {
    let (mut connection, mut peer) = pair();
    let queue = CompletionQueue::new(1).expect("a queue");
    connection.set_completion_queue(&queue, 0);
    let peer = std::thread::spawn(move || {
        for n in 0..3 {
            peer.send_message(&[n], None).expect("received");
        }
        let mut buffer = [0; 100];
        let len = peer.recv_into(&mut buffer).expect("received");
        assert!(buffer[..len] == content(1, 100));
        peer.close()
    });
    for _ in 0..3 {
        connection.post(ReceiveMessage::new()).expect("posted");
    }
    // The second completion finds the queue full, and the connection waits for room.
    let bound = Instant::now() + PATIENCE;
    while queue.is_empty() || connection.in_flight() > 0 {
        connection
            .wait(Some(Duration::from_millis(1)))
            .expect("connected");
        assert!(Instant::now() < bound, "three messages in time");
    }
    connection
        .wait(Some(Duration::from_millis(1)))
        .expect("connected");
    let (_, first) = queue.poll().expect("a completion");
    assert_eq!(first.control(), Some(&[0][..]));
    connection
        .send(&content(1, 100))
        .expect("sent, though woken");
    for n in 1..3 {
        while queue.is_empty() {
            connection
                .wait(Some(Duration::from_millis(1)))
                .expect("connected");
        }
        let (_, next) = queue.poll().expect("a completion");
        assert_eq!(next.control(), Some(&[n][..]));
    }
    let end = loop {
        if let Err(end) = connection.wait(Some(PATIENCE)).map(zerolane::Waited::got) {
            break end;
        }
        assert!(Instant::now() < bound, "closed in time");
    };
    assert!(matches!(end, Error::Closed(_)), "{end}");
    peer.join().expect("no panic").expect("closed");
}

/// A region of a few bytes that identify `n`.
fn small(n: u8) -> Region {
    Region::from_vec(content(n, 16))
}

/// Whether `memory` is the region that `small` makes for `n`.
fn is_small(n: u8, memory: Option<Region>) -> bool {
    memory.is_some_and(|it| it[..] == content(n, 16))
}

/// Posts with `post` until it is refused, and verifies the refusal: its reason, and that `back` finds the posted memory
/// in it.
fn post_until_full<M: std::fmt::Debug>(
    connection: &mut Connection,
    what: &str,
    mut post: impl FnMut(&mut Connection, Region) -> Posted<M>,
    back: impl Fn(M) -> Option<Region>,
) {
    for n in 0..=10_000 {
        match post(connection, small(n as u8)) {
            Ok(_) => {}
            Err(Refused { error, memory }) => {
                assert!(
                    matches!(error, Error::Post(PostError::Full)),
                    "{what}: {error}"
                );
                assert!(is_small(n as u8, back(memory)), "{what} {n} comes back");
                assert!(n > 0, "{what}");
                return;
            }
        }
    }
    panic!("{what}: never full");
}

#[test]
fn post__when_full_gives_the_memory_back() {
    use Memory::Exclusive;
    type Fill = fn(&mut Connection, &RegionKey);
    let each: [Fill; 9] = [
        |it, _| post_until_full(it, "send", |it, m| it.post_send(m), Memory::into_region),
        |it, _| {
            post_until_full(
                it,
                "offer",
                |it, m| it.post(Offer::new(m)),
                Memory::into_region,
            )
        },
        |it, _| post_until_full(it, "receive", |it, m| it.post_recv(m), Some),
        |it, _| post_until_full(it, "read", |it, m| it.post(Read::new(m)), Some),
        |it, key| {
            let put = |it: &mut Connection, m| it.post(Put::new(key, 0, m));
            post_until_full(it, "put", put, Memory::into_region);
        },
        |it, key| {
            let get = |it: &mut Connection, m| it.post(Get::new(key, 0, m));
            post_until_full(it, "get", get, Some);
        },
        |it, _| {
            let send = |it: &mut Connection, m| it.post(Message::new(b"c").payload(Exclusive(m)));
            post_until_full(it, "message", send, |m| m?.into_region());
        },
        |it, _| {
            let receive = |it: &mut Connection, m| it.post(ReceiveMessage::new().payload(m));
            post_until_full(it, "message receive", receive, |m| m);
        },
        |it, key| {
            let put =
                |it: &mut Connection, m| it.post(PutPieces::new(key, vec![(0, Exclusive(m))]));
            let only = |mut m: Vec<(u64, Memory)>| m.pop()?.1.into_region();
            post_until_full(it, "pieces", put, only);
        },
    ];
    for fill in each {
        let (mut connection, mut peer) = pair();
        let memory = Region::anonymous(4096).expect("memory");
        let memory = ExportedRegion::new(memory).expect("page-aligned");
        let key = peer.export(&memory, Rights::ALL).expect("exported");
        fill(&mut connection, &key);
    }
}

#[test]
fn post__behind_pieces_that_wait_for_room_gives_the_memory_back() {
    let (mut connection, mut peer) = pair();
    let memory = Region::anonymous(4096).expect("memory");
    let memory = ExportedRegion::new(memory).expect("page-aligned");
    let key = peer.export(&memory, Rights::ALL).expect("exported");
    let piece = |n: u16| (u64::from(n % 256) * 16, Memory::from(small(n as u8)));
    let pieces = || (0..20_000).map(piece).collect();
    let id = connection.post(PutPieces::new(&key, pieces()));
    let id = id.expect("accepted");
    let refused = connection.post(PutPieces::new(&key, pieces()));
    let Refused { error, memory } = refused.expect_err("behind others");
    assert!(matches!(error, Error::Post(PostError::Full)), "{error}");
    assert_eq!(memory.len(), 20_000, "all or none");
    for (n, (offset, piece)) in memory.into_iter().enumerate() {
        assert_eq!(offset, n as u64 % 256 * 16, "{n}");
        assert!(is_small(n as u8, piece.into_region()), "{n}");
    }
    let put = connection.post(Put::new(&key, 0, small(1)));
    let Refused { error, memory } = put.expect_err("behind others");
    assert!(matches!(error, Error::Post(PostError::Full)), "{error}");
    assert!(is_small(1, memory.into_region()));
    let full = |it: zerolane::Result<()>| matches!(it, Err(Error::Post(PostError::Full)));
    assert!(full(connection.finish()));
    // Calls that wait for their end wait for that of the pieces, too.
    connection.set_timeout(Some(Duration::from_millis(5)));
    let late = |it: zerolane::Result<()>| matches!(it, Err(Error::TimedOut(_)));
    assert!(late(connection.put(&key, 0, b"a put")));
    assert!(late(connection.get(&key, 0, &mut [0; 8])));
    assert!(late(connection.fetch_add(&key, 0, 1).map(drop)));
    assert!(late(connection.send_message(b"a message", None)));
    let message = connection.post(Message::new(b"a message"));
    assert!(full(message.map(drop).map_err(|it| it.error)));
    let copied = connection.post(MessageInline::new(b"a message", b"copied"));
    assert!(full(copied.map(drop).map_err(|it| it.error)));
    let inline = connection.post(PutInline::new(&key, 0, b"inline"));
    assert!(full(inline.map(drop).map_err(|it| it.error)));
    let into = connection.post(Get::new(&key, 0, small(2)));
    assert!(full(into.map(drop).map_err(|it| it.error)));
    let fetch = connection.post(Fetch::new(&key, 0, FetchOp::Increment));
    assert!(full(fetch.map(drop).map_err(|it| it.error)));
    // Nothing else waits for them.
    connection.post_recv(small(3)).expect("posted");
    connection.post_send(small(4)).expect("posted");
    // The peer makes no call.
    assert!(connection.cancel(id));
    let cancelled = connection.poll().expect("open").expect("complete");
    assert_eq!(cancelled.id, id);
    assert_eq!(cancelled.into_pieces().len(), 20_000);
    assert!(!full(connection.finish()));
}

#[test]
fn post__refused_for_what_it_asks_gives_the_memory_back() {
    let (mut connection, mut peer) = pair();
    let memory = Region::anonymous(4096).expect("memory");
    let memory = ExportedRegion::new(memory).expect("page-aligned");
    let read = peer.export(&memory, Rights::READ).expect("exported");
    let put = connection.post(Put::new(&read, 0, small(1)));
    let Refused { error, memory } = put.expect_err("not to be written");
    assert!(matches!(error, Error::Post(PostError::Denied)), "{error}");
    assert!(is_small(1, memory.into_region()));
    let get = connection.post(Get::new(&read, 4090, small(2)));
    let Refused { error, memory } = get.expect_err("beyond the end");
    assert!(
        matches!(error, Error::Post(PostError::OutOfBounds)),
        "{error}"
    );
    assert!(is_small(2, Some(memory)));
    let message = connection.post(Message::new(&[0; 129]).payload(small(3)));
    let Refused { error, memory } = message.expect_err("too long");
    assert!(
        matches!(error, Error::Post(PostError::ControlTooLong)),
        "{error}"
    );
    assert!(is_small(3, memory.and_then(Memory::into_region)));
    assert_eq!(connection.in_flight(), 0);
}

/// Returned memory can be used as before: posted again, it is sent.
#[test]
fn post__what_came_back_can_be_posted_again() {
    const COUNT: usize = 6_000;
    let (mut connection, mut peer) = pair();
    let receiving = std::thread::spawn(move || {
        let mut buffer = [0; 16];
        for n in 0..COUNT {
            assert_eq!(peer.recv_into(&mut buffer).expect("received"), 16);
            assert_eq!(buffer[..], content(n as u8, 16), "{n}");
        }
        peer.close()
    });
    let mut refusals = 0;
    for n in 0..COUNT {
        let mut next = small(n as u8);
        while let Err(Refused { error, memory }) = connection.post_send(next) {
            assert!(matches!(error, Error::Post(PostError::Full)), "{error}");
            refusals += 1;
            next = memory.into_region().expect("exclusive");
            connection.wait(Some(PATIENCE)).expect("connected");
        }
    }
    assert!(refusals > 0, "never full");
    connection.close().expect("closed");
    receiving.join().expect("no panic").expect("closed");
}

#[test]
fn post__on_a_closed_connection_gives_the_memory_back() {
    let (mut connection, peer) = pair();
    let closing = std::thread::spawn(|| peer.close());
    let bound = Instant::now() + PATIENCE;
    while connection.wait(Some(PATIENCE)).is_ok() {
        assert!(Instant::now() < bound, "closed in time");
    }
    closing.join().expect("no panic").expect("closed");
    let refused = connection.post_send(small(1)).expect_err("closed");
    assert!(matches!(refused.error, Error::Post(PostError::Closed)));
    assert!(is_small(1, refused.memory.into_region()));
    let refused = connection.post_recv(small(2)).expect_err("closed");
    assert!(is_small(2, Some(refused.memory)));
}

#[test]
fn in_flight__counts_what_is_not_over_but_for_puts_posted_inline() {
    let (mut here, mut there) = pair();
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    let key = there.export(&memory, Rights::ALL).expect("exported");
    // The peer makes no progress: nothing completes.
    let mut posted = 0;
    for n in 0..3 {
        let bytes = content(n, 64);
        let put = here.post(PutInline::new(&key, u64::from(n) * 64, &bytes));
        put.expect("posted");
        posted += 1;
        assert_eq!(here.in_flight(), 0, "it holds no memory of the caller's");
    }
    let put = here.post(Put::new(&key, 512, Region::from_vec(content(9, 64))));
    put.expect("posted");
    assert_eq!(here.in_flight(), 1);
    here.post_recv(Region::from_vec(content(1, 64)))
        .expect("posted");
    assert_eq!(here.in_flight(), 2);
    posted += 2;
    there
        .post_send(Region::from_vec(content(8, 64)))
        .expect("posted");
    let end = Instant::now() + PATIENCE;
    let mut over = 0;
    while over < posted {
        let completion = here.poll().expect("connected");
        over += completion.map_or(0, |it| {
            it.result.expect("done");
            1
        });
        there.poll().expect("connected");
        assert!(Instant::now() < end, "{over} of {posted}");
    }
    assert_eq!(here.in_flight(), 0);
    let mut there_now = [0; 64];
    memory.read(128, &mut there_now);
    assert_eq!(there_now[..], content(2, 64));
}
