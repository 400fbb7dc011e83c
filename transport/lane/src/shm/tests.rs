//! Tests that two drivers in one thread share memory, and survive an end that writes anything into it.
#![allow(non_snake_case)]

use super::link::{Kind, MAX_RECORD, Reading};
use super::rendezvous::{self, Rendezvous};
use super::*;
use crate::address::LaneChoice;
use crate::any::AnyLane;
use crate::driver::{Driver, OnWake, Progress, Report, Step};
use crate::listener::Listener;
use crate::memory::shared::Bounds;
use crate::memory::{ExportedRegion, Mapping, Region};
use crate::seal::Security;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use zerolane_core::ExportAs;
use zerolane_core::{CloseReason, Delivery, Life, WorkFlags, WorkRequest};

pub(super) type End = Driver<AnyLane>;

/// Turns without progress after which a test fails.
pub(super) const PATIENCE: usize = 1 << 22;

pub(super) fn options() -> Options {
    Options::default().with(|it| {
        it.lane.choice = LaneChoice::SharedMemory;
        it.security = Security::plain();
    })
}

pub(super) fn join(options: &Options) -> (End, End) {
    let mut listener =
        Listener::bind(([127, 0, 0, 1], 0).into(), options.clone()).expect("listening");
    let mut a = crate::any::connect(listener.local_addr(), options).expect("met");
    let accepted = (0..PATIENCE).find_map(|_| {
        a.turn(Step::Whole).expect("asking");
        listener.accept(Some(Duration::ZERO)).expect("accepting")
    });
    let mut b = accepted.expect("asked");
    drive(&mut a, &mut b, |a, b| a.is_connected() && b.is_connected());
    (a, b)
}

pub(super) fn drive(a: &mut End, b: &mut End, mut done: impl FnMut(&mut End, &mut End) -> bool) {
    let mut idle = 0;
    while !done(a, b) {
        let turns = [
            a.turn(Step::Whole).expect("a"),
            b.turn(Step::Whole).expect("b"),
        ];
        let moved = turns.contains(&Progress::Moved);
        idle = if moved { 0 } else { idle + 1 };
        assert!(idle < PATIENCE, "stuck");
    }
}

fn lane(end: &mut End) -> &mut ShmLane {
    match end.lane_mut() {
        AnyLane::SharedMemory(lane, _) => lane,
        AnyLane::Datagram(..) => panic!("no shared memory"),
    }
}

pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at * 7) as u8).collect()
}

pub(super) fn region(bytes: &[u8]) -> Region {
    let mut region = Region::anonymous(bytes.len()).expect("memory");
    region.copy_from_slice(bytes);
    region
}

/// Posts a Transfer from a to b.
pub(super) fn post(a: &mut End, b: &mut End, bytes: &[u8]) -> zerolane_core::TransferId {
    let place = Region::anonymous(bytes.len()).expect("memory");
    b.post_target(WorkRequest::Receive, Report::default(), place)
        .expect("posted");
    let delivery = Delivery::Interrupt;
    let send = WorkRequest::Send { delivery };
    a.post_source(send, Report::default(), region(bytes).into())
        .expect("posted")
}

pub(super) fn received(b: &mut End) -> Region {
    let completion = b.next_completion().expect("received");
    completion.result.expect("whole");
    completion
        .memory
        .and_then(crate::memory::Memory::into_region)
        .expect("exclusive")
}

/// Turns the victim until its connection, and every request, is over.
fn broken(b: &mut End, fault: RingFault) {
    for _ in 0..PATIENCE {
        b.turn(Step::Whole).expect("no other error");
        if b.life() == Life::Closed {
            break;
        }
    }
    assert_eq!(b.closed(), Some(CloseReason::Violation));
    assert_eq!(b.account().ring_fault, Some(fault));
    assert_eq!(b.in_flight(), 0, "each request ended");
}

#[test]
fn transfer__goes_by_reference_with_one_copy_by_the_kernel() {
    let (mut a, mut b) = join(&options());
    let bytes = content(5 << 20);
    post(&mut a, &mut b, &bytes);
    drive(&mut a, &mut b, |_, b| b.has_completion());
    assert!(received(&mut b)[..] == bytes[..], "content");
    let account = b.account();
    assert_eq!(account.bytes_placed, bytes.len() as u64);
    assert_eq!(
        (account.bytes_moved(), account.lane),
        (0, LaneKind::SharedMemory)
    );
}

#[test]
fn transfer__goes_through_the_ring_where_memory_cannot_be_read_and_is_counted() {
    let (mut a, mut b) = join(&options());
    lane(&mut b).link.stop_reading();
    let bytes = content(3 << 20);
    post(&mut a, &mut b, &bytes);
    drive(&mut a, &mut b, |_, b| b.has_completion());
    assert!(received(&mut b)[..] == bytes[..], "content");
    let account = b.account();
    assert_eq!(
        account.moved(crate::account::MoveCause::Ring),
        bytes.len() as u64
    );
    assert_eq!(account.bytes_placed, 0);
}

#[test]
fn strict__copies_nothing_however_short() {
    let strict = options().with(|it| it.strict = true);
    let (mut a, mut b) = join(&strict);
    for len in [1, 100, 5000, 100_000] {
        let bytes = content(len);
        post(&mut a, &mut b, &bytes);
        drive(&mut a, &mut b, |_, b| b.has_completion());
        assert!(received(&mut b)[..] == bytes[..], "content");
    }
    assert_eq!(b.account().bytes_moved(), 0);
}

#[test]
fn cancel__memory_that_comes_back_is_not_read_any_more() {
    let (mut a, mut b) = join(&options());
    let bytes = content(1 << 20);
    let id = post(&mut a, &mut b, &bytes);
    // The grant arrives, and the record is written; b has not read it.
    while a.account().bytes_sent_zerocopy < bytes.len() as u64 {
        a.turn(Step::Whole).expect("a");
        if a.account().bytes_sent_zerocopy == 0 {
            b.turn(Step::Whole).expect("b");
        }
    }
    assert!(a.cancel(id));
    let memory = a.next_completion().expect("cancelled").memory;
    let mut memory = memory
        .and_then(crate::memory::Memory::into_region)
        .expect("back");
    memory.fill(0xee);
    drive(&mut a, &mut b, |_, b| b.has_completion());
    let completion = b.next_completion().expect("over");
    assert!(completion.result.is_err(), "{completion:?}");
    assert_eq!(completion.value, 0, "nothing of it arrived");
    assert_eq!(b.account().dropped_revoked, 1);
    assert_eq!(b.account().bytes_placed, 0);
    // The connection continues.
    post(&mut a, &mut b, &bytes);
    drive(&mut a, &mut b, |_, b| b.has_completion());
    assert!(received(&mut b)[..] == bytes[..], "content");
}

#[test]
fn hostile__indices_that_cannot_be() {
    for published in [7, 1 << 20, u64::MAX, u64::MAX - 7] {
        let (mut a, mut b) = join(&options());
        let place = Region::anonymous(100).expect("memory");
        b.post_target(WorkRequest::Receive, Report::default(), place)
            .expect("posted");
        let way = lane(&mut a).link.shared().way_out();
        let now = way.produced.published.load(Ordering::SeqCst);
        way.produced
            .published
            .store(now.wrapping_add(published), Ordering::SeqCst);
        broken(&mut b, RingFault::Index);
    }
    // The bytes read cannot exceed those written.
    let (mut a, mut b) = join(&options());
    let way = lane(&mut a).link.shared().way_in();
    way.consumed.taken.store(1 << 30, Ordering::SeqCst);
    let link = &mut lane(&mut b).link;
    let filled = (0..100).find_map(|_| link.push(Kind::Datagram, &[&[0; 8000]]).err());
    assert_eq!(filled, Some(RingFault::Index));
}

#[test]
fn hostile__records_that_cannot_be() {
    let words: [u64; 7] = [
        0,
        3,
        0xff,
        (MAX_RECORD as u64 + 1) << 8 | 1,
        u64::MAX,
        // Longer than the bytes written.
        64 << 8 | 1,
        // A reference that is not a multiple of a run.
        2,
    ];
    for word in words {
        let (mut a, mut b) = join(&options());
        let shared = lane(&mut a).link.shared();
        let way = shared.way_out();
        let at = way.produced.published.load(Ordering::SeqCst);
        // SAFETY: the ring is mapped, and in bounds.
        unsafe {
            let at = (at % mapping::RING as u64) as usize;
            crate::memory::shared::store(shared.ring_out(), at, &word.to_ne_bytes());
        }
        way.produced
            .published
            .store(at + ring::ALIGN, Ordering::SeqCst);
        broken(&mut b, RingFault::Record);
    }
}

/// Overwrites the address in the references written from position `from` on.
fn forge(lane: &mut ShmLane, from: u64, address: u64) {
    let to = lane.link.written();
    let ring = lane.link.shared().ring_out();
    let mut at = from;
    while at < to {
        let place = |at: u64| (at % mapping::RING as u64) as usize;
        let mut word = [0; 8];
        // SAFETY: the ring is mapped; a test writes less than one ring, so its end splits nothing.
        unsafe { crate::memory::shared::load(ring, place(at), &mut word) };
        let word = u64::from_ne_bytes(word);
        if word & 0xff == Kind::Reference as u64 {
            let named = place(at + 8 + zerolane_wire::HEADER_LEN as u64);
            // SAFETY: as above.
            unsafe { crate::memory::shared::store(ring, named, &address.to_ne_bytes()) };
        }
        at += link::record_len((word >> 8) as usize);
    }
}

#[test]
fn hostile__addresses_that_are_not_mapped() {
    // A granted record as it was sent, with another address.
    for address in [0u64, 4096, u64::MAX - 4096, 1 << 63] {
        let (mut a, mut b) = join(&options());
        post(&mut a, &mut b, &content(1 << 20));
        let written = |a: &mut End| lane(a).link.written();
        // The record is the last that a writes.
        let mut before = written(&mut a);
        while a.account().bytes_sent_zerocopy == 0 {
            b.turn(Step::Whole).expect("b");
            before = written(&mut a);
            a.turn(Step::Whole).expect("a");
        }
        forge(lane(&mut a), before, address);
        broken(&mut b, RingFault::Address);
    }
}

#[test]
fn hostile__any_bytes_in_the_ring_end_nothing_but_the_connection() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..300 {
        let (mut a, mut b) = join(&options());
        post(&mut a, &mut b, &content(200_000));
        for _ in 0..random() % 8 {
            a.turn(Step::Whole).expect("a");
            b.turn(Step::Whole).expect("b");
        }
        let len = (random() % 300) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
        let kind = match random() % 2 {
            0 => Kind::Datagram,
            _ => Kind::Reference,
        };
        let link = &mut lane(&mut a).link;
        link.push(kind, &[&bytes]).expect("ours");
        for _ in 0..50 {
            b.turn(Step::Whole).expect("no error of this end's");
        }
        assert!(matches!(b.closed(), None | Some(CloseReason::Violation)));
    }
}

/// Messages to a listener without proper memory: none, other files, memory whose length can change, another word.
#[test]
fn visitors__that_pass_something_else_are_turned_away_and_others_met() {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), options()).expect("listening");
    let at = listener.local_addr();
    let join = || rendezvous::connect(at, None).expect("it listens").0;
    let unsealed = memfd_create(c"test", MFdFlags::MFD_ALLOW_SEALING).expect("memory");
    nix::unistd::ftruncate(&unsealed, mapping::SHARED as i64).expect("long");
    let null = std::fs::File::open("/dev/null").expect("there").into();
    let mut came = Vec::new();
    for passed in [unsealed, null] {
        let socket = join();
        rendezvous::pass_shared(&socket, &passed).expect("passed");
        came.push(socket);
    }
    for said in [&b"no memory"[..], &[0; 64], &[1]] {
        let socket = join();
        assert_eq!(socket.send(said).expect("sent"), said.len());
        came.push(socket);
    }
    drop(join());
    let refused = came.len() as u64 + 1;
    for _ in 0..PATIENCE {
        let accepted = listener.accept(Some(Duration::ZERO)).expect("accepting");
        assert!(accepted.is_none(), "no connection");
        if listener.counters().refused == refused {
            break;
        }
    }
    assert_eq!(listener.counters().refused, refused);
    let mut a = crate::any::connect(at, &options()).expect("met");
    let accepted = (0..PATIENCE).find_map(|_| {
        a.turn(Step::Whole).expect("asking");
        listener.accept(Some(Duration::ZERO)).expect("accepting")
    });
    assert!(accepted.is_some(), "one of us");
}

#[test]
fn sleep__a_record_wakes_and_so_does_the_end_of_the_peer() {
    let (a, mut b) = join(&options());
    // Nothing to do: it would sleep.
    while b.turn(Step::Whole).expect("b") == Progress::Moved {}
    let woken = std::thread::scope(|scope| {
        let woken = scope.spawn(|| {
            let closed = |it: &End| it.closed().is_some();
            b.wait(Some(Duration::from_secs(20)), OnWake::Return, closed)
                .expect("b");
            b.closed()
        });
        std::thread::sleep(Duration::from_millis(20));
        // Without a farewell, as if it had been killed.
        let mut a = std::mem::ManuallyDrop::new(a);
        lane(&mut a).link.hang_up();
        woken.join().expect("no panic")
    });
    assert_eq!(woken, Some(CloseReason::PeerDead));
}

#[test]
fn rendezvous__a_directory_that_is_not_ones_own_is_refused() {
    let base = std::env::temp_dir().join(format!("zl-own-{}", std::process::id()));
    let directory = base.join("zerolane");
    std::fs::create_dir_all(&base).expect("made");
    rendezvous::check_own(&directory).expect("made, and ours");
    rendezvous::check_own(&directory).expect("there, and ours");
    for mode in [0o755, 0o770, 0o1700, 0o500] {
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).expect("ours");
        assert!(rendezvous::check_own(&directory).is_err(), "{mode:o}");
    }
    std::fs::remove_dir(&directory).expect("empty");
    let other = base.join("other");
    rendezvous::check_own(&other).expect("ours");
    std::os::unix::fs::symlink(&other, &directory).expect("linked");
    assert!(rendezvous::check_own(&directory).is_err(), "a link");
    std::fs::remove_file(&directory).expect("there");
    std::fs::write(&directory, b"").expect("a file");
    assert!(rendezvous::check_own(&directory).is_err(), "a file");
    // A directory of another user: /proc belongs to root, and has the wrong mode even for root.
    assert!(rendezvous::check_own(std::path::Path::new("/proc")).is_err());
    std::fs::remove_dir_all(&base).expect("ours");
}

#[test]
fn rendezvous__by_name_of_the_address_and_after_a_dead_one() {
    let base = std::env::temp_dir().join(format!("zl-meet-{}", std::process::id()));
    std::fs::create_dir_all(&base).expect("made");
    let at = |text: &str| text.parse().expect("an address");
    let connects = |address: &str| rendezvous::connect_in(&base, at(address)).map(drop);
    let listens = |address: &str| Rendezvous::listen_in(&base, at(address), None);
    assert_eq!(connects("127.0.0.1:9"), Err(NoSharedMemory::NoListener));
    let one = listens("127.0.0.1:9").expect("free");
    assert_eq!(connects("127.0.0.1:9"), Ok(()));
    assert_eq!(connects("127.0.0.1:10"), Err(NoSharedMemory::NoListener));
    assert_eq!(connects("127.0.0.2:9"), Err(NoSharedMemory::NoListener));
    assert!(listens("127.0.0.1:9").is_err(), "it lives");
    let any = listens("0.0.0.0:9").expect("free");
    assert_eq!(connects("127.0.0.2:9"), Ok(()), "any includes it");
    assert_eq!(connects("[::1]:9"), Err(NoSharedMemory::NoListener));
    drop(any);
    assert_eq!(connects("127.0.0.2:9"), Err(NoSharedMemory::NoListener));
    // A process that ended without cleaning up leaves its name.
    one.abandon();
    assert_eq!(connects("127.0.0.1:9"), Err(NoSharedMemory::NoListener));
    let again = listens("127.0.0.1:9").expect("a dead one's");
    assert_eq!(connects("127.0.0.1:9"), Ok(()));
    drop(again);
    assert_eq!(std::fs::read_dir(&base).expect("there").count(), 0);
    std::fs::remove_dir(&base).expect("empty");
}

/// A listener between bind and listen refuses, as a dead one does.
#[test]
fn rendezvous__of_one_that_does_not_listen_yet_is_not_taken() {
    let base = std::env::temp_dir().join(format!("zl-slow-{}", std::process::id()));
    std::fs::create_dir_all(&base).expect("made");
    let address = ([127, 0, 0, 1], 9).into();
    let first = Rendezvous::listen_in(&base, address, None).expect("free");
    let path = first.path().to_owned();
    drop(first);
    let held = rendezvous::lock(&base).expect("free");
    let slow = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
    let slow = slow.expect("a socket");
    let at = socket2::SockAddr::unix(&path).expect("short");
    slow.bind(&at).expect("free");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| Rendezvous::listen_in(&base, address, None).map(drop));
        // Enough time to take it, if it were not locked.
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(!other.is_finished(), "it took the name");
        }
        slow.listen(1).expect("bound");
        held.unlock().expect("held");
        let refused = other.join().expect("no panic").expect_err("it lives");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    });
    let met = rendezvous::connect_in(&base, address).map(drop);
    assert_eq!(met, Ok(()));
    drop(slow);
    std::fs::remove_dir_all(&base).expect("ours");
}

#[test]
fn rendezvous__that_many_want_at_once_is_one_s() {
    let base = std::env::temp_dir().join(format!("zl-many-{}", std::process::id()));
    std::fs::create_dir_all(&base).expect("made");
    let address = ([127, 0, 0, 1], 9).into();
    for _ in 0..20 {
        let dead = Rendezvous::listen_in(&base, address, None).expect("free");
        dead.abandon();
        let listening = std::thread::scope(|scope| {
            let listen = || scope.spawn(|| Rendezvous::listen_in(&base, address, None));
            let all = [(); 4].map(|()| listen());
            all.map(|it| it.join().expect("no panic").ok())
        });
        assert_eq!(listening.iter().flatten().count(), 1);
        assert_eq!(rendezvous::connect_in(&base, address).map(drop), Ok(()));
    }
    std::fs::remove_dir_all(&base).expect("ours");
}

/// As on hosts that take over each other's addresses (keepalived): any address can be bound.
#[test]
fn connect__to_a_remote_address_that_can_be_bound_is_not_here() {
    let Some(hosts) = crate::datagram::ethernet::tests::hosts(1500) else {
        return;
    };
    let (host, elsewhere) = (hosts.a(), hosts.b().ipv4());
    crate::datagram::ethernet::tests::inside(host, || {
        std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").expect("permitted");
        let bound = std::net::UdpSocket::bind((elsewhere, 0));
        bound.expect("any address can be bound");
        // A port for which the other host's could be mistaken.
        let any = Listener::bind(([0, 0, 0, 0], 0).into(), options()).expect("listening");
        let port = any.local_addr().port();
        let refused = rendezvous::connect((elsewhere, port).into(), None).map(drop);
        assert_eq!(refused, Err(NoSharedMemory::NotLocal));
        let met = rendezvous::connect((host.ipv4(), port).into(), None).map(drop);
        assert_eq!(met, Ok(()));
    });
}

#[test]
fn connect__forced_and_impossible_is_said_in_words() {
    let nobody = ([127, 0, 0, 1], 9).into();
    let refused = crate::any::connect(nobody, &options()).expect_err("nobody listens");
    assert!(
        refused.to_string().contains("no listener of this user"),
        "{refused}"
    );
    let elsewhere = ([192, 0, 2, 1], 9).into();
    let refused = crate::any::connect(elsewhere, &options()).expect_err("another host");
    assert!(
        refused
            .to_string()
            .contains("does not belong to this network namespace"),
        "{refused}"
    );
    let best = options().with(|it| it.lane.choice = LaneChoice::Best);
    let driver = crate::any::connect(nobody, &best).expect("UDP");
    let account = driver.account();
    assert_eq!(account.lane, LaneKind::Udp);
    assert_eq!(account.no_shared_memory, Some(NoSharedMemory::NoListener));
    let cipher = best.with(|it| {
        it.security = Security {
            cipher: Some(zerolane_handshake::Cipher::Aes128Gcm),
            ..Security::default()
        }
    });
    let driver = crate::any::connect(nobody, &cipher).expect("UDP");
    let why = driver.account().no_shared_memory;
    assert_eq!(why, Some(NoSharedMemory::Cipher));
}

#[test]
fn listen__for_shared_memory_alone_hears_nobody_by_udp() {
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), options()).expect("listening");
    let udp = options().with(|it| it.lane.choice = LaneChoice::Udp);
    let mut a = crate::any::connect(listener.local_addr(), &udp).expect("a socket");
    a.turn(Step::Whole).expect("asking");
    let heard = (0..PATIENCE).find_map(|_| match listener.try_accept().expect("read") {
        crate::listener::Accept::Nothing => None,
        other => Some(other),
    });
    assert!(
        matches!(heard, Some(crate::listener::Accept::Unauthenticated)),
        "{heard:?}"
    );
    assert_eq!(listener.counters().refused, 1);
}

#[test]
fn reference__to_what_may_not_be_read_any_more_is_lost_and_sent_again_through_the_ring() {
    let (mut a, mut b) = join(&options());
    let bytes = content(1 << 20);
    post(&mut a, &mut b, &bytes);
    while a.account().bytes_sent_zerocopy == 0 {
        a.turn(Step::Whole).expect("a");
        if a.account().bytes_sent_zerocopy == 0 {
            b.turn(Step::Whole).expect("b");
        }
    }
    // As if the peer had become undumpable meanwhile.
    lane(&mut b).link.stop_reading();
    assert!(matches!(lane(&mut b).link.reading, Reading::Refused));
    drive(&mut a, &mut b, |_, b| b.has_completion());
    assert!(received(&mut b)[..] == bytes[..], "content");
    assert_eq!(
        b.account().moved(crate::account::MoveCause::Ring),
        bytes.len() as u64
    );
}

#[test]
fn look__says_what_each_end_may_read() {
    for lane in [LaneChoice::Best, LaneChoice::SharedMemory] {
        let options = options().with(|it| it.lane.choice = lane);
        let any = ([127, 0, 0, 1], 0).into();
        let mut listener = Listener::bind(any, options.clone()).expect("listening");
        let at = listener.local_addr();
        // No process accepts.
        let silent = probe_shared_memory(at, &options).expect("it listens");
        assert_eq!(silent.reads.or(silent.is_read), None);
        let over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let wait = Some(Duration::from_millis(5));
                    let accepted = listener.accept(wait).expect("accepting");
                    assert!(accepted.is_none(), "it only looks");
                }
            });
            // A listener that does not run for a second gives no answer.
            let mut tries = (0..20).map(|_| probe_shared_memory(at, &options));
            let found = tries.find(|found| !matches!(found, Ok(Reach { reads: None, .. })));
            over.store(true, Ordering::Relaxed);
            found
        });
        let readable = Some(true);
        let (reads, is_read) = (readable, readable);
        assert_eq!(
            found,
            Some(Ok(Reach { reads, is_read })),
            "the same process"
        );
    }
    let udp_alone = options().with(|it| it.lane.choice = LaneChoice::Udp);
    let udp = Listener::bind(([127, 0, 0, 1], 0).into(), udp_alone).expect("listening");
    let found = probe_shared_memory(udp.local_addr(), &options());
    assert_eq!(found, Err(NoSharedMemory::NoListener));
}

/// Exports b's `memory` with `rights`; a learns of it, and may map it.
pub(super) fn export(
    a: &mut End,
    b: &mut End,
    memory: &ExportedRegion,
    rights: Rights,
) -> zerolane_core::RemotePlace {
    let region = b
        .export(memory.exporting(), rights, ExportAs::Handle)
        .expect("room");
    for _ in 0..4 {
        b.turn(Step::Whole).expect("b");
        a.turn(Step::Whole).expect("a");
    }
    region.start
}

pub(super) fn memfd(len: usize) -> ExportedRegion {
    ExportedRegion::new(Region::memfd(len).expect("memory")).expect("page-aligned")
}

pub(super) fn put(
    place: zerolane_core::RemotePlace,
    immediate: Option<u32>,
) -> WorkRequest<'static> {
    WorkRequest::Put {
        place,
        immediate,
        flags: WorkFlags::default(),
    }
}

/// The bytes of `memory` from `offset` on.
pub(super) fn read(memory: &ExportedRegion, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes);
    bytes
}

#[test]
fn region__that_is_mapped_is_accessed_without_a_turn_of_its_owner() {
    let (mut a, mut b) = join(&options());
    let memory = memfd(100_003);
    let at = export(&mut a, &mut b, &memory, Rights::ALL);
    let bytes = content(70_001);
    for offset in [0, 8, 13, 30_002] {
        let place = zerolane_core::RemotePlace {
            address: offset,
            ..at
        };
        a.post_source(put(place, None), Report::default(), region(&bytes).into())
            .expect("posted");
        let completion = a.next_completion().expect("over at once");
        assert_eq!(completion.result, Ok(70_001));
        assert_eq!(completion.memory.map(|it| it.len()), Some(70_001));
        assert!(
            read(&memory, offset as usize, bytes.len()) == bytes,
            "{offset}"
        );
        let get = WorkRequest::Get {
            place,
            flags: WorkFlags::default(),
        };
        let mut back = vec![0; bytes.len()];
        let got = a.lend_target(get, &mut back).expect("at once");
        assert_eq!(got.result, Ok(70_001));
        assert!(back == bytes, "{offset}");
    }
    let add = WorkRequest::FetchOp {
        place: zerolane_core::RemotePlace { address: 16, ..at },
        atomic: zerolane_core::Atomic {
            kind: zerolane_wire::FetchOpKind::Add,
            word: zerolane_wire::Word::U64,
            operand: 5,
            comparand: 0,
        },
        flags: WorkFlags::default(),
    };
    let before = memory.word(16).load(Ordering::SeqCst);
    assert_eq!(a.complete(add).expect("at once").value, before);
    assert_eq!(
        memory.word(16).load(Ordering::SeqCst),
        before.wrapping_add(5)
    );
    let account = a.account();
    assert_eq!(account.direct_operations, 9);
    assert_eq!(account.bytes_direct, 8 * 70_001 + 8);
}

#[test]
fn region__as_much_of_it_is_mapped_as_rights_permit() {
    use zerolane_core::TransferError::Refused;
    let (mut a, mut b) = join(&options());
    for (rights, direct) in [
        (Rights::READ, [0, 1]),
        (Rights::WRITE, [0, 0]),
        (Rights::READ.with(Rights::WRITE), [1, 1]),
        (Rights::READ.with(Rights::ATOMIC), [0, 1]),
    ] {
        let memory = memfd(4096);
        let at = export(&mut a, &mut b, &memory, rights);
        let mut count = 0;
        let get = WorkRequest::Get {
            place: at,
            flags: WorkFlags::default(),
        };
        for (request, right, expected) in [
            (put(at, None), Rights::WRITE, direct[0]),
            (get, Rights::READ, direct[1]),
        ] {
            count -= a.account().direct_operations as i64;
            let posted = match request.writes() {
                true => a
                    .post_target(request, Report::default(), region(&[0; 8]))
                    .is_ok(),
                false => a
                    .post_source(request, Report::default(), region(&[1; 8]).into())
                    .is_ok(),
            };
            assert!(posted);
            drive(&mut a, &mut b, |a, _| a.has_completion());
            let result = a.next_completion().expect("over").result;
            match rights.contains(right) {
                true => assert_eq!(result, Ok(8)),
                false => assert_eq!(result, Err(Refused(Reason::Denied))),
            }
            count += a.account().direct_operations as i64;
            assert_eq!(count, expected, "{rights:?} {right:?}");
            count = 0;
        }
    }
}

#[test]
fn region__is_accessed_atomically_only_with_that_right() {
    use zerolane_core::{Atomic, TransferError::Refused};
    let (mut a, mut b) = join(&options());
    let atomic = Atomic {
        kind: zerolane_wire::FetchOpKind::Add,
        word: zerolane_wire::Word::U64,
        operand: 5,
        comparand: 0,
    };
    let mut fetch = |rights| {
        let memory = memfd(4096);
        let place = export(&mut a, &mut b, &memory, rights);
        let direct = a.account().direct_operations;
        let flags = WorkFlags::default();
        let request = WorkRequest::FetchOp {
            place,
            atomic,
            flags,
        };
        a.post_bare(request, Report::default()).expect("room");
        drive(&mut a, &mut b, |a, _| a.has_completion());
        let result = a.next_completion().expect("over").result;
        let word = memory.word(0).load(Ordering::SeqCst);
        (result, word, a.account().direct_operations - direct)
    };
    let both = Rights::READ.with(Rights::WRITE);
    assert_eq!(fetch(both), (Err(Refused(Reason::Denied)), 0, 0));
    let result = fetch(Rights::ALL);
    assert!(
        result.0.is_ok() && (result.1, result.2) == (5, 1),
        "{result:?}"
    );
}

#[test]
fn region__of_a_number_is_the_one_that_has_it_now() {
    let (mut a, mut b) = join(&options());
    let number = zerolane_core::RegionNumber::new(9).expect("small");
    for round in 1..5u8 {
        // Only every other one can be mapped by the peer.
        let memory = match round % 2 {
            0 => memfd(4096),
            _ => ExportedRegion::new(Region::anonymous(4096).expect("memory")).expect("aligned"),
        };
        b.export(memory.exporting(), Rights::ALL, ExportAs::Number(number))
            .expect("free");
        for _ in 0..4 {
            b.turn(Step::Whole).expect("b");
            a.turn(Step::Whole).expect("a");
        }
        let direct = a.account().direct_operations;
        a.post_inline(put(number.place(16), None), Report::default(), &[round; 8])
            .expect("room");
        drive(&mut a, &mut b, |a, _| a.has_completion());
        let completion = a.next_completion().expect("over");
        completion.result.expect("placed");
        let direct = a.account().direct_operations - direct;
        assert_eq!(direct, u64::from(round % 2 == 0), "{round}");
        assert_eq!(read(&memory, 16, 8), [round; 8]);
        memory.end();
    }
}

#[test]
fn region__is_not_accessed_past_what_went_by_the_ring_before() {
    let (mut a, mut b) = join(&options());
    let memory = memfd(4096);
    let at = export(&mut a, &mut b, &memory, Rights::ALL);
    a.post_message(b"first", None, WorkFlags::default(), Report::default())
        .expect("room");
    for (number, immediate) in [(1u64, Some(7)), (2, None)] {
        a.post_inline(put(at, immediate), Report::default(), &number.to_ne_bytes())
            .expect("room");
    }
    assert_eq!(a.account().direct_operations, 0);
    b.post_message_receive(Report::default(), None)
        .expect("posted");
    let mut ended = 0;
    drive(&mut a, &mut b, |a, _| {
        ended += usize::from(a.next_completion().is_some());
        ended == 3
    });
    assert_eq!(memory.word(0).load(Ordering::SeqCst), 2);
    a.post_inline(put(at, None), Report::default(), &3u64.to_ne_bytes())
        .expect("room");
    assert_eq!(memory.word(0).load(Ordering::SeqCst), 3);
    assert_eq!(a.account().direct_operations, 1);
}

#[test]
fn region__revoked_is_its_owners_alone_whatever_a_peer_has_mapped() {
    let (mut a, mut b) = join(&options());
    let memory = memfd(8192);
    let at = export(&mut a, &mut b, &memory, Rights::ALL);
    a.post_inline(put(at, None), Report::default(), &[9; 8])
        .expect("room");
    assert_eq!(a.account().direct_operations, 1);
    // A peer that is stopped in the middle of an access, or lies, is in it without end, and has the memory mapped
    // without end.
    let link = &lane(&mut a).link;
    link.shared().own_accesses().pretend(1);
    let kept = {
        let window = &memory.exporting().0;
        let memfd = window.memfd().expect("of a memfd");
        Mapping::new(8192, libc::MAP_SHARED, Some((memfd.as_fd(), 0))).expect("mapped")
    };
    let mut own = memory.revoke().expect("the only handle");
    assert_eq!(own[..8], [9; 8]);
    own.fill(5);
    let bounds = Bounds {
        start: kept.start().as_ptr(),
        len: kept.len(),
    };
    // SAFETY: mapped, in bounds, and only accessed in this way.
    unsafe { crate::memory::shared::store(bounds, 0, &[7; 8192]) };
    assert!(own.iter().all(|it| *it == 5));
    // The owner refuses later requests.
    a.post_inline(put(at, None), Report::default(), &[9; 8])
        .expect("room");
    drive(&mut a, &mut b, |a, _| a.has_completion());
    a.next_completion()
        .expect("the first")
        .result
        .expect("done");
    drive(&mut a, &mut b, |a, _| a.has_completion());
    let revoked = zerolane_core::TransferError::Refused(Reason::Revoked);
    assert_eq!(
        a.next_completion().expect("the second").result,
        Err(revoked)
    );
    assert!(own.iter().all(|it| *it == 5));
}

#[test]
fn hostile__descriptors_that_are_not_what_was_said_are_not_mapped() {
    use crate::memory::memfd;
    use nix::fcntl::SealFlag;
    let (mut a, mut b) = join(&options());
    let sealed = SealFlag::F_SEAL_SHRINK;
    let good = || memfd::create(8192, sealed).expect("memory");
    let file = tempfile();
    let pipe = nix::unistd::pipe().expect("a pipe").0;
    let cases: Vec<(&str, OwnedFd, u64, bool)> = vec![
        (
            "unsealed",
            memfd::create(8192, SealFlag::empty()).expect("memory"),
            8192,
            true,
        ),
        ("longer", good(), 4096, true),
        ("shorter", good(), 12_288, true),
        ("of no length", good(), 0, true),
        ("of any length", good(), u64::MAX, true),
        ("a file", file, 8192, true),
        (
            "zeros",
            std::fs::File::open("/dev/zero").expect("there").into(),
            8192,
            false,
        ),
        ("a pipe", pipe, 8192, false),
        (
            "to read",
            memfd::reader(&good()).expect("sealed"),
            8192,
            true,
        ),
    ];
    let refused = cases.len() as u64;
    for (what, memory, len, writable) in cases {
        let inode = memfd::inode(memory.as_fd()).expect("open");
        say_lent(&mut a, &memory, (len, inode, writable));
        b.turn(Step::Whole).expect("b");
        assert!(!b.lane().reaches_memory(), "{what}");
    }
    // A descriptor other than the one passed, and none.
    say_lent(&mut a, &good(), (8192, 1, true));
    b.turn(Step::Whole).expect("b");
    assert_eq!(b.account().regions_not_mapped, refused + 1);
    // The connection continues, and maps memory that is right.
    let memory = good();
    let inode = memfd::inode(memory.as_fd()).expect("open");
    say_lent(&mut a, &memory, (8192, inode, true));
    b.turn(Step::Whole).expect("b");
    assert!(b.lane().reaches_memory());
    assert_eq!(b.account().regions_not_mapped, refused + 1);
    // A lease of a place that does not exist.
    let link = &mut lane(&mut a).link;
    link.push(Kind::Region, &[&[0xff; 40]]).expect("room");
    link.wake_if_asleep();
    drive(&mut a, &mut b, |_, b| b.life() == Life::Closed);
    assert_eq!(b.account().ring_fault, Some(RingFault::Record));
}

/// Number of open descriptors of this process.
fn open_descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    all.count()
}

/// Runs the otherwise ignored test `name` in a process of its own: it counts or limits the descriptors of its process.
fn alone(name: &str) {
    let name = format!("shm::tests::{name}");
    let ran = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &name, "--ignored", "--nocapture"])
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn hostile__descriptors_beyond_the_room_are_closed() {
    alone("descriptors_beyond_the_room__job");
}

#[test]
#[ignore = "counts descriptors, which other tests of this process open: see `alone`"]
fn descriptors_beyond_the_room__job() {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::os::fd::AsRawFd;
    let (ours, theirs) =
        socket2::Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a pair");
    let memory = crate::memory::memfd::create(8192, nix::fcntl::SealFlag::empty()).expect("memory");
    let before = open_descriptors();
    for count in [1, 4, 5, 30] {
        let all = vec![memory.as_raw_fd(); count];
        let said = [std::io::IoSlice::new(b"said")];
        let control = [ControlMessage::ScmRights(&all)];
        let flags = MsgFlags::empty();
        let sent = sendmsg::<()>(theirs.as_raw_fd(), &said, &control, flags, None);
        assert_eq!(sent, Ok(4));
        let mut into = [0; 8];
        let read = rendezvous::read(&ours, &mut into).expect("it came");
        assert_eq!((read.len, read.passed.len()), (4, count.min(4)));
        drop(read);
        assert_eq!(open_descriptors(), before, "of {count}");
    }
}

/// docs/reference/lanes.md: requests on memory that cannot be mapped go by the ring.
#[test]
fn descriptors__none_left_for_lent_memory_leaves_the_ring() {
    alone("no_descriptor_for_lent_memory__job");
}

#[test]
#[ignore = "limits the descriptors of its process: see `alone`"]
fn no_descriptor_for_lent_memory__job() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (mut a, mut b) = join(&options());
    let memory = memfd(8192);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("Linux has it");
    // Open descriptors stay open.
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).expect("lower");
    let at = export(&mut a, &mut b, &memory, Rights::ALL);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("as it was");
    assert_eq!(a.account().regions_not_mapped, 1);
    b.turn(Step::Whole).expect("b");
    let posted = a.post_inline(put(at, None), Report::default(), &[9; 8]);
    posted.expect("room");
    drive(&mut a, &mut b, |a, _| a.has_completion());
    let put = a.next_completion().expect("there");
    put.result.expect("by the ring");
    assert_eq!((a.closed(), a.account().direct_operations), (None, 0));
    assert_eq!(read(&memory, 0, 8), [9; 8]);
}

/// Lends `memory` with any length, inode and rights, as a malicious peer may.
fn say_lent(a: &mut End, memory: &OwnedFd, (len, inode, writable): (u64, u64, bool)) {
    let link = &mut lane(a).link;
    let number = link.shared().own_lease(3).grant(0);
    let lent = super::lend::Lent {
        handle: 0x8000_0001,
        mx: 1,
        place: 3,
        number,
        len,
        inode,
        writable,
        atomic: true,
    };
    link.pass(memory.as_fd()).expect("room");
    assert!(link.push(Kind::Region, &[&lent.emit()]).expect("room"));
    link.wake_if_asleep();
}

/// A file of 8192 bytes.
fn tempfile() -> OwnedFd {
    let path = std::env::temp_dir().join(format!("zl-lent-{}", std::process::id()));
    std::fs::write(&path, vec![0; 8192]).expect("written");
    let file = std::fs::File::options().read(true).write(true).open(&path);
    std::fs::remove_file(&path).expect("there");
    file.expect("there").into()
}
