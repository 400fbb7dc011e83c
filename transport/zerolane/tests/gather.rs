//! Tests that requests of several pieces are sent as one, and that the pieces come back.
#![allow(non_snake_case)]

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, PostError, Reason, TransferError};
use zerolane::memory::{Access, FileRegion, Memory};
use zerolane::options::LaneChoice;
use zerolane::request::{GetPieces, Message, Put, PutPieces, ReceiveMessage};
use zerolane::{
    Completion, CompletionQueue, Connection, Endpoint, Error, ExportedRegion, Options, Region,
    RegionKey, Rights, Security, Waited,
};

/// Bounds how long a failure takes to show; otherwise never reached.
const PATIENCE: Duration = Duration::from_secs(60);

fn pair(options: &Options) -> (Connection, Connection) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).expect("a port");
    let address = endpoint.local_addr();
    let theirs = options.clone();
    let connecting = std::thread::spawn(move || Connection::connect(address, &theirs));
    let accepted = endpoint.accept(Some(PATIENCE)).expect("no error");
    let accepted = accepted.expect("in time");
    let connected = connecting.join().expect("no panic").expect("connected");
    (connected, accepted)
}

/// The next completion of each end.
fn complete(here: &mut Connection, there: &mut Connection) -> (Completion, Completion) {
    let (mut a, mut b) = (None, None);
    let end = Instant::now() + PATIENCE;
    while a.is_none() || b.is_none() {
        assert!(Instant::now() < end, "here {a:?}, there {b:?}");
        // A request that is complete at one end may need a packet to the other.
        let polled = (here.poll(), there.poll());
        a = a.or(polled.0.expect("connected"));
        b = b.or(polled.1.expect("connected"));
    }
    (a.expect("there"), b.expect("there"))
}

fn content(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 131 + at / 251 + at / 65_521) as u8)
        .collect()
}

/// Cuts `whole` into pieces of `lens`, each in a different kind of memory.
fn cut(whole: &[u8], lens: &[usize]) -> Vec<Memory> {
    let mut rest = whole;
    let pieces = lens.iter().enumerate().map(|(index, &len)| {
        let (bytes, behind) = rest.split_at(len);
        rest = behind;
        piece(index, bytes)
    });
    let pieces: Vec<Memory> = pieces.collect();
    assert!(rest.is_empty(), "{} bytes are in no piece", rest.len());
    pieces
}

fn piece(index: usize, bytes: &[u8]) -> Memory {
    let region = Region::from_vec(bytes.to_vec());
    match index % 3 {
        0 => region.into(),
        1 => region.share().into(),
        _ if bytes.len() < 4096 => region.into(),
        _ => mapped(bytes).into(),
    }
}

fn mapped(bytes: &[u8]) -> FileRegion {
    let mut file: File = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    Region::map_file(&file, 0, bytes.len(), Access::Read).expect("mapped")
}

fn assert_back(done: &Completion, whole: &[u8], lens: &[usize]) {
    assert_eq!(done.result.expect("done"), whole.len());
    let Some(Memory::Gathered(pieces)) = done.memory() else {
        panic!("several pieces were posted");
    };
    let back: Vec<usize> = pieces.iter().map(Memory::len).collect();
    assert_eq!(back, lens);
    let bytes: Vec<u8> = pieces.iter().flat_map(bytes_of).collect();
    assert!(bytes == whole, "they came back changed");
}

fn bytes_of(memory: &Memory) -> Vec<u8> {
    let Memory::File(file) = memory else {
        return memory.as_slice().expect("one piece").to_vec();
    };
    let mut bytes = vec![0; file.len()];
    file.read(0, &mut bytes).expect("the whole file");
    bytes
}

/// Layouts of pieces: short ones that are copied, ones that cross STUs, one byte each, more than a system call takes,
/// empty ones.
fn shapes() -> Vec<Vec<usize>> {
    let mut odd = vec![1; 500];
    odd.extend([100_000, 3, 0, 77_777, 4096, 8192, 1]);
    vec![
        vec![],
        vec![0, 0],
        vec![5],
        vec![100, 0, 1092],
        vec![100, 1093],
        vec![100, 16_284],
        vec![100, 16_285],
        vec![40, 1 << 20],
        vec![1; 20_000],
        odd,
        (0..300).map(|n| n * 37 % 1499).collect(),
        vec![300_000, 300_000, 300_000],
    ]
}

fn all_posts(options: &Options) {
    let (mut here, mut there) = pair(options);
    let longest = shapes().iter().map(|it| it.iter().sum::<usize>()).max();
    let longest = longest.expect("shapes");
    let target = Region::anonymous(longest + 8).expect("memory");
    let target = ExportedRegion::new(target).expect("page-aligned");
    let key = there.export(&target, Rights::ALL).expect("exported");
    let mut buffer = Region::anonymous(longest).expect("memory");
    for lens in shapes() {
        let whole = content(lens.iter().sum());
        let what = format!(
            "{} bytes in {} pieces, {options:?}",
            whole.len(),
            lens.len()
        );

        there.post_recv(buffer).expect("posted");
        here.post_send(cut(&whole, &lens)).expect("posted");
        let (sent, received) = complete(&mut here, &mut there);
        assert_back(&sent, &whole, &lens);
        assert_eq!(received.result, Ok(whole.len()), "{what}");
        buffer = received.into_region().expect("a region");
        assert!(buffer[..whole.len()] == whole, "sent: {what}");
        buffer.fill(0);

        there
            .post(ReceiveMessage::new().payload(buffer))
            .expect("posted");
        let pieces = Memory::from(cut(&whole, &lens));
        here.post(Message::new(b"gathered").payload(pieces))
            .expect("posted");
        let (sent, received) = complete(&mut here, &mut there);
        assert_back(&sent, &whole, &lens);
        assert_eq!(received.result, Ok(whole.len()), "{what}");
        assert_eq!(received.control(), Some(&b"gathered"[..]));
        buffer = received.into_region().expect("a region");
        assert!(buffer[..whole.len()] == whole, "message: {what}");
        buffer.fill(0);

        target.write(0, &vec![0; longest + 8]);
        here.post(Put::new(&key, 5, cut(&whole, &lens)).immediate(7))
            .expect("posted");
        let (put, immediate) = complete(&mut here, &mut there);
        assert_back(&put, &whole, &lens);
        assert_eq!(immediate.immediate().map(|it| it.number), Some(7));
        let mut there = vec![0; longest + 8];
        target.read(0, &mut there);
        assert!(there[5..][..whole.len()] == whole, "put: {what}");
        assert!(there[..5] == [0; 5] && there[5 + whole.len()..].iter().all(|it| *it == 0));
    }
}

#[test]
fn gather__plain() {
    all_posts(&Options::default().with(|it| it.security = Security::plain()));
}

#[test]
fn gather__without_gso_and_with_checksums() {
    all_posts(&Options::default().with(|it| {
        it.security = Security::plain();
        it.datagrams.gso = false;
        it.datagrams.gro = false;
        it.datagrams.checksum = true;
    }));
}

#[test]
fn gather__encrypted() {
    all_posts(&Options::default());
}

#[test]
fn gather__encrypted_without_gso() {
    all_posts(&Options::default().with(|it| it.datagrams.gso = false));
}

#[test]
fn gather__refused_gives_all_back() {
    let (mut here, there) = pair(&Options::default());
    drop(there);
    while here.wait(Some(PATIENCE)).is_ok() {}
    let whole = content(100);
    let refused = here.post_send(cut(&whole, &[30, 70]));
    let Memory::Gathered(pieces) = refused.expect_err("closed").memory else {
        panic!("one piece");
    };
    assert_eq!(
        [&pieces[0], &pieces[1]].map(Memory::as_slice),
        [Some(&whole[..30]), Some(&whole[30..])]
    );
}

/// The pages are gone before they are sent: that request fails, and later ones do not.
#[test]
fn gather__of_a_file_that_shrank_fails_alone() {
    for security in [Security::plain(), Security::default()] {
        let (mut here, mut there) = pair(&Options::default().with(|it| it.security = security));
        // Copied when posted, one burst, many.
        for len in [1000, 20_000, 3 << 20] {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&content(len)).expect("written");
            let mapped = Region::map_file(&file, 0, len, Access::Read).expect("mapped");
            file.set_len(0).expect("cut");
            let receive = there
                .post_recv(Region::anonymous(len + 100).expect("memory"))
                .expect("posted");
            let head = Region::from_vec(content(100));
            here.post_send(vec![head.into(), mapped.into()])
                .expect("posted");
            if len == 1000 {
                // It would have been sent with its announcement, and was not: the peer's receive matches another one.
                assert!(there.cancel(receive));
            }
            let (sent, received) = complete(&mut here, &mut there);
            let gone = TransferError::Refused(Reason::MemoryFault);
            assert_eq!(sent.result, Err(gone), "{len}");
            assert_eq!(sent.into_pieces().len(), 2, "{len}");
            let expected = match len {
                1000 => TransferError::Cancelled,
                _ => gone,
            };
            assert_eq!(received.result, Err(expected), "{len}");
        }
        let whole = content(5000);
        there
            .post_recv(Region::anonymous(5000).expect("memory"))
            .expect("posted");
        here.post_send(cut(&whole, &[2000, 3000])).expect("posted");
        let (_, received) = complete(&mut here, &mut there);
        assert!(received.into_region().expect("a region")[..] == whole);
    }
}

#[test]
fn put_vectored__of_gathered_pieces() {
    let (mut here, mut there) = pair(&Options::default());
    let target = Region::anonymous(8192).expect("memory");
    let target = ExportedRegion::new(target).expect("page-aligned");
    let key = there.export(&target, Rights::ALL).expect("exported");
    let whole = content(6000);
    let scattered = vec![
        (0, Memory::from(cut(&whole[..2000], &[1000, 1000]))),
        (4000, piece(0, &whole[2000..])),
    ];
    here.post(PutPieces::new(&key, scattered).immediate(1))
        .expect("posted");
    let (put, _) = complete(&mut here, &mut there);
    assert_eq!(put.result, Ok(6000));
    let pieces = put.into_pieces();
    assert_eq!(pieces.len(), 2);
    assert!(matches!(&pieces[0], Memory::Gathered(both) if both.len() == 2));
    let mut there = vec![0; 8000];
    target.read(0, &mut there);
    assert!(there[..2000] == whole[..2000] && there[4000..] == whole[2000..]);
}

#[test]
fn into_region__of_shared_memory_that_is_the_only_one() {
    let (mut here, mut there) = pair(&Options::default());
    for keep in [false, true] {
        let shared = Region::from_vec(content(5000)).share();
        let kept = keep.then(|| shared.clone());
        there
            .post_recv(Region::anonymous(5000).expect("memory"))
            .expect("posted");
        here.post_send(shared).expect("posted");
        let (sent, _) = complete(&mut here, &mut there);
        match sent.into_region() {
            Ok(region) => assert!(!keep && region[..] == content(5000)),
            Err(error) => assert!(keep && matches!(error, Error::NoRegion), "{error}"),
        }
        assert!(kept.is_none_or(|kept| kept.try_unique().is_ok()));
    }
}

/// Far more pieces than may be posted at once.
const MANY: u64 = 100_000;

const TABLE: usize = MANY as usize * 8;

fn shared() -> Options {
    Options::default().with(|it| it.lane.choice = LaneChoice::SharedMemory)
}

fn plain() -> Options {
    Options::default().with(|it| it.security = Security::plain())
}

fn table() -> Region {
    Region::anonymous(TABLE).expect("memory")
}

/// An owner of memory that serves until its peer closes, or until it stops.
struct Owner {
    memory: ExportedRegion,
    stops: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Owner {
    fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut there = vec![0; bytes.len()];
        self.memory.read(offset as usize, &mut there);
        there == bytes
    }

    fn done(self, connection: Connection) -> ExportedRegion {
        connection.close().expect("all was written");
        self.thread.join().expect("no panic");
        self.memory
    }
}

/// Connects to an owner of `table`.
fn served(options: &Options, table: Region) -> (Connection, Owner, RegionKey) {
    let (ours, mut theirs) = pair(options);
    let memory = ExportedRegion::new(table).expect("page-aligned");
    let key = theirs.export(&memory, Rights::ALL).expect("exported");
    let stops = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stops);
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) && theirs.wait(Some(PATIENCE / 600)).is_ok() {}
    });
    let owner = Owner {
        memory,
        stops,
        thread,
    };
    (ours, owner, key)
}

fn next(connection: &mut Connection) -> Completion {
    let completion = connection.wait(Some(PATIENCE)).expect("connected").got();
    completion.expect("a completion in time")
}

/// All words of a table in another order, the last piece first.
fn scattered() -> impl Iterator<Item = u64> {
    (0..MANY).rev().map(|n| n * 7 % MANY * 8)
}

fn word(n: u64) -> [u8; 8] {
    (n ^ 0x5bd1_e995).to_be_bytes()
}

fn words() -> Vec<(u64, Memory)> {
    let piece = |at: u64| (at, Region::from_vec(word(at).to_vec()).into());
    scattered().map(piece).collect()
}

#[test]
fn put_pieces__and_get_of_more_than_fit_are_one_request_each() {
    many_pieces(&Options::default(), table());
    many_pieces(&shared(), table());
    // The peer maps it.
    many_pieces(&shared(), Region::memfd(TABLE).expect("memory"));
}

fn many_pieces(options: &Options, table: Region) {
    let (mut connection, owner, key) = served(options, table);
    let put = PutPieces::new(&key, words()).context(7);
    let id = connection.post(put).expect("accepted");
    assert!(connection.in_flight() > 4096);
    let done = next(&mut connection);
    assert_eq!((done.id, done.context), (id, 7));
    assert_eq!(done.result, Ok(TABLE));
    assert_eq!(connection.in_flight(), 0);
    let back = done.into_pieces();
    assert_eq!(back.len() as u64, MANY);
    for (at, piece) in scattered().zip(&back) {
        assert_eq!(piece.as_slice(), Some(&word(at)[..]), "in their order");
        assert!(owner.holds(at, &word(at)), "{at}");
    }
    let places = scattered().map(|at| (at, Region::from_vec(vec![0; 8])));
    let get = GetPieces::new(&key, places.collect());
    let id = connection.post(get).expect("accepted");
    let done = next(&mut connection);
    assert_eq!((done.id, done.result), (id, Ok(TABLE)));
    for (at, piece) in scattered().zip(done.into_pieces()) {
        assert_eq!(piece.as_slice(), Some(&word(at)[..]), "{at}");
    }
    // A success that is not reported frees the memory, and lets later requests through.
    let silent = PutPieces::new(&key, words()).signalled(false);
    connection.post(silent).expect("accepted");
    let end = Instant::now() + PATIENCE;
    while connection.in_flight() > 0 {
        assert!(Instant::now() < end, "it goes on");
        assert!(connection.poll().expect("open").is_none());
    }
    connection.put(&key, 0, &word(1)).expect("put");
    owner.done(connection);
}

#[test]
fn put_pieces__of_more_than_fit_go_to_a_queue() {
    let (mut connection, owner, key) = served(&plain(), table());
    let queue = CompletionQueue::new(1).expect("a queue");
    connection.set_completion_queue(&queue, 3);
    let id = connection.post(PutPieces::new(&key, words()));
    let id = id.expect("accepted");
    // Nothing but the whole request ends the wait.
    let waited = connection.wait(None).expect("open");
    assert!(matches!(waited, Waited::Woken), "{waited:?}");
    let (tag, done) = queue.poll().expect("complete");
    assert_eq!((tag, done.id), (3, id));
    assert_eq!(done.result, Ok(TABLE));
    owner.done(connection);
}

#[test]
fn put_pieces__cancelled_while_some_wait_come_back() {
    for options in [Options::default(), shared()] {
        let (mut connection, owner, key) = served(&options, table());
        let id = connection.post(PutPieces::new(&key, words()));
        let id = id.expect("accepted");
        assert!(connection.cancel(id));
        let done = next(&mut connection);
        let cancelled = Err(TransferError::Cancelled);
        assert_eq!((done.id, done.result), (id, cancelled));
        let back = done.into_pieces();
        assert_eq!(back.len() as u64, MANY);
        for (at, piece) in scattered().zip(back) {
            assert_eq!(piece.as_slice(), Some(&word(at)[..]), "in their order");
        }
        assert!(!connection.cancel(id), "it is over");
        assert!(owner.holds(0, &[0; 8]), "the last was not posted");
        // The connection goes on.
        connection.put(&key, 0, &word(1)).expect("put");
        owner.done(connection);
    }
}

#[test]
fn close__writes_the_pieces_that_wait() {
    for options in [Options::default(), shared()] {
        let (mut connection, owner, key) = served(&options, table());
        let put = PutPieces::new(&key, words());
        connection.post(put).expect("accepted");
        let memory = owner.done(connection);
        for at in scattered() {
            let mut there = [0; 8];
            memory.read(at as usize, &mut there);
            assert_eq!(there, word(at));
        }
    }
}

/// A refusal of the first pieces, and the end of the connection, end the request with all its memory.
#[test]
fn put_pieces__that_fail_while_some_wait_come_back() {
    let (mut connection, owner, key) = served(&Options::default(), table());
    let _ = owner.memory.clone().revoke();
    let id = connection.post(PutPieces::new(&key, words()));
    let done = next(&mut connection);
    let revoked = Err(TransferError::Refused(Reason::Revoked));
    assert_eq!((done.id, done.result), (id.expect("accepted"), revoked));
    assert_eq!(done.into_pieces().len() as u64, MANY);
    owner.done(connection);

    // There is room for one piece, which is written when the connection ends.
    let (mut connection, owner, key) = served(&plain(), table());
    let put = || Put::new(&key, 0, Region::from_vec(vec![0; 8])).signalled(false);
    let mut puts = Vec::new();
    let full = loop {
        match connection.post(put()) {
            Ok(id) => puts.push(id),
            Err(refused) => break refused.error,
        }
    };
    assert!(matches!(full, Error::Post(PostError::Full)), "{full}");
    let last = puts.pop().expect("posted");
    assert!(connection.cancel(last));
    assert_eq!(next(&mut connection).id, last);
    let id = connection.post(PutPieces::new(&key, words()));
    let end = Instant::now() + PATIENCE;
    while connection.in_flight() as u64 >= MANY {
        assert!(Instant::now() < end, "{} to go", connection.in_flight());
        // Takes no completion.
        let announced = connection.announced(Some(PATIENCE / 6000));
        assert_eq!(announced.expect("connected"), Waited::TimedOut);
    }
    owner.stops.store(true, Ordering::Relaxed);
    owner.thread.join().expect("no panic");
    connection.announced(Some(PATIENCE)).expect_err("closed");
    let done = next(&mut connection);
    let gone = CloseReason::Peer(Reason::GoingAway);
    assert_eq!(done.id, id.expect("accepted"));
    assert_eq!(done.result, Err(TransferError::Closed(gone)));
    assert_eq!(done.into_pieces().len() as u64, MANY);
}
