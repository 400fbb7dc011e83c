//! Tests that operations on remote memory between two connections have the right results.
#![allow(non_snake_case)]

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::thread::JoinHandle;
use std::time::Duration;
use zerolane::failure::{CloseReason, PostError, Reason, Refused, TransferError};
use zerolane::memory::Memory;
use zerolane::options::{LaneChoice, Profiles};
use zerolane::request::{
    Fetch, Get, GetPieces, Immediate, MAX_INLINE, Message, Put, PutInline, PutPieces,
    ReceiveMessage, WorkKind,
};
use zerolane::{
    Completion, CompletionQueue, Connection, Endpoint, Error, ExportedRegion, FetchOp, Options,
    Region, RegionKey, Rights, Security,
};

fn content(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed)
        .collect()
}

fn region(bytes: &[u8]) -> Region {
    let mut region = Region::anonymous(bytes.len()).unwrap();
    region.copy_from_slice(bytes);
    region
}

/// An owner of memory that serves until its peer closes.
struct Owner {
    memory: ExportedRegion,
    thread: JoinHandle<Connection>,
}

thread_local! {
    /// Whether exported memory can be mapped by the peer.
    static MEMFD: Cell<bool> = const { Cell::new(false) };
}

/// Memory to be exported.
fn memory(len: usize) -> ExportedRegion {
    let region = match MEMFD.get() {
        true => Region::memfd(len),
        false => Region::anonymous(len),
    };
    ExportedRegion::new(region.unwrap()).unwrap()
}

/// Runs `test` in shared memory, with exported memory that the peer maps.
fn mapped(test: impl FnOnce(&Options)) {
    MEMFD.set(true);
    test(&shared());
    MEMFD.set(false);
}

/// Connects to an owner of `len` bytes, exported as "m" with `rights`.
fn pair(len: usize, rights: Rights, options: &Options) -> (Connection, Owner, RegionKey) {
    let memory = memory(len);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
    let address = endpoint.local_addr();
    let exported = memory.clone();
    let thread = std::thread::spawn(move || {
        let mut connection = endpoint.accept(None).unwrap().unwrap();
        connection.export_named("m", &exported, rights).unwrap();
        drop(exported);
        serve(&mut connection);
        connection
    });
    let mut connection = Connection::connect(address, options).unwrap();
    let key = connection.open_region("m", rights).unwrap();
    (connection, Owner { memory, thread }, key)
}

fn serve(connection: &mut Connection) {
    while connection.wait(None).is_ok() {}
}

impl Owner {
    fn holds(&self, offset: usize, bytes: &[u8]) -> bool {
        let mut there = vec![0; bytes.len()];
        self.memory.read(offset, &mut there);
        there == bytes
    }

    fn done(self, connection: Connection) -> ExportedRegion {
        connection.close().unwrap();
        drop(self.thread.join().unwrap());
        self.memory
    }
}

fn next(connection: &mut Connection) -> Completion {
    let completion = connection
        .wait(Some(Duration::from_secs(20)))
        .unwrap()
        .got();
    completion.expect("a completion in time")
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Reason {
    match result {
        Err(Error::Transfer(TransferError::Refused(reason))) => reason,
        other => panic!("{other:?}"),
    }
}

fn classic() -> Options {
    Options::default().with(|it| it.profiles = Profiles::only(zerolane::options::Profile::Classic))
}

fn shared() -> Options {
    Options::default().with(|it| it.lane.choice = LaneChoice::SharedMemory)
}

fn plain() -> Options {
    Options::default().with(|it| it.security = Security::plain())
}

#[test]
fn put_get__any_length_and_alignment() {
    [
        Options::default(),
        shared(),
        classic(),
        Options::default().with(|it| {
            it.datagrams.checksum = true;
            it.datagrams.gso = false;
        }),
        plain(),
        plain().with(|it| {
            it.datagrams.checksum = true;
            it.datagrams.gso = false;
        }),
        plain().with(|it| it.datagrams.gro = false),
        Options::default().with(|it| it.datagrams.gro = false),
    ]
    .iter()
    .for_each(put_get);
    mapped(put_get);
}

fn put_get(options: &Options) {
    let (mut connection, owner, key) = pair(300_003, Rights::ALL, options);
    for (seed, (offset, len)) in [
        (0, 0),
        (1, 1),
        (7, 8),
        (8, 8),
        (13, 300),
        // The longest put of one datagram, and one byte more, encrypted and plain.
        (64, 1_168),
        (63, 1_169),
        (65, 1_192),
        (64, 1_193),
        (3, 9_000),
        (1, 300_001),
        (300_003, 0),
        (299_999, 4),
        (300_002, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = content(seed as u8, len);
        connection.put(&key, offset, &bytes).unwrap();
        assert!(
            owner.holds(offset as usize, &bytes),
            "{len} bytes at {offset}"
        );
        let mut back = vec![0; len];
        connection.get(&key, offset, &mut back).unwrap();
        assert!(back == bytes, "{len} bytes from {offset}");
    }
    let memory = owner.done(connection);
    assert_eq!(memory.revoke().unwrap().len(), 300_003);
}

#[test]
fn fetch_ops__atomic_with_this_programs_own() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(fetch_ops);
    mapped(fetch_ops);
}

fn fetch_ops(options: &Options) {
    let (mut connection, owner, key) = pair(64, Rights::ATOMIC, options);
    let word = owner.memory.clone();
    let local = std::thread::spawn(move || {
        for _ in 0..10_000 {
            word.word(8).fetch_add(1, Ordering::Relaxed);
        }
    });
    for _ in 0..500 {
        connection.fetch_add(&key, 8, 2).unwrap();
    }
    local.join().unwrap();
    assert_eq!(connection.fetch_clear(&key, 8).unwrap(), 11_000);
    assert_eq!(connection.swap(&key, 8, 5).unwrap(), 0);
    assert_eq!(connection.compare_and_swap(&key, 8, 4, 9).unwrap(), 5);
    assert_eq!(connection.compare_and_swap(&key, 8, 5, 9).unwrap(), 5);
    assert_eq!(connection.fetch_op(&key, 8, FetchOp::Decrement).unwrap(), 9);
    assert_eq!(connection.fetch_op(&key, 8, FetchOp::Increment).unwrap(), 8);
    assert_eq!(owner.memory.word(8).load(Ordering::Acquire), 9);
    owner.done(connection);
}

#[test]
fn fetch_op__every_kind_on_both_sizes() {
    [Options::default(), classic()].iter().for_each(every_kind);
    mapped(every_kind);
}

fn every_kind(options: &Options) {
    let (mut connection, owner, key) = pair(64, Rights::ALL, options);
    let wide = [
        (FetchOp::Add(u64::MAX), 0),
        (FetchOp::And(0b1101), u64::MAX),
        (FetchOp::Or(0b10), 0b1101),
        (FetchOp::Xor(0b110), 0b1111),
        (FetchOp::Min(8), 9),
        (FetchOp::Max(u64::MAX), 8),
        (FetchOp::Swap(3), u64::MAX),
        (FetchOp::Min(4), 3),
    ];
    for (op, before) in wide {
        assert_eq!(connection.fetch_op(&key, 8, op).unwrap(), before, "{op:?}");
        owner.memory.fetch_op(24, op);
        assert_eq!(
            owner.memory.fetch_op(8, FetchOp::Or(0u64)),
            owner.memory.fetch_op(24, FetchOp::Or(0u64))
        );
    }
    let compare = |expected| FetchOp::CompareAndSwap { expected, new: 6 };
    for at in [32, 36] {
        let narrow = [
            (FetchOp::Decrement, 0),
            (FetchOp::Increment, u32::MAX),
            (FetchOp::Add(5), 0),
            (compare(4), 5),
            (compare(5), 5),
            (FetchOp::And(3), 6),
            (FetchOp::Or(8), 2),
            (FetchOp::Xor(3), 10),
            (FetchOp::Min(u32::MAX), 9),
            (FetchOp::Max(u32::MAX), 9),
            (FetchOp::Swap(1), u32::MAX),
            (FetchOp::Clear, 1),
        ];
        for (op, before) in narrow {
            let fetched = connection.fetch_op_u32(&key, at, op).unwrap();
            assert_eq!(fetched, before, "{op:?}");
        }
        let posted = connection.post(Fetch::new_u32(&key, at, FetchOp::Swap(7)));
        let completion = next(&mut connection);
        assert_eq!(
            (completion.id, completion.before()),
            (posted.unwrap(), Some(0))
        );
    }
    let misaligned = connection.fetch_op_u32(&key, 2, FetchOp::Increment);
    assert!(matches!(
        misaligned,
        Err(Error::Post(PostError::Misaligned))
    ));
    let memory = owner.done(connection);
    let sevens = u64::from_ne_bytes([7u32, 7].map(u32::to_ne_bytes).concat().try_into().unwrap());
    assert_eq!(memory.word(32).load(Ordering::SeqCst), sevens);
    assert_eq!(memory.word(40).load(Ordering::SeqCst), 0);
}

#[test]
fn fetch_op__of_32_bits_at_the_end_of_a_region_needs_the_8_bytes() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(at_the_end);
    mapped(at_the_end);
}

fn at_the_end(options: &Options) {
    let (mut connection, owner, key) = pair(44, Rights::ALL, options);
    connection.put(&key, 0, &[1; 44]).unwrap();
    let mut bytes = key.to_bytes();
    bytes[16] = 1;
    // It claims a longer region.
    let forged = RegionKey::from_bytes(bytes).unwrap();
    let clear =
        |connection: &mut Connection, key, at| connection.fetch_op_u32(key, at, FetchOp::Clear);
    assert_eq!(clear(&mut connection, &key, 36).unwrap(), 0x0101_0101);
    // In the region, but half of its 8 bytes are not.
    assert_eq!(
        refused(clear(&mut connection, &key, 40)),
        Reason::OutOfBounds
    );
    for at in [40, 44, 48, 4096, 1 << 40] {
        let outside = clear(&mut connection, &forged, at);
        assert_eq!(refused(outside), Reason::OutOfBounds, "{at}");
    }
    for at in [44, u64::MAX - 3] {
        let outside = clear(&mut connection, &key, at);
        let outside = matches!(outside, Err(Error::Post(PostError::OutOfBounds)));
        assert!(outside, "{at}");
    }
    let mut there = [0; 44];
    connection.get(&key, 0, &mut there).unwrap();
    assert!(there[..36] == [1; 36] && there[36..40] == [0; 4] && there[40..] == [1; 4]);
    owner.done(connection);
}

#[test]
fn compare_and_swap__of_32_bits_leaves_the_half_that_others_write() {
    [Options::default(), shared()]
        .iter()
        .for_each(beside_a_writer);
    mapped(beside_a_writer);
}

fn beside_a_writer(options: &Options) {
    const SWAPS: u32 = 300;
    let (mut connection, owner, key) = pair(64, Rights::ALL, options);
    let over = Arc::new(AtomicBool::new(false));
    let (memory, ended) = (owner.memory.clone(), Arc::clone(&over));
    let writing = std::thread::spawn(move || {
        let mut count = 0u32;
        while !ended.load(Ordering::Relaxed) {
            count = count.wrapping_add(1);
            memory.write(8, &count.to_ne_bytes());
            let mut back = [0; 4];
            memory.read(8, &mut back);
            assert_eq!(
                u32::from_ne_bytes(back),
                count,
                "a swap of the other half undid it"
            );
        }
        count
    });
    for n in 0..SWAPS {
        let swap = |expected| FetchOp::CompareAndSwap {
            expected,
            new: n + 1,
        };
        assert_eq!(connection.fetch_op_u32(&key, 12, swap(n + 7)).unwrap(), n);
        assert_eq!(connection.fetch_op_u32(&key, 12, swap(n)).unwrap(), n);
    }
    over.store(true, Ordering::Relaxed);
    let count = writing.join().unwrap();
    let memory = owner.done(connection);
    let mut halves = [0; 8];
    memory.read(8, &mut halves);
    assert!(halves[..4] == count.to_ne_bytes() && halves[4..] == SWAPS.to_ne_bytes());
}

#[test]
fn fetch_add__of_many_peers_adds_up() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(fetch_add);
    mapped(fetch_add);
}

fn fetch_add(options: &Options) {
    let memory = memory(8);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
    let address = endpoint.local_addr();
    let peers: Vec<_> = (0..4)
        .map(|_| {
            let options = options.clone();
            std::thread::spawn(move || {
                let mut connection = Connection::connect(address, &options).unwrap();
                let key = connection.open_region("m", Rights::ATOMIC).unwrap();
                let ids: Vec<_> = (0..200)
                    .map(|_| connection.post(Fetch::new(&key, 0, FetchOp::Increment)))
                    .collect();
                let seen: Vec<u64> = ids
                    .into_iter()
                    .map(|id| {
                        let completion = next(&mut connection);
                        assert_eq!(completion.id, id.unwrap());
                        completion.before().unwrap()
                    })
                    .collect();
                connection.close().unwrap();
                seen
            })
        })
        .collect();
    let servers: Vec<_> = (0..4)
        .map(|_| {
            let mut connection = endpoint.accept(None).unwrap().unwrap();
            let memory = memory.clone();
            std::thread::spawn(move || {
                connection.export_named("m", &memory, Rights::ALL).unwrap();
                serve(&mut connection);
            })
        })
        .collect();
    let mut seen: Vec<u64> = peers
        .into_iter()
        .flat_map(|peer| peer.join().unwrap())
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..800), "every value was seen once");
    servers
        .into_iter()
        .for_each(|server| server.join().unwrap());
    assert_eq!(memory.word(0).load(Ordering::Relaxed), 800);
}

#[test]
fn post__signalled_or_not_inline_or_owned() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(post);
    mapped(post);
}

fn post(options: &Options) {
    let (mut connection, owner, key) = pair(100_000, Rights::ALL, options);
    let first = connection
        .post(PutInline::new(&key, 0, content(1, 64)))
        .unwrap();
    connection
        .post(PutInline::new(&key, 64, content(2, 64)).signalled(false))
        .unwrap();
    connection
        .post(Put::new(&key, 128, region(&content(3, 500))).signalled(false))
        .unwrap();
    let shared = region(&content(4, 70_000)).share();
    let long = connection
        .post(Put::new(&key, 1_000, shared.clone()))
        .unwrap();
    let last = connection
        .post(Put::new(&key, 90_000, region(&content(5, 8))))
        .unwrap();
    let completions: Vec<Completion> = (0..3).map(|_| next(&mut connection)).collect();
    let ids: Vec<_> = completions.iter().map(|it| it.id).collect();
    // The long one overlaps with those before and after it.
    assert!([first, long, last].iter().all(|id| ids.contains(id)));
    assert!(
        completions
            .iter()
            .all(|it| it.kind() == WorkKind::Put && it.result.is_ok())
    );
    let of = |id| completions.iter().find(|it| it.id == id).unwrap();
    assert_eq!(of(long).result, Ok(70_000));
    let sent = of(last).memory().and_then(Memory::as_slice);
    assert_eq!(sent, Some(&content(5, 8)[..]));
    for (offset, seed, len) in [
        (0, 1, 64),
        (64, 2, 64),
        (128, 3, 500),
        (1_000, 4, 70_000),
        (90_000, 5, 8),
    ] {
        assert!(owner.holds(offset, &content(seed, len)), "at {offset}");
    }
    assert_eq!(connection.in_flight(), 0);
    let too_long = connection.post(PutInline::new(&key, 0, &[0; MAX_INLINE + 1]).signalled(false));
    let too_long = too_long.expect_err("refused").error;
    assert!(matches!(too_long, Error::NotInline { len: 257 }));
    owner.done(connection);
}

#[test]
fn post_put_inline__many_leave_as_bursts() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(post_put_inline);
}

fn post_put_inline(options: &Options) {
    let (mut connection, owner, key) = pair(64 * 5_000, Rights::ALL, options);
    let before = connection.account();
    let mut posted = 0u64;
    while posted < 5_000 {
        let bytes = content(posted as u8, 64);
        let put = PutInline::new(&key, 64 * posted, &bytes).signalled(posted == 4_999);
        match connection.post(put) {
            Ok(_) => posted += 1,
            Err(refused) => {
                assert!(
                    matches!(refused.error, Error::Post(PostError::Full)),
                    "{refused}"
                );
                assert!(connection.poll().unwrap().is_none());
            }
        }
    }
    assert_eq!(next(&mut connection).result, Ok(0));
    for n in 0..5_000 {
        assert!(owner.holds(64 * n, &content(n as u8, 64)), "{n}");
    }
    let after = connection.account();
    let calls = after.tx_data_syscalls - before.tx_data_syscalls;
    assert!(calls < 1_000, "{calls} calls for 5000 puts");
    // As many as fit share a datagram. Some of those posted while the queue was full may come one by one.
    let datagrams = after.datagrams_sent - before.datagrams_sent;
    assert!(datagrams < 1_500, "{datagrams} datagrams for 5000 puts");
    owner.done(connection);
}

/// Puts of all lengths and atomic operations, queued together: each is done once, with its bytes.
#[test]
fn small_operations__of_all_kinds_share_datagrams() {
    let with_checksums = |options: Options| options.with(|it| it.datagrams.checksum = true);
    for options in [
        Options::default(),
        shared(),
        plain(),
        with_checksums(Options::default()),
        with_checksums(plain()),
        plain().with(|it| {
            it.datagrams.gso = false;
            it.datagrams.gro = false;
        }),
    ] {
        let (mut connection, owner, key) = pair(1 << 20, Rights::ALL, &options);
        let mut places = vec![];
        let mut at = 8;
        for n in 0..600u64 {
            let len = [1, 8, 64, 64, 200, 300, 500, 1_100][n as usize * 7 % 8];
            let bytes = content(n as u8, len);
            if n % 20 == 19 {
                connection
                    .post(Fetch::new(&key, 0, FetchOp::Add(1)))
                    .unwrap();
            }
            connection.post(Put::new(&key, at, region(&bytes))).unwrap();
            places.push((at as usize, bytes));
            at += len as u64 + n % 3;
        }
        for _ in 0..630 {
            assert!(next(&mut connection).result.is_ok());
        }
        let datagrams = connection.account().datagrams_sent;
        assert!(datagrams < 600, "{datagrams} datagrams");
        for (at, bytes) in places {
            assert!(owner.holds(at, &bytes), "{at}");
        }
        assert!(owner.holds(0, &30u64.to_ne_bytes()));
        owner.done(connection);
    }
}

#[test]
fn vectored__gathers_and_scatters() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(vectored);
    mapped(vectored);
}

fn vectored(options: &Options) {
    let (mut connection, owner, key) = pair(100_000, Rights::ALL, options);
    let pieces: Vec<(u64, Memory)> = vec![
        (5, region(&content(1, 10)).into()),
        (1_000, region(&content(2, 50_000)).into()),
        (60_000, region(&content(3, 900)).share().into()),
    ];
    let id = connection.post(PutPieces::new(&key, pieces)).unwrap();
    let completion = next(&mut connection);
    assert_eq!((completion.id, completion.result), (id, Ok(50_910)));
    let back = completion.into_pieces();
    assert_eq!(back.len(), 3);
    let places = [(5, 1, 10), (1_000, 2, 50_000), (60_000, 3, 900)];
    for (index, (offset, seed, len)) in places.into_iter().enumerate() {
        assert!(owner.holds(offset, &content(seed, len)));
        assert!(back[index].as_slice() == Some(&content(seed, len)[..]));
    }
    let into = places.map(|(offset, _, len)| (offset as u64, Region::anonymous(len).unwrap()));
    let id = connection.post(GetPieces::new(&key, into.into())).unwrap();
    let completion = next(&mut connection);
    assert_eq!((completion.id, completion.result), (id, Ok(50_910)));
    for (piece, (_, seed, len)) in completion.into_pieces().iter().zip(places) {
        assert!(piece.as_slice() == Some(&content(seed, len)[..]));
    }
    let outside = connection.post(PutPieces::new(&key, vec![(99_999, region(&[1, 2]).into())]));
    let outside = outside.expect_err("refused");
    assert!(matches!(outside.error, Error::Post(PostError::OutOfBounds)));
    assert_eq!(outside.memory.len(), 1, "all pieces come back");
    let none = connection.post(GetPieces::new(&key, vec![]));
    let none = none.expect_err("refused").error;
    assert!(matches!(none, Error::Post(PostError::NoPieces)));
    owner.done(connection);
}

#[test]
fn immediate__completes_at_the_peer_after_its_bytes() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(immediate);
    mapped(immediate);
}

fn immediate(options: &Options) {
    let memory = memory(80_000);
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
    let address = endpoint.local_addr();
    let options = options.clone();
    let peer = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &options).unwrap();
        let key = connection.open_region("m", Rights::WRITE).unwrap();
        for (n, len) in [(1u32, 8), (2, 70_000), (3, 0), (u32::MAX, 100)] {
            connection
                .put_with_immediate(&key, 0, &content(n as u8, len), n)
                .unwrap();
        }
        connection.close().unwrap();
    });
    let mut connection = endpoint.accept(None).unwrap().unwrap();
    let region = connection.export_named("m", &memory, Rights::ALL).unwrap();
    for (n, len) in [(1u32, 8), (2, 70_000), (3, 0), (u32::MAX, 100)] {
        let completion = next(&mut connection);
        let told = Immediate {
            number: n,
            region,
            length: len,
        };
        assert_eq!(
            (completion.immediate(), completion.result),
            (Some(told), Ok(len))
        );
        // The next put may be in flight by now, but not one that changes everything.
        let mut last = [0];
        memory.read(len.max(1) - 1, &mut last);
        assert!(len == 0 || last[0] == content(n as u8, len)[len - 1] || len < 70_000);
    }
    serve(&mut connection);
    peer.join().unwrap();
}

#[test]
fn message__control_and_payload() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(message);
}

fn message(options: &Options) {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
    let address = endpoint.local_addr();
    let lengths = [0, 1, 100, 5_000, 400_000];
    let options = options.clone();
    let peer = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &options).unwrap();
        for (n, len) in lengths.into_iter().enumerate() {
            let payload = content(n as u8, len);
            connection
                .send_message(&content(n as u8, n * 32), Some(&payload))
                .unwrap();
        }
        for (n, len) in lengths.into_iter().enumerate() {
            let control = content(n as u8, 5);
            let message = Message::new(&control);
            let posted = connection.post(match len {
                0 => message,
                _ => message.payload(region(&content(n as u8, len))),
            });
            posted.unwrap();
        }
        for _ in lengths {
            let completion = next(&mut connection);
            assert_eq!(
                (completion.kind(), completion.result.is_ok()),
                (WorkKind::Message, true)
            );
        }
        let too_long = connection.post(Message::new(&[0; 129]));
        assert!(matches!(
            too_long,
            Err(Refused {
                error: Error::Post(PostError::ControlTooLong),
                ..
            })
        ));
        connection.close().unwrap();
    });
    let mut connection = endpoint.accept(None).unwrap().unwrap();
    let mut buffer = vec![0; 400_000];
    for (n, len) in lengths.into_iter().enumerate() {
        let message = connection.recv_message(Some(&mut buffer)).unwrap();
        assert_eq!(&message.control[..], content(n as u8, n * 32));
        assert_eq!(message.payload, len);
        assert!(buffer[..len] == content(n as u8, len));
    }
    for len in lengths {
        let room = (len > 0).then(|| Region::anonymous(len).unwrap());
        connection
            .post(ReceiveMessage::new().payload(room))
            .unwrap();
    }
    let mut seen: Vec<Completion> = lengths.iter().map(|_| next(&mut connection)).collect();
    seen.sort_by_key(|it| it.id);
    for (n, completion) in seen.into_iter().enumerate() {
        assert_eq!(completion.control(), Some(&content(n as u8, 5)[..]));
        assert_eq!(completion.result, Ok(lengths[n]));
        let payload = completion.into_memory();
        assert_eq!(payload.is_some(), lengths[n] > 0, "{n}");
        let payload = payload.as_ref().and_then(Memory::as_slice);
        assert!(payload.unwrap_or_default() == content(n as u8, lengths[n]));
    }
    serve(&mut connection);
    peer.join().unwrap();
}

#[test]
fn message__without_a_receive_waits_and_too_large_fails_both() {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let address = endpoint.local_addr();
    let peer = std::thread::spawn(move || {
        let mut connection = Connection::connect(address, &Options::default()).unwrap();
        connection.send_message(b"first", None).unwrap();
        let large = connection.send_message(b"large", Some(&[1; 200]));
        let error = TransferError::MessageTooLarge {
            length: 200,
            room: 100,
        };
        assert!(
            matches!(large, Err(Error::Transfer(it)) if it == error),
            "{large:?}"
        );
        connection.send_message(b"last", None).unwrap();
        connection.close().unwrap();
    });
    let mut connection = endpoint.accept(None).unwrap().unwrap();
    // The owner is busy.
    let nothing = connection
        .wait(Some(Duration::from_millis(150)))
        .unwrap()
        .got();
    assert!(nothing.is_none());
    assert_eq!(
        &connection.recv_message(None).unwrap().control[..],
        b"first"
    );
    let large = connection.recv_message(Some(&mut [0; 100]));
    assert!(matches!(
        large,
        Err(Error::Transfer(TransferError::MessageTooLarge { .. }))
    ));
    assert_eq!(&connection.recv_message(None).unwrap().control[..], b"last");
    serve(&mut connection);
    peer.join().unwrap();
}

#[test]
fn refused__with_a_reason_and_the_connection_goes_on() {
    [Options::default(), plain(), shared()]
        .iter()
        .for_each(refusals);
    mapped(refusals);
}

fn refusals(options: &Options) {
    let (mut connection, owner, key) = pair(4_096, Rights::READ, options);
    // Errors that the key shows fail at once.
    let wrong = [
        connection.put(&key, 0, &[1]),
        connection.put(&key, 4_096, &[1]),
        connection.get(&key, u64::MAX, &mut [0; 2]),
        connection.fetch_op(&key, 4, FetchOp::Increment).map(drop),
    ];
    let errors = wrong.map(|result| match result {
        Err(Error::Post(error)) => error,
        other => panic!("{other:?}"),
    });
    use PostError::{Denied, Misaligned, OutOfBounds};
    assert_eq!(errors, [Denied, OutOfBounds, OutOfBounds, Misaligned]);
    // The owner refuses errors that a forged key hides.
    let mut bytes = key.to_bytes();
    bytes[7] = 7;
    bytes[16] = 1;
    let forged = RegionKey::from_bytes(bytes).unwrap();
    assert_eq!(refused(connection.put(&forged, 0, &[1])), Reason::Denied);
    assert_eq!(
        refused(connection.put(&forged, 0, &[1; 5_000])),
        Reason::Denied
    );
    assert_eq!(
        refused(connection.fetch_op(&forged, 0, FetchOp::Increment)),
        Reason::Denied
    );
    assert_eq!(
        refused(connection.get(&forged, 4_096, &mut [0])),
        Reason::OutOfBounds
    );
    assert_eq!(
        refused(connection.get(&forged, 1 << 40, &mut [0; 9_000])),
        Reason::OutOfBounds
    );
    bytes[1] ^= 0x40;
    let unknown = RegionKey::from_bytes(bytes).unwrap();
    assert_eq!(
        refused(connection.get(&unknown, 0, &mut [0])),
        Reason::Unknown
    );
    assert_eq!(
        refused(connection.open_region("none", Rights::READ)),
        Reason::Unknown
    );
    assert_eq!(
        refused(connection.open_region("m", Rights::ALL)),
        Reason::Denied
    );
    let name = connection.open_region(&"x".repeat(33), Rights::READ);
    assert!(matches!(name, Err(Error::NameLength { len: 33 })));
    let mut back = [7; 4_096];
    connection.get(&key, 0, &mut back).unwrap();
    assert!(back == [0; 4_096], "nothing was written");
    owner.done(connection);
}

#[test]
fn revoke__by_another_thread_gives_the_region_back_at_once() {
    for round in 0..20 {
        let (mut connection, owner, key) = pair(1 << 20, Rights::ALL, &Options::default());
        let writer = std::thread::spawn(move || {
            let ones = vec![1; 1 << 20];
            let mut puts = 0;
            loop {
                let len = if puts % 2 == 0 { 1 << 20 } else { 512 };
                match connection.put(&key, 0, &ones[..len]) {
                    Ok(()) => puts += 1,
                    Err(error) => break (connection, error),
                }
            }
        });
        std::thread::sleep(Duration::from_millis(3 + round));
        let Owner { memory, thread } = owner;
        // Something has landed, perhaps the middle of the first put.
        while memory.word(0).load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        // The serving thread dropped its handle after exporting.
        let mut mine = memory.revoke().expect("the last handle");
        mine.fill(2);
        let (mut connection, error) = writer.join().unwrap();
        assert!(
            matches!(
                error,
                Error::Transfer(TransferError::Refused(Reason::Revoked))
            ),
            "{error}"
        );
        let again = connection.get(&key, 0, &mut [0; 8]);
        assert_eq!(refused(again), Reason::Revoked);
        assert!(mine.iter().all(|&byte| byte == 2), "written after revoke");
        connection.close().unwrap();
        drop(thread.join().unwrap());
        assert!(mine.iter().all(|&byte| byte == 2));
    }
}

#[test]
fn revoke__on_one_connection_leaves_the_others() {
    let memory = ExportedRegion::new(Region::anonymous(64).unwrap()).unwrap();
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let address = endpoint.local_addr();
    let peer = std::thread::spawn(move || {
        let mut first = Connection::connect(address, &Options::default()).unwrap();
        let a = first.open_region("m", Rights::ALL).unwrap();
        first.put(&a, 0, b"a").unwrap();
        first.send_message(b"revoke", None).unwrap();
        first.recv_message(None).unwrap();
        assert_eq!(refused(first.put(&a, 0, b"late")), Reason::Revoked);
        let b = first.open_region("n", Rights::ALL).unwrap();
        first.put(&b, 8, b"b").unwrap();
        first.close().unwrap();
    });
    let mut connection = endpoint.accept(None).unwrap().unwrap();
    let key = connection.export_named("m", &memory, Rights::ALL).unwrap();
    connection.recv_message(None).unwrap();
    assert!(connection.revoke(&key) && !connection.revoke(&key));
    connection.export_named("n", &memory, Rights::ALL).unwrap();
    connection.send_message(b"revoked", None).unwrap();
    serve(&mut connection);
    peer.join().unwrap();
    let mut bytes = [0; 9];
    memory.read(0, &mut bytes);
    assert_eq!((bytes[0], bytes[8]), (b'a', b'b'));
}

#[test]
fn export__65536_regions_on_one_connection() {
    const REGIONS: usize = 65_536;
    const LEN: usize = 64;
    const RIGHTS: Rights = Rights::READ.with(Rights::WRITE);
    let mut rest = Region::anonymous(REGIONS * LEN).unwrap();
    let memory: Vec<ExportedRegion> = (0..REGIONS)
        .map(|_| {
            let behind = rest.split_off(LEN);
            ExportedRegion::new(std::mem::replace(&mut rest, behind)).unwrap()
        })
        .collect();
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let address = endpoint.local_addr();
    let owner = std::thread::spawn(move || {
        let mut connection = endpoint.accept(None).unwrap().unwrap();
        for (n, region) in memory.iter().enumerate() {
            region.write(0, &n.to_ne_bytes());
            let name = format!("region {n}");
            connection.export_named(&name, region, RIGHTS).unwrap();
        }
        let more = connection.export(&memory[0], Rights::ALL);
        assert!(
            matches!(more, Err(Error::Post(PostError::TooManyExports))),
            "{more:?}"
        );
        serve(&mut connection);
        memory
    });
    let mut connection = Connection::connect(address, &Options::default()).unwrap();
    while connection
        .open_region(&format!("region {}", REGIONS - 1), Rights::READ)
        .is_err()
    {
        // Not exported yet.
    }
    // A permutation of part of them: with an odd step no region occurs twice.
    let chosen: Vec<usize> = (0..500).map(|n| n * 40_503 % REGIONS).collect();
    for &n in &chosen {
        let name = format!("region {n}");
        let key = connection.open_region(&name, RIGHTS).unwrap();
        connection.put(&key, 8, &content(n as u8, LEN - 8)).unwrap();
        let mut back = [0; LEN];
        connection.get(&key, 0, &mut back).unwrap();
        assert_eq!(back[..8], n.to_ne_bytes(), "{name} is another");
        assert_eq!(back[8..], content(n as u8, LEN - 8));
        let denied = connection.fetch_add(&key, 0, 1);
        assert!(denied.is_err(), "{denied:?}");
    }
    connection.close().unwrap();
    for (n, region) in owner.join().unwrap().iter().enumerate() {
        let mut there = [0; LEN];
        region.read(0, &mut there);
        let put = match chosen.contains(&n) {
            true => content(n as u8, LEN - 8),
            false => vec![0; LEN - 8],
        };
        assert_eq!((&there[..8], &there[8..]), (&n.to_ne_bytes()[..], &put[..]));
    }
}

#[test]
fn drop__of_all_handles_keeps_the_memory_while_it_is_exported() {
    let (mut connection, owner, key) = pair(4_096, Rights::ALL, &Options::default());
    drop(owner.memory);
    connection.put(&key, 0, b"still there").unwrap();
    let mut back = [0; 11];
    connection.get(&key, 0, &mut back).unwrap();
    assert_eq!(&back, b"still there");
    connection.close().unwrap();
    drop(owner.thread.join().unwrap());
}

#[test]
fn queue__of_many_connections_full_and_waited_for() {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default()).unwrap();
    let address = endpoint.local_addr();
    let count = 60u64;
    let peers: Vec<_> = (0..3)
        .map(|_| {
            std::thread::spawn(move || {
                let mut connection = Connection::connect(address, &Options::default()).unwrap();
                for n in 0..count {
                    connection.post(Message::new(&n.to_be_bytes())).unwrap();
                }
                (0..count).for_each(|_| assert!(next(&mut connection).result.is_ok()));
                connection.close().unwrap();
            })
        })
        .collect();
    // Far fewer than will complete.
    let queue = CompletionQueue::new(8).unwrap();
    let drivers: Vec<_> = (0..3)
        .map(|tag| {
            let mut connection = endpoint.accept(None).unwrap().unwrap();
            let queue = queue.clone();
            std::thread::spawn(move || {
                connection.set_completion_queue(&queue, tag);
                for _ in 0..count {
                    connection.post(ReceiveMessage::new()).unwrap();
                }
                while connection.wait(Some(Duration::from_millis(1))).is_ok() {}
            })
        })
        .collect();
    let mut seen = [0u64; 3];
    while seen != [count; 3] {
        let (tag, completion) = queue
            .wait(Some(Duration::from_secs(20)))
            .unwrap()
            .expect("in time");
        if completion.result != Err(TransferError::Closed(CloseReason::Local)) {
            assert!(queue.len() <= 8);
            let control = completion.control().unwrap();
            let n = u64::from_be_bytes(control.try_into().unwrap());
            assert_eq!(n, seen[tag as usize], "in order, none lost");
            seen[tag as usize] += 1;
        }
    }
    assert!(queue.poll().is_none());
    let mut fds = [rustix::event::PollFd::new(
        &queue,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::event::Timespec::default();
    assert_eq!(
        rustix::event::poll(&mut fds, Some(&now)).unwrap(),
        0,
        "readable though empty"
    );
    let _ = queue.as_fd();
    peers.into_iter().for_each(|peer| peer.join().unwrap());
    drivers
        .into_iter()
        .for_each(|driver| driver.join().unwrap());
}

#[test]
fn peer__that_dies_ends_everything_once() {
    let options = Options::default().with(|it| it.times.idle = Duration::from_secs(2));
    let memory = ExportedRegion::new(Region::anonymous(1 << 20).unwrap()).unwrap();
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
    let address = endpoint.local_addr();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let peer = std::thread::spawn(move || {
        let mut connection = endpoint.accept(None).unwrap().unwrap();
        connection.export_named("m", &memory, Rights::ALL).unwrap();
        while told.try_recv() == Err(TryRecvError::Empty) {
            connection.wait(Some(Duration::from_millis(10))).unwrap();
        }
        // No longer driven, and not closed.
        connection
    });
    let mut connection = Connection::connect(address, &options).unwrap();
    let key = connection.open_region("m", Rights::ALL).unwrap();
    drop(tell);
    let silent = peer.join().unwrap();
    let mut ids = vec![
        connection.post(PutInline::new(&key, 0, &[1; 8])).unwrap(),
        connection
            .post(PutInline::new(&key, 0, &[1; 8]).signalled(false))
            .unwrap(),
        connection
            .post(Put::new(&key, 0, region(&[1; 500_000])))
            .unwrap(),
        connection
            .post(Get::new(&key, 0, Region::anonymous(8).unwrap()))
            .unwrap(),
        connection
            .post(Get::new(&key, 0, Region::anonymous(50_000).unwrap()))
            .unwrap(),
        connection
            .post(Fetch::new(&key, 0, FetchOp::Clear))
            .unwrap(),
        connection
            .post(Message::new(b"x").payload(region(&[1; 9_000])))
            .unwrap(),
        connection
            .post(ReceiveMessage::new().payload(Region::anonymous(8).unwrap()))
            .unwrap(),
    ];
    let mut over = vec![];
    while let Ok(completion) = connection.wait(None).map(zerolane::Waited::got) {
        let completion = completion.unwrap();
        let dead = TransferError::Closed(CloseReason::PeerDead);
        assert_eq!(completion.result, Err(dead));
        over.push(completion.id);
    }
    ids.sort_unstable();
    over.sort_unstable();
    assert_eq!(over, ids);
    drop(silent);
}

#[test]
fn key__survives_bytes() {
    let (connection, owner, key) = pair(4_096, Rights::READ, &Options::default());
    assert_eq!(RegionKey::from_bytes(key.to_bytes()), Some(key));
    assert_eq!(
        (key.len(), key.rights(), key.is_empty()),
        (4_096, Rights::READ, false)
    );
    owner.done(connection);
}

#[test]
fn queue__full_holds_up_completions_not_the_connection() {
    let options = Options::default();
    let mut endpoint = Endpoint::bind("127.0.0.1:0", options.clone()).unwrap();
    let address = endpoint.local_addr();
    let count = 6;
    let queue = CompletionQueue::new(2).unwrap();
    let driver = std::thread::spawn({
        let queue = queue.clone();
        move || {
            let mut connection = endpoint.accept(None).unwrap().unwrap();
            connection.set_completion_queue(&queue, 0);
            for _ in 0..count {
                connection.post(ReceiveMessage::new()).unwrap();
            }
            while connection.wait(None).is_ok() {}
        }
    });
    let mut connection = Connection::connect(address, &options).unwrap();
    // Each returns when the peer has the message, although its queue has room for two.
    (0..count).for_each(|n| connection.send_message(&[n], None).unwrap());
    connection.close().unwrap();
    for n in 0..count {
        let next = queue.wait(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(next.expect("in time").1.control(), Some(&[n][..]));
    }
    driver.join().unwrap();
}
