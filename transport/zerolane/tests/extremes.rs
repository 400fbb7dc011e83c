//! Tests empty, huge and endless arguments at every public call.
//!
//! docs/reference/names.md has all calls: a new one fails here until it has a trial, or is listed as one without an
//! argument that has extremes. A call may refuse its argument, return, or wait until it is woken; it never panics,
//! unless its documentation says so, and the connection serves afterwards.
#![allow(non_snake_case)]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use zerolane::advanced::{Offer, Read};
use zerolane::memory::{Access, Memory};
use zerolane::options::{EthernetDevice, LaneChoice, MAX_PATHS, PathAddresses};
use zerolane::request::{
    Fetch, Get, GetPieces, Message, MessageInline, OpenRegion, Put, PutInline, PutPieces, Receive,
    ReceiveMessage, Request, Transfer,
};
use zerolane::worker::{
    ConnectionHandle, ConnectionId, EndpointHandle, EndpointId, Pending, PendingSet, Worker,
    WorkerThread,
};
use zerolane::{
    CompletionQueue, Connection, Endpoint, Error, ExportedRegion, FetchOp, Options, PathId,
    ReceivePool, Region, RegionKey, RegionNumber, RequestId, Rights, Waited, Waker,
};

/// Longer than any call takes that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(20);
/// Times that no test waits for.
const ENDLESS: [Duration; 2] = [Duration::MAX, Duration::from_secs(u64::MAX)];
const SHORT: [Duration; 2] = [Duration::ZERO, Duration::from_nanos(1)];
const HUGE: [u64; 5] = [1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX - 7, u64::MAX];
const HUGE_SIZES: [usize; 3] = [1 << 62, usize::MAX >> 1, usize::MAX];
/// Bytes of the memory that the peer exports.
const LEN: usize = 4096;
const ADDRESSES: [&str; 8] = [
    "",
    ":",
    "127.0.0.1",
    "127.0.0.1:",
    "127.0.0.1:65536",
    "127.0.0.1:-1",
    "\0:1",
    "[::",
];
const NAMES: [&str; 5] = [
    "",
    "\0",
    "a\0",
    "\0a",
    "a name of more than 32 bytes in all",
];

/// What has no argument, or none with extremes: other objects, a function, a switch, a set of rights.
const WITHOUT: &[&str] = &[
    "CompletionQueue::{as_fd, check_process, is_empty, len, poll}",
    "Completion::{arrived, before, control, immediate, into_memory, into_pieces, into_region, key, kind, memory}",
    "Connection::{account, as_fd, close, export, finish, honour_delivery, in_flight, local_addr, next_timeout}",
    "Connection::{paths, peer_addr, peer_key, poll, request_fast, revoke, revoke_region, wants_write, waker}",
    "ConnectionHandle::{account, announced, close, closed, export, finish, immediate, on_closed, peer_addr}",
    "ConnectionHandle::{peer_key, release, revoke, revoke_region}",
    "Endpoint::{adopt, as_fd, counters, gate_counters, is_spent, local_addr, no_shared_memory, public_key}",
    "Endpoint::take_untrusted",
    "EndpointHandle::{accept, local_addr, public_key}",
    "ExportedRegion::revoke",
    "Listener::{as_fd, counters, gate_counters, is_spent, local_addr, no_shared_memory, public_key}",
    "Connection::{datagram_bytes, is_idle, max_datagram, next_datagram, peer_data, set_receive_pool}",
    "ConnectionHandle::{message, peer_data, set_receive_pool, with}",
    "Completion::recycle",
    "EndpointHandle::incoming",
    // Its data has 64 bytes at most, by its type.
    "Incoming::{accept, data, peer_addr, peer_key, refuse}",
    "IncomingHandle::{accept, data, peer_addr, peer_key, refuse}",
    "Options::private_data",
    "ReceivePool::{close, is_empty, len, new, remove}",
    "Worker::share_receives",
    "WorkerHandle::share_receives",
    "Pending::{detach, id, wait}",
    "PendingSet::{as_fd, check_process, new}",
    "Worker::{adopt, arm, as_fd, connection_ids, connections, handle, listen_on, new, next_event, next_timeout}",
    "Worker::{progress, run, spawn, waker}",
    "WorkerHandle::{adopt, stop, waker}",
    "WorkerThread::stop",
    "worker::background",
    // Its caller promises that the memory is there.
    "Region::foreign",
    // Numbers of any size, from any number.
    "ConnectionId::to_u64",
    "EndpointId::to_u64",
    "RequestId::to_u64",
    "Region::{as_ptr, len}",
    "RegionKey::{len, number, to_u64}",
    "Account::json",
    "EthernetDevice::{has_bypass, is_zero_copy, refused}",
    // Fields, whose values `Options::check` and their types check.
    "LaneOptions::{device, rendezvous}",
    "PathOptions::links",
    "Security::{identity, trust}",
    // Of other crates; that of streams has a trial.
    "Client::{get_stream, list, new, put, ranges, rename}",
    "Ranges::{read, status}",
    "Read::{read, read_vectored}",
    "Stream::{accepted, close, finish, id, poll_accepted, poll_read_into, poll_read_with, poll_write_from}",
    "Stream::{poll_write_with, purpose, reset, watch}",
    "StreamError::of",
    "Streams::{abort, accept, close, new, next, open, open_with_priority, poll_accept, poll_close, watch}",
    "Write::{write, write_vectored}",
    "Cast::run",
    "Content::memory",
    "Destination::Memory",
    "Receiver::{bind, local_addr, public_key, run}",
];

/// The calls that were tried.
#[derive(Default)]
struct Tried(BTreeSet<String>);

impl Tried {
    fn on(&mut self, calls: &str) {
        self.0.extend(expanded(calls));
    }
}

/// `a::b` and `a::c` of `a::{b, c}`.
fn expanded(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else {
        return vec![word.to_owned()];
    };
    let (choices, after) = rest.split_once('}').expect("a closing brace");
    let choices = choices.split(',').map(str::trim);
    choices.map(|it| format!("{before}{it}{after}")).collect()
}

/// Rust's names in the table, but those of types.
fn documented() -> BTreeSet<String> {
    let table = include_str!("../../../docs/reference/names.md");
    let rows = table.lines().filter_map(|it| it.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split('|').next());
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names = words.flat_map(expanded);
    names.filter(|it| it.contains("::")).collect()
}

/// One end of a connection, whose other end a worker's thread drives and exports memory.
struct Pair {
    ours: Connection,
    theirs: ConnectionHandle,
    exported: ExportedRegion,
    key: RegionKey,
    endpoint: EndpointHandle,
    thread: WorkerThread,
    lane: LaneChoice,
}

impl Pair {
    fn new(lane: LaneChoice) -> Pair {
        let options = Options::default().with(|it| it.lane.choice = lane);
        let thread = Worker::new().and_then(Worker::spawn).expect("a thread");
        let endpoint = thread.listen("127.0.0.1:0", options.clone()).wait();
        let endpoint = endpoint.expect("a port");
        let to = endpoint.local_addr();
        let mut ours = Connection::connect(to, &options).expect("connected");
        ours.set_timeout(Some(PATIENCE));
        let theirs = endpoint.accept().wait().expect("accepted");
        let exported = exported();
        let key = theirs.export(&exported, Rights::ALL).wait();
        Pair {
            ours,
            theirs,
            exported,
            key: key.expect("exported"),
            endpoint,
            thread,
            lane,
        }
    }

    /// Both ends move bytes still.
    fn serves(&mut self) {
        let receiving = self.theirs.recv(region(8));
        self.ours.send(&[7; 8]).expect("sent");
        let received = self.over(receiving);
        assert!(received.into_region().expect("a region")[..] == [7; 8]);
        let sending = self.theirs.send(region(8));
        assert_eq!(self.ours.recv_into(&mut [0; 8]).expect("received"), 8);
        self.over(sending).result.expect("received");
    }

    /// The answer of the other end, which may depend on calls of this one.
    fn over<T: Debug>(&mut self, mut pending: Pending<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let polled = self.ours.poll().expect("connected");
            assert!(polled.is_none(), "{polled:?}");
            if let Some(outcome) = pending.wait_for(Duration::from_millis(1)) {
                return outcome.expect("answered");
            }
            assert!(Instant::now() < end, "no answer");
        }
    }

    /// Posts, and takes what completes. Whether it succeeded.
    fn ends<R: Request>(&mut self, request: R) -> bool {
        let Ok(_) = self.ours.post(request) else {
            return false;
        };
        match self.ours.wait(Some(PATIENCE)).expect("connected") {
            Waited::Got(completion) => completion.result.is_ok(),
            other => panic!("{other:?}"),
        }
    }
}

fn region(len: usize) -> Region {
    Region::from_vec(vec![7; len])
}

fn exported() -> ExportedRegion {
    ExportedRegion::new(region_of_pages(LEN)).expect("aligned")
}

/// What `wait` returns when it is woken, from when on it begins.
fn woken<T>(waker: impl Fn() + Send + Sync, wait: impl FnOnce() -> T) -> T {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(2));
                waker();
            }
        });
        let _over = Over(&over);
        wait()
    })
}

fn by(waker: Waker) -> impl Fn() + Send + Sync {
    move || waker.wake()
}

fn panics<T>(call: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
}

fn refused<T: Debug>(result: Result<T, impl Debug>, what: impl Debug) {
    assert!(result.is_err(), "{what:?}: {result:?}");
}

fn waits(tried: &mut Tried, pair: &mut Pair) {
    let ours = &mut pair.ours;
    let waker = ours.waker();
    let none = RequestId::from_u64(u64::MAX);
    tried.on("Connection::{wait, wait_for, announced, wait_arrived, set_timeout}");
    let receiving = ours.post_recv(region(8)).expect("posted");
    for time in ENDLESS {
        let waited = woken(by(waker.clone()), || ours.wait(Some(time)));
        assert!(matches!(waited, Ok(Waited::Woken)), "{waited:?}");
        let waited = woken(by(waker.clone()), || ours.wait_for(receiving, Some(time)));
        assert!(matches!(waited, Ok(Waited::Woken)), "{waited:?}");
        let waited = ours.wait_for(none, Some(time));
        assert!(matches!(waited, Ok(Waited::Got(None))), "{waited:?}");
        let waited = woken(by(waker.clone()), || ours.announced(Some(time)));
        assert!(matches!(waited, Ok(Waited::Woken)), "{waited:?}");
        for beyond in [0, u64::MAX] {
            let waited = woken(by(waker.clone()), || {
                ours.wait_arrived(receiving, beyond, Some(time))
            });
            waited.expect("connected");
        }
        let waited = woken(by(waker.clone()), || ours.wait_for(receiving, Some(time)));
        assert!(matches!(waited, Ok(Waited::Woken)), "{waited:?}");
        let waited = ours.wait_for(none, Some(time));
        assert!(matches!(waited, Ok(Waited::Got(None))), "{waited:?}");
        let waited = ours.wait_arrived(none, u64::MAX, Some(time));
        assert!(matches!(waited, Ok(Waited::Got(None))), "{waited:?}");
    }
    for time in SHORT {
        let waited = ours.wait(Some(time)).expect("connected");
        assert!(
            matches!(waited, Waited::TimedOut | Waited::Woken),
            "{waited:?}"
        );
        assert!(
            ours.announced(Some(time))
                .expect("connected")
                .got()
                .is_none()
        );
        let waited = ours.wait_for(receiving, Some(time));
        assert!(waited.expect("connected").got().is_none());
        let waited = ours.wait_arrived(receiving, u64::MAX, Some(time));
        waited.expect("connected");
    }
    assert!(ours.cancel(receiving));
    ours.wait(Some(PATIENCE)).expect("cancelled");
    for time in SHORT {
        ours.set_timeout(Some(time));
        let timed_out = ours.recv_into(&mut [0; 8]);
        assert!(
            matches!(timed_out, Err(Error::TimedOut(_))),
            "{timed_out:?}"
        );
    }
    for time in ENDLESS {
        pair.ours.set_timeout(Some(time));
        pair.serves();
    }
    pair.ours.set_timeout(Some(PATIENCE));
}

fn datagrams(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Connection::{send_datagram, set_dscp, recv_datagram}");
    let ours = &mut pair.ours;
    for dscp in [64, u8::MAX] {
        refused(ours.set_dscp(dscp), dscp);
    }
    for len in [0, ours.max_datagram() + 1, 1 << 24] {
        refused(ours.send_datagram(vec![0; len]), len);
    }
    let waker = ours.waker();
    for time in ENDLESS {
        let waited = woken(by(waker.clone()), || ours.recv_datagram(Some(time)));
        assert!(matches!(waited, Ok(Waited::Woken)), "{waited:?}");
    }
    for time in SHORT {
        let waited = ours.recv_datagram(Some(time));
        assert!(waited.expect("connected").got().is_none());
    }
}

fn transfers(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Connection::{send, recv_into, recv_into_uninit, recv_message_uninit}");
    tried.on("Connection::{send_message, recv_message, poll_batch}");
    tried.on("ConnectionHandle::{send, recv, post}");
    for _ in 0..2 {
        let receiving = pair.theirs.recv(Region::empty());
        pair.ours.send(&[]).expect("sent");
        pair.over(receiving).result.expect("empty");
    }
    let sending = pair.theirs.send(Region::empty());
    assert_eq!(pair.ours.recv_into(&mut []).expect("empty"), 0);
    pair.over(sending).result.expect("empty");
    let sending = pair.theirs.send(Region::empty());
    let uninit: &mut [MaybeUninit<u8>] = &mut [];
    assert_eq!(pair.ours.recv_into_uninit(uninit).expect("empty"), 0);
    pair.over(sending).result.expect("empty");
    // Both fail where the receive is too short.
    let sending = pair.theirs.send(region(1));
    refused(pair.ours.recv_into(&mut []), "no room");
    refused(pair.over(sending).result, "no room");
    for control in [129, 1 << 20] {
        let control = vec![0; control];
        refused(pair.ours.send_message(&control, None), "control");
        let posted = pair.theirs.post(Message::new(control)).wait();
        assert!(posted.is_err(), "{posted:?}");
    }
    for payload in [None, Some(&[][..])] {
        let receiving = pair.theirs.post(ReceiveMessage::new());
        pair.ours.send_message(&[], payload).expect("sent");
        let received = pair.over(receiving);
        assert_eq!(received.control(), Some(&[][..]));
    }
    for uninit in [false, true] {
        let sending = pair
            .theirs
            .post(Message::new(&[][..]).payload(Region::empty()));
        let received = match uninit {
            false => pair.ours.recv_message(Some(&mut [])),
            true => pair.ours.recv_message_uninit(Some(&mut [])),
        };
        assert_eq!(received.expect("received").payload, 0);
        pair.over(sending).result.expect("empty");
    }
    for max in [0, usize::MAX] {
        let mut into = vec![];
        assert_eq!(pair.ours.poll_batch(&mut into, max).expect("none"), 0);
    }
    pair.serves();
}

fn remote_memory(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Connection::{put, put_with_immediate, get, get_uninit, fetch_op, fetch_op_u32}");
    tried.on("Connection::{fetch_add, fetch_clear, swap, compare_and_swap, puts_at_once}");
    let (ours, key) = (&mut pair.ours, pair.key);
    let beyond = HUGE.into_iter().chain([LEN as u64]);
    for offset in beyond {
        refused(ours.put(&key, offset, &[0; 8]), offset);
        refused(
            ours.put_with_immediate(&key, offset, &[0; 8], u32::MAX),
            offset,
        );
        refused(ours.get(&key, offset, &mut [0; 8]), offset);
        let uninit: &mut [MaybeUninit<u8>] = &mut [MaybeUninit::uninit(); 8];
        assert!(ours.get_uninit(&key, offset, uninit).is_err(), "{offset}");
        refused(ours.fetch_op(&key, offset, FetchOp::Increment), offset);
        refused(ours.fetch_op_u32(&key, offset, FetchOp::Increment), offset);
        refused(ours.fetch_add(&key, offset, u64::MAX), offset);
        refused(ours.fetch_clear(&key, offset), offset);
        refused(ours.swap(&key, offset, u64::MAX), offset);
        refused(ours.compare_and_swap(&key, offset, 0, u64::MAX), offset);
        for bytes in [1, u64::MAX] {
            assert!(!ours.puts_at_once(&key, offset, bytes));
        }
    }
    for offset in [0, LEN as u64] {
        ours.put(&key, offset, &[]).expect("no bytes");
        ours.get(&key, offset, &mut []).expect("no bytes");
    }
    for immediate in [0, u32::MAX] {
        let told = pair.theirs.immediate();
        let put = ours.put_with_immediate(&key, 0, &[], immediate);
        put.expect("no bytes");
        assert_eq!(told.wait().expect("told").number, immediate);
    }
    ours.swap(&key, 0, u64::MAX).expect("a word");
    assert_eq!(ours.fetch_add(&key, 0, u64::MAX).expect("a word"), u64::MAX);
    let swapped = ours.compare_and_swap(&key, 0, u64::MAX - 1, 0);
    assert_eq!(swapped.expect("a word"), u64::MAX - 1);
    let before = ours.fetch_op_u32(&key, 4, FetchOp::Swap(u32::MAX));
    assert_eq!(before.expect("a word"), 0);

    tried.on("ExportedRegion::{new, fetch_op}");
    // Its start may be any number.
    drop(ExportedRegion::new(Region::empty()));
    for offset in HUGE_SIZES.into_iter().chain([1, LEN]) {
        panics(|| pair.exported.fetch_op(offset, FetchOp::Add(1u64)));
        panics(|| pair.exported.try_read(offset, &mut [0; LEN]));
        panics(|| pair.exported.try_write(offset, &[0; LEN]));
    }
    pair.serves();
}

fn names(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Connection::{export_named, open_region}");
    tried.on("ConnectionHandle::export_named");
    tried.on("EndpointHandle::export");
    for name in NAMES {
        let ours = &mut pair.ours;
        let named = ours.export_named(name, &pair.exported, Rights::ALL);
        let opened = ours.open_region(name, Rights::ALL);
        let posted = ours.post(OpenRegion::new(name, Rights::ALL)).map(drop);
        let theirs = pair.theirs.export_named(name, &pair.exported, Rights::ALL);
        let all = pair.endpoint.export(name, &pair.exported, Rights::ALL);
        for error in [
            named.expect_err(name),
            opened.expect_err(name),
            posted.expect_err(name).error,
            theirs.wait().expect_err(name).error,
            all.wait().expect_err(name).error,
        ] {
            let said = match name.contains('\0') {
                true => matches!(error, Error::NulInName { .. }),
                false => matches!(error, Error::NameLength { .. }),
            };
            assert!(said, "{name:?}: {error}");
        }
    }
    let longest = "x".repeat(32);
    let key = pair
        .theirs
        .export_named(&longest, &pair.exported, Rights::ALL);
    let key = key.wait().expect("exported");
    assert_eq!(
        pair.ours
            .open_region(&longest, Rights::ALL)
            .expect("opened"),
        key
    );

    tried.on("Connection::export_numbered");
    tried.on("ConnectionHandle::export_numbered");
    tried.on("Worker::{export_numbered, revoke_number}");
    tried.on("WorkerHandle::{export_numbered, revoke_number}");
    tried.on("RegionKey::{numbered, from_u64}");
    assert!([RegionNumber::END, u32::MAX].map(RegionNumber::new) == [None, None]);
    let mut worker = Worker::new().expect("descriptors");
    for number in [0, RegionNumber::END - 1] {
        let number = RegionNumber::new(number).expect("below the end");
        let key = pair
            .ours
            .export_numbered(number, &pair.exported, Rights::ALL);
        assert!(pair.ours.revoke(&key.expect("exported")));
        let key = pair
            .theirs
            .export_numbered(number, &pair.exported, Rights::ALL);
        assert!(
            pair.theirs
                .revoke(&key.wait().expect("exported"))
                .wait()
                .expect("there")
        );
        worker
            .export_numbered(number, &pair.exported, Rights::ALL)
            .expect("exported");
        assert!(worker.revoke_number(number));
        assert!(!worker.revoke_number(number));
        let of_thread = pair
            .thread
            .export_numbered(number, &pair.exported, Rights::ALL);
        of_thread.wait().expect("exported");
        assert!(pair.thread.revoke_number(number).wait().expect("there"));
        for offset in HUGE {
            let key = RegionKey::numbered(number, offset);
            assert_eq!(key.len(), u64::MAX - offset);
            for within in [0, u64::MAX - offset, u64::MAX] {
                refused(pair.ours.put(&key, within, &[0; 8]), (offset, within));
            }
        }
    }
    for number in HUGE {
        let key = RegionKey::from_u64(number);
        assert_eq!(key.to_u64(), Some(number));
        refused(pair.ours.get(&key, 0, &mut [0; 8]), number);
    }
    pair.serves();
}

fn requests(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Connection::{post, post_send, post_recv}");
    tried.on("request::{Transfer, Receive, Message, MessageInline, ReceiveMessage, OpenRegion}");
    tried.on("request::{Put, PutInline}");
    tried.on("request::{PutPieces, Get, GetPieces, Fetch}");
    tried.on("request::Fetch::new_u32");
    tried.on("advanced::{Offer, Read}");
    let key = pair.key;
    for offset in HUGE.into_iter().chain([LEN as u64 + 1]) {
        assert!(
            !pair.ends(Put::new(&key, offset, region(8)).context(u64::MAX)),
            "{offset}"
        );
        assert!(
            !pair.ends(Put::new(&key, offset, Region::empty())),
            "{offset}"
        );
        assert!(
            !pair.ends(PutInline::new(&key, offset, &[0; 8])),
            "{offset}"
        );
        assert!(!pair.ends(Get::new(&key, offset, region(8))), "{offset}");
        assert!(
            !pair.ends(PutPieces::new(&key, vec![(offset, region(8).into())])),
            "{offset}"
        );
        assert!(
            !pair.ends(GetPieces::new(&key, vec![(offset, region(8))])),
            "{offset}"
        );
        assert!(
            !pair.ends(Fetch::new(&key, offset, FetchOp::Clear)),
            "{offset}"
        );
        assert!(
            !pair.ends(Fetch::new_u32(&key, offset, FetchOp::Clear)),
            "{offset}"
        );
    }
    for len in [257, 1 << 20] {
        assert!(!pair.ends(PutInline::new(&key, 0, vec![0; len])), "{len}");
    }
    assert!(pair.ends(PutInline::new(&key, LEN as u64, &[])));
    assert!(pair.ends(Put::new(&key, LEN as u64, Region::empty()).context(u64::MAX)));
    assert!(pair.ends(Get::new(&key, LEN as u64, Region::empty())));
    let told = pair.theirs.immediate();
    assert!(pair.ends(Put::new(&key, 0, region(8)).immediate(u32::MAX)));
    assert_eq!(told.wait().expect("told").number, u32::MAX);
    // None, and more than are in flight at a time.
    for count in [0, 1, 4097, 10_000] {
        let offset = |n: usize| (n % LEN) as u64;
        let pieces = (0..count).map(|n| (offset(n), Memory::from(Region::empty())));
        let put = pair.ends(PutPieces::new(&key, pieces.collect()));
        let pieces = (0..count).map(|n| (offset(n), region(1)));
        let got = pair.ends(GetPieces::new(&key, pieces.collect()));
        assert_eq!((put, got), (count > 0, count > 0), "{count}");
    }
    let receiving = pair.theirs.post(Receive::new(Region::empty()));
    assert!(pair.ends(Transfer::new(Region::empty()).context(u64::MAX)));
    pair.over(receiving).result.expect("empty");
    let receiving = pair.theirs.recv(Region::empty());
    pair.ours.post_send(Region::empty()).expect("posted");
    let sent = pair.ours.wait(Some(PATIENCE)).expect("connected");
    sent.got().expect("in time").result.expect("sent");
    pair.over(receiving).result.expect("empty");
    let sending = pair.theirs.send(Region::empty());
    pair.ours.post_recv(Region::empty()).expect("posted");
    let received = pair.ours.wait(Some(PATIENCE)).expect("connected");
    received.got().expect("in time").result.expect("received");
    pair.over(sending).result.expect("empty");
    assert!(!pair.ends(Message::new(vec![0; 129]).context(u64::MAX)));
    for (control, payload) in [(129, 0), (0, 257), (1 << 20, 1 << 20)] {
        let message = MessageInline::new(vec![0; control], vec![0; payload]);
        assert!(!pair.ends(message), "{control}, {payload}");
    }
    let receiving = pair.theirs.post(ReceiveMessage::new());
    assert!(pair.ends(MessageInline::new(&[][..], &[][..]).context(u64::MAX)));
    let received = pair.over(receiving);
    assert_eq!(received.control(), Some(&[][..]));
    let sending = pair.theirs.post(Message::new(&[][..]));
    assert!(
        pair.ends(
            ReceiveMessage::new()
                .payload(Region::empty())
                .context(u64::MAX)
        )
    );
    pair.over(sending).result.expect("empty");
    for memory in [Region::empty(), region(1 << 20)] {
        let len = memory.len();
        let reading = pair.theirs.post(Read::new(region(len)));
        assert!(pair.ends(Offer::new(memory)), "{len}");
        pair.over(reading).result.expect("all of it");
    }
    pair.serves();
}

fn identifiers(tried: &mut Tried, pair: &mut Pair) {
    tried.on("RequestId::from_u64");
    tried.on("Connection::{cancel, notify, arrived, read_arrived, share_arrived}");
    tried.on("ConnectionHandle::{arrived, wait_arrived, share_arrived, cancel}");
    let ours = &mut pair.ours;
    let receiving = ours.post_recv(region(8)).expect("posted");
    for offset in HUGE {
        assert_eq!(ours.read_arrived(receiving, offset, &mut [0; 8]), 0);
        assert_eq!(ours.read_arrived(receiving, offset, &mut []), 0);
    }
    assert!(ours.cancel(receiving));
    ours.wait(Some(PATIENCE)).expect("cancelled");
    for number in HUGE.into_iter().chain([0]) {
        let id = RequestId::from_u64(number);
        assert!(!ours.cancel(id) && !ours.notify(id), "{number}");
        assert_eq!(ours.arrived(id), None, "{number}");
        assert_eq!(ours.read_arrived(id, u64::MAX, &mut [0; 8]), 0, "{number}");
        assert!(ours.share_arrived(id).is_none(), "{number}");
        assert!(!pair.theirs.cancel(id).wait().expect("connected"));
        assert_eq!(pair.theirs.arrived(id).wait().expect("connected"), None);
        assert!(!pair.theirs.cancel(id).wait().expect("connected"));
        let arrived = pair.theirs.wait_arrived(id, u64::MAX).wait();
        assert_eq!(arrived.expect("connected"), None);
        assert!(
            pair.theirs
                .share_arrived(id)
                .wait()
                .expect("connected")
                .is_none()
        );
    }
    tried.on("ConnectionId::from_u64");
    tried.on("EndpointId::from_u64");
    tried.on("Worker::{connection, release, close, connection_handle}");
    tried.on("Worker::{endpoint, close_endpoint, endpoint_handle, export}");
    tried.on("Worker::{accept_request, datagram_bytes, refuse_request}");
    let mut worker = Worker::new().expect("descriptors");
    for number in HUGE.into_iter().chain([0]) {
        let connection = ConnectionId::from_u64(number);
        assert!(worker.connection(connection).is_none(), "{number}");
        assert!(worker.release(connection).is_none(), "{number}");
        assert!(worker.connection_handle(connection).is_none(), "{number}");
        assert!(!worker.close(connection), "{number}");
        assert!(!worker.accept_request(connection, None), "{number}");
        assert!(!worker.refuse_request(connection), "{number}");
        assert_eq!(worker.datagram_bytes(connection), 0, "{number}");
        let endpoint = EndpointId::from_u64(number);
        assert!(worker.endpoint(endpoint).is_none(), "{number}");
        assert!(worker.endpoint_handle(endpoint).is_none(), "{number}");
        assert!(!worker.close_endpoint(endpoint), "{number}");
        refused(
            worker.export(endpoint, "a", &pair.exported, Rights::ALL),
            number,
        );
    }
    let endpoint = worker
        .listen("127.0.0.1:0", Options::default())
        .expect("a port");
    for name in NAMES {
        refused(
            worker.export(endpoint, name, &pair.exported, Rights::ALL),
            name,
        );
    }
    pair.serves();
}

fn settings(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Connection::{set_unprocessed, set_weight, set_max_rate, add_path, remove_path}");
    tried.on("Connection::set_completion_queue");
    for unprocessed in HUGE_SIZES.into_iter().chain([0]) {
        pair.ours.set_unprocessed(unprocessed);
    }
    for weight in [u32::MAX, 0] {
        pair.ours.set_weight(weight);
    }
    for rate in [Some(0), Some(u64::MAX), None] {
        pair.ours.set_max_rate(rate);
    }
    assert!(
        !pair.ours.add_path(PathAddresses::default()),
        "one path was asked for"
    );
    tried.on("PathId::{get, new}");
    assert_eq!((PathId::new(MAX_PATHS), PathId::new(u8::MAX)), (None, None));
    for number in 0..MAX_PATHS {
        let path = PathId::new(number).expect("few");
        assert_eq!(path.get(), number);
        pair.ours.remove_path(path);
    }
    let queue = CompletionQueue::new(1).expect("memory");
    pair.ours.set_completion_queue(&queue, u64::MAX);
    pair.serves();
}

fn queues(tried: &mut Tried, pair: &mut Pair) {
    tried.on("CompletionQueue::{new, poll_batch, wait}");
    refused(
        CompletionQueue::new(usize::MAX).map(drop),
        "more than memory",
    );
    let queue = CompletionQueue::new(0).expect("as if 1");
    for max in [0, usize::MAX] {
        assert_eq!(queue.poll_batch(&mut vec![], max), 0);
    }
    for time in SHORT {
        assert!(queue.wait(Some(time)).expect("no failure").is_none());
    }
    for time in ENDLESS {
        pair.ours.set_completion_queue(&queue, u64::MAX);
        let sending = pair.theirs.send(region(8));
        pair.ours.post_recv(region(8)).expect("posted");
        let (tag, completion) = thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.wait(Some(time)));
            let end = Instant::now() + PATIENCE;
            while !waiting.is_finished() && Instant::now() < end {
                assert!(
                    pair.ours.poll().expect("connected").is_none(),
                    "it is in the queue"
                );
                thread::sleep(Duration::from_millis(1));
            }
            waiting
                .join()
                .expect("no panic")
                .expect("no failure")
                .expect("no time-out")
        });
        assert_eq!((tag, completion.result.expect("received")), (u64::MAX, 8));
        pair.over(sending);
        *pair = Pair::new(pair.lane);
    }
    tried.on("ReceivePool::{add, notify_below}");
    let pool = ReceivePool::new();
    pool.notify_below(0, || panic!("never less than none"));
    pool.add(Region::empty(), u64::MAX).expect("open");
    assert_eq!(pool.remove().expect("one").1, u64::MAX);
    let (tell, told) = std::sync::mpsc::channel();
    pool.notify_below(usize::MAX, move || tell.send(()).expect("waited for"));
    told.recv().expect("at once");
    tried.on("PendingSet::{add, signal, poll_batch, wait}");
    tried.on("Pending::wait_for");
    let set = PendingSet::new().expect("a descriptor");
    for time in SHORT {
        assert_eq!(set.wait(Some(time)).expect("no failure"), None);
    }
    for time in ENDLESS {
        set.signal(u64::MAX);
        assert_eq!(set.wait(Some(time)).expect("no failure"), Some(u64::MAX));
        let mut receiving = pair.theirs.recv(region(8));
        set.add(&mut receiving, u64::MAX).expect("of this process");
        for time in SHORT {
            assert!(receiving.wait_for(time).is_none());
        }
        pair.ours.send(&[7; 8]).expect("sent");
        assert_eq!(set.wait(Some(time)).expect("no failure"), Some(u64::MAX));
        receiving
            .wait_for(time)
            .expect("no time-out")
            .expect("received");
    }
    for max in [0, usize::MAX] {
        assert_eq!(set.poll_batch(&mut vec![], max), 0);
    }
    pair.serves();
}

fn workers(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Worker::{set_spin, wait, wait_asleep, take_events, listen, connect}");
    tried.on("WorkerHandle::{listen, connect}");
    let mut worker = Worker::new().expect("descriptors");
    let waker = worker.waker();
    for spin in [Duration::ZERO, Duration::MAX, Duration::from_micros(50)] {
        worker.set_spin(spin);
        for time in ENDLESS {
            woken(by(waker.clone()), || worker.wait(Some(time))).expect("no failure");
            woken(by(waker.clone()), || worker.wait_asleep(Some(time))).expect("no failure");
        }
    }
    for time in SHORT {
        worker.wait(Some(time)).expect("no failure");
        worker.wait_asleep(Some(time)).expect("no failure");
    }
    for max in [0, usize::MAX] {
        assert_eq!(worker.take_events(&mut vec![], max), 0);
    }
    for address in ADDRESSES {
        refused(worker.listen(address, Options::default()), address);
        refused(worker.connect(address, &Options::default()), address);
        assert!(
            pair.thread
                .listen(address, Options::default())
                .wait()
                .is_err(),
            "{address}"
        );
        assert!(
            pair.thread
                .connect(address, &Options::default())
                .wait()
                .is_err(),
            "{address}"
        );
    }
    pair.serves();
}

fn endpoints(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Endpoint::{bind, accept, give_to}");
    tried.on("Connection::connect");
    for address in ADDRESSES {
        assert!(
            Endpoint::bind(address, Options::default()).is_err(),
            "{address}"
        );
        assert!(
            Connection::connect(address, &Options::default()).is_err(),
            "{address}"
        );
    }
    let no_addresses: &[std::net::SocketAddr] = &[];
    assert!(Endpoint::bind(no_addresses, Options::default()).is_err());
    assert!(Connection::connect(no_addresses, &Options::default()).is_err());
    let never = Options::default().with(|it| {
        it.times.connect = Duration::MAX;
        it.times.idle = Duration::MAX;
        it.times.spin = Duration::MAX;
        it.listen.backlog = u16::MAX;
        it.listen.max_connections = usize::MAX;
        it.rate.max = Some(u64::MAX);
    });
    let mut endpoint = Endpoint::bind("127.0.0.1:0", never.clone()).expect("a port");
    for time in SHORT {
        assert!(endpoint.accept(Some(time)).expect("no failure").is_none());
    }
    for time in ENDLESS {
        let to = endpoint.local_addr();
        let connecting = thread::spawn({
            let never = never.clone();
            move || Connection::connect(to, &never)
        });
        let accepted = endpoint.accept(Some(time)).expect("no failure");
        let _accepted = accepted.expect("no time-out");
        connecting.join().expect("no panic").expect("connected");
    }
    tried.on("Endpoint::incoming");
    refused(
        endpoint.incoming(Some(Duration::ZERO)).map(drop),
        "not asked for",
    );
    let asks = never.clone().with(|it| it.listen.asks = true);
    let mut asking = Endpoint::bind("127.0.0.1:0", asks).expect("a port");
    for time in SHORT {
        assert!(asking.incoming(Some(time)).expect("no failure").is_none());
    }
    for time in ENDLESS {
        let to = asking.local_addr();
        let connecting = thread::spawn({
            let never = never.clone();
            move || Connection::connect(to, &never)
        });
        let incoming = asking.incoming(Some(time)).expect("no failure");
        let _accepted = incoming.expect("no time-out").accept(None);
        connecting.join().expect("no panic").expect("connected");
    }
    // -1 is no user for the system.
    refused(endpoint.give_to(u32::MAX), "no user");
    pair.serves();
}

fn memory(tried: &mut Tried, pair: &mut Pair) {
    tried.on("Region::{anonymous, memfd, map_file}");
    for len in HUGE_SIZES {
        refused(Region::anonymous(len), len);
        refused(Region::memfd(len), len);
    }
    assert!(Region::anonymous(0).expect("no bytes").is_empty());
    refused(Region::memfd(0), 0);
    let file = File::open(std::env::current_exe().expect("a path")).expect("this program");
    for offset in HUGE {
        for len in HUGE_SIZES.into_iter().chain([0, 1]) {
            refused(
                Region::map_file(&file, offset, len, Access::Read),
                (offset, len),
            );
        }
    }
    for len in HUGE_SIZES {
        refused(Region::map_file(&file, 0, len, Access::Read), len);
    }
    drop(Region::map_file(&file, 0, 0, Access::Read));
    tried.on("EthernetDevice::open");
    for name in ["", "\0", "no such interface", &"x".repeat(100_000)] {
        assert!(EthernetDevice::open(name, Default::default()).is_err());
    }
    pair.serves();
}

/// The types of memory before a request has them: parts, joins and copies at their ends and beyond.
fn memory_types(_: &mut Tried, pair: &mut Pair) {
    let file = File::open(std::env::current_exe().expect("a path")).expect("this program");
    let mapped = || Region::map_file(&file, 4097, 8, Access::Read).expect("the program is longer");
    let exported = ExportedRegion::new(region_of_pages(12)).expect("aligned");
    for at in HUGE_SIZES.into_iter().chain([9]) {
        panics(|| region(8).split_off(at));
        panics(|| mapped().split_off(at));
        panics(|| region(8).share().slice(0, at));
        for len in [0, 1, usize::MAX] {
            panics(|| region(8).share().slice(at, len));
        }
        panics(|| mapped().read(at, &mut []));
        panics(|| mapped().write(at, &[]));
    }
    for at in HUGE_SIZES.into_iter().chain([13]) {
        panics(|| exported.read(at, &mut []));
        panics(|| exported.write(at, &[]));
    }
    // Eight bytes from there on are not all in it, or not a word.
    for at in HUGE_SIZES.into_iter().chain([4, 8, 12, 16, usize::MAX - 7]) {
        panics(|| exported.word(at).load(Ordering::Relaxed));
    }
    for at in [1, 2, 8, 12, usize::MAX - 3, usize::MAX - 7] {
        panics(|| exported.fetch_op(at, FetchOp::Add(1_u32)));
    }
    assert_eq!(exported.fetch_op(4, FetchOp::Swap(u32::MAX)), 0);
    exported.read(12, &mut []);
    exported.write(12, &[]);
    exported.write(5, &[7; 7]);
    let mut read = [0; 12];
    exported.read(0, &mut read);
    assert_eq!(read, [0, 0, 0, 0, 255, 7, 7, 7, 7, 7, 7, 7]);

    // At either end, a part has nothing, and is still one of the same memory.
    let (mut whole, mut of_file) = (region(8), mapped());
    for at in [0, 8] {
        let tail = whole.split_off(at);
        assert_eq!((whole.len(), tail.len()), (at, 8 - at));
        whole.unsplit(tail).expect("the next part");
        let tail = of_file.split_off(at);
        assert_eq!((of_file.len(), tail.len()), (at, 8 - at));
        of_file.unsplit(tail).expect("the next part");
        let slice = region(8).share().slice(at, 8 - at);
        assert_eq!(slice.try_unique().expect("the only one").len(), 8 - at);
    }
    for other in [Region::empty(), region(0), region(8)] {
        whole.unsplit(other).expect_err("of other memory");
    }
    of_file.unsplit(mapped()).expect_err("of another mapping");
    of_file.read(8, &mut []).expect("no bytes");
    of_file.write(8, &[]).expect("no bytes");
    assert!(Memory::from(vec![]).is_empty());
    assert!(Memory::from(vec![Memory::from(vec![]), Region::empty().into()]).is_empty());
    more_than_memory(pair);
    pair.serves();
}

fn region_of_pages(len: usize) -> Region {
    Region::anonymous(len).expect("memory")
}

/// Pieces of one region, with more bytes in all than there are addresses.
fn more_than_memory(pair: &mut Pair) {
    const PIECES: usize = 1 << 18;
    let Ok(region) = Region::anonymous(1 << 46) else {
        println!("skipped: the system grants no more addresses than it has memory");
        return;
    };
    let region = region.share();
    let pieces = |count| {
        let pieces = (0..count).map(|_| Memory::from(region.clone()));
        Memory::from(pieces.collect::<Vec<_>>())
    };
    assert_eq!(pieces(PIECES - 1).len(), (PIECES - 1) << 46);
    for count in [PIECES, PIECES + 1] {
        assert_eq!(pieces(count).len(), usize::MAX);
        assert!(!pair.ends(Put::new(&pair.key, 0, pieces(count))));
    }
    let each = (0..2 * PIECES as u64).map(|at| (at, Memory::from(region.clone())));
    assert!(!pair.ends(PutPieces::new(&pair.key, each.collect())));
}

#[test]
fn extremes__of_every_call() {
    let mut tried = Tried::default();
    for part in [
        waits,
        datagrams,
        transfers,
        remote_memory,
        names,
        requests,
        identifiers,
        settings,
        queues,
        workers,
        endpoints,
        memory,
        memory_types,
    ] {
        for lane in [LaneChoice::Udp, LaneChoice::SharedMemory] {
            part(&mut tried, &mut Pair::new(lane));
        }
    }
    let documented = documented();
    let without: BTreeSet<_> = WITHOUT.iter().flat_map(|it| expanded(it)).collect();
    let both: Vec<_> = tried.0.intersection(&without).collect();
    assert!(both.is_empty(), "tried, and listed as without: {both:?}");
    let known: BTreeSet<_> = tried.0.union(&without).cloned().collect();
    let new: Vec<_> = documented.difference(&known).collect();
    assert!(new.is_empty(), "not tried: {new:?}");
    let gone: Vec<_> = known.difference(&documented).collect();
    assert!(gone.is_empty(), "not in docs/reference/names.md: {gone:?}");
}
