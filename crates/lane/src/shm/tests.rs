//! Two drivers in one thread, of which one may write into the shared memory what it likes.
#![allow(non_snake_case)]

use super::link::{Kind, MAX_RECORD, Reading};
use super::rendezvous::{self, Rendezvous};
use super::*;
use crate::{AnyLane, LaneChoice, Listener, Progress, Region, Report, Security};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use zerolane_core::{CloseReason, Delivery, Life, WorkRequest};

type End = Driver<AnyLane>;

/// Turns without progress after which a test has failed.
const PATIENCE: usize = 1 << 22;

fn options() -> Options {
    Options {
        lane: LaneChoice::SharedMemory,
        security: Security::plain(),
        ..Options::default()
    }
}

fn join(options: &Options) -> (End, End) {
    let mut listener =
        Listener::bind(([127, 0, 0, 1], 0).into(), options.clone()).expect("listening");
    let mut a = crate::connect(listener.local_addr(), options).expect("met");
    let accepted = (0..PATIENCE).find_map(|_| {
        a.turn().expect("asking");
        listener.accept(Some(Duration::ZERO)).expect("accepting")
    });
    let mut b = accepted.expect("asked");
    drive(&mut a, &mut b, |a, b| a.is_connected() && b.is_connected());
    (a, b)
}

fn drive(a: &mut End, b: &mut End, mut done: impl FnMut(&mut End, &mut End) -> bool) {
    let mut idle = 0;
    while !done(a, b) {
        let turns = [a.turn().expect("a"), b.turn().expect("b")];
        let moved = turns.contains(&Progress::Moved);
        idle = if moved { 0 } else { idle + 1 };
        assert!(idle < PATIENCE, "stuck");
    }
}

fn lane(end: &mut End) -> &mut ShmLane {
    match end.lane_mut() {
        AnyLane::SharedMemory(lane) => lane,
        AnyLane::Udp(..) | AnyLane::Ethernet(_) | AnyLane::Ip118(_) => panic!("no shared memory"),
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at * 7) as u8).collect()
}

fn region(bytes: &[u8]) -> Region {
    let mut region = Region::anonymous(bytes.len()).expect("memory");
    region.copy_from_slice(bytes);
    region
}

/// Posts a Transfer from a to b.
fn post(a: &mut End, b: &mut End, bytes: &[u8]) -> zerolane_core::TransferId {
    let place = Region::anonymous(bytes.len()).expect("memory");
    b.post_target(WorkRequest::Receive, Report::default(), place)
        .expect("posted");
    let delivery = Delivery::Interrupt;
    let send = WorkRequest::Send { delivery };
    a.post_source(send, Report::default(), region(bytes).into())
        .expect("posted")
}

fn received(b: &mut End) -> Region {
    let completion = b.next_completion().expect("received");
    completion.result.expect("whole");
    completion
        .memory
        .and_then(crate::Memory::into_region)
        .expect("exclusive")
}

/// Turns the victim until its connection is over; then every request is.
fn broken(b: &mut End, fault: RingFault) {
    for _ in 0..PATIENCE {
        b.turn().expect("no other error");
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
    assert_eq!(account.moved(crate::MoveCause::Ring), bytes.len() as u64);
    assert_eq!(account.bytes_placed, 0);
}

#[test]
fn strict__copies_nothing_however_short() {
    let strict = Options {
        strict: true,
        ..options()
    };
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
    // The grant arrives, and the record is written: b has not looked at it.
    while a.account().bytes_given < bytes.len() as u64 {
        a.turn().expect("a");
        if a.account().bytes_given == 0 {
            b.turn().expect("b");
        }
    }
    assert!(a.cancel(id));
    let memory = a.next_completion().expect("cancelled").memory;
    let mut memory = memory.and_then(crate::Memory::into_region).expect("back");
    memory.fill(0xee);
    drive(&mut a, &mut b, |_, b| b.has_completion());
    let completion = b.next_completion().expect("over");
    assert!(completion.result.is_err(), "{completion:?}");
    assert_eq!(completion.value, 0, "nothing of it arrived");
    assert_eq!(b.account().dropped_void, 1);
    assert_eq!(b.account().bytes_placed, 0);
    // The connection goes on.
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
    // What was taken cannot be more than was written.
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
        // Longer than what was written.
        64 << 8 | 1,
        // A reference of no whole run.
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
            crate::shared::store(shared.ring_out(), at, &word.to_ne_bytes());
        }
        way.produced.published.store(at + 8, Ordering::SeqCst);
        broken(&mut b, RingFault::Record);
    }
}

/// Puts another address into the references that were written from position `from` on.
fn forge(lane: &mut ShmLane, from: u64, address: u64) {
    let to = lane.link.written();
    let ring = lane.link.shared().ring_out();
    let mut at = from;
    while at < to {
        let place = |at: u64| (at % mapping::RING as u64) as usize;
        let mut word = [0; 8];
        // SAFETY: the ring is mapped; a test writes less than one, so that nothing is cut by its end.
        unsafe { crate::shared::load(ring, place(at), &mut word) };
        let word = u64::from_ne_bytes(word);
        if word & 0xff == Kind::Reference as u64 {
            let named = place(at + 8 + zerolane_wire::HEADER_LEN as u64);
            // SAFETY: as above.
            unsafe { crate::shared::store(ring, named, &address.to_ne_bytes()) };
        }
        at += link::record_len((word >> 8) as usize);
    }
}

#[test]
fn hostile__addresses_that_are_not_mapped() {
    // A granted record as it was sent, and another address in it.
    for address in [0u64, 4096, u64::MAX - 4096, 1 << 63] {
        let (mut a, mut b) = join(&options());
        post(&mut a, &mut b, &content(1 << 20));
        let written = |a: &mut End| lane(a).link.written();
        // The last that a writes is the record.
        let mut before = written(&mut a);
        while a.account().bytes_given == 0 {
            b.turn().expect("b");
            before = written(&mut a);
            a.turn().expect("a");
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
            a.turn().expect("a");
            b.turn().expect("b");
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
            b.turn().expect("no error of this end's");
        }
        assert!(matches!(b.closed(), None | Some(CloseReason::Violation)));
    }
}

/// What comes to a listener in place of memory: none, other files, memory that may become another length, another word.
#[test]
fn visitors__that_pass_something_else_are_turned_away_and_others_met() {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), options()).expect("listening");
    let at = listener.local_addr();
    let meet = || rendezvous::meet(at).expect("it listens").0;
    let unsealed = memfd_create(c"test", MFdFlags::MFD_ALLOW_SEALING).expect("memory");
    nix::unistd::ftruncate(&unsealed, mapping::SHARED as i64).expect("long");
    let null = std::fs::File::open("/dev/null").expect("there").into();
    let mut came = Vec::new();
    for passed in [unsealed, null] {
        let socket = meet();
        rendezvous::pass(&socket, &passed).expect("passed");
        came.push(socket);
    }
    for said in [&b"no memory"[..], &[0; 64], &[1]] {
        let socket = meet();
        assert_eq!(socket.send(said).expect("sent"), said.len());
        came.push(socket);
    }
    drop(meet());
    let refused = came.len() as u64 + 1;
    for _ in 0..PATIENCE {
        let accepted = listener.accept(Some(Duration::ZERO)).expect("accepting");
        assert!(accepted.is_none(), "no connection");
        if listener.counters().refused == refused {
            break;
        }
    }
    assert_eq!(listener.counters().refused, refused);
    let mut a = crate::connect(at, &options()).expect("met");
    let accepted = (0..PATIENCE).find_map(|_| {
        a.turn().expect("asking");
        listener.accept(Some(Duration::ZERO)).expect("accepting")
    });
    assert!(accepted.is_some(), "one of us");
}

#[test]
fn sleep__a_record_wakes_and_so_does_the_end_of_the_peer() {
    let (a, mut b) = join(&options());
    // Nothing there: it would sleep.
    while b.turn().expect("b") == Progress::Moved {}
    let woken = std::thread::scope(|scope| {
        let woken = scope.spawn(|| {
            let closed = |it: &End| it.closed().is_some();
            b.wait(Some(Duration::from_secs(20)), closed).expect("b");
            b.closed()
        });
        std::thread::sleep(Duration::from_millis(20));
        // Without a word, as if it had been killed.
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
    // Where it would be another user's: /proc is root's, and root's alone is not this mode.
    assert!(rendezvous::check_own(std::path::Path::new("/proc")).is_err());
    std::fs::remove_dir_all(&base).expect("ours");
}

#[test]
fn rendezvous__by_name_of_the_address_and_after_a_dead_one() {
    let base = std::env::temp_dir().join(format!("zl-meet-{}", std::process::id()));
    std::fs::create_dir_all(&base).expect("made");
    let at = |text: &str| text.parse().expect("an address");
    let meets = |address: &str| rendezvous::meet_in(&base, at(address)).map(drop);
    let listens = |address: &str| Rendezvous::listen_in(&base, at(address));
    assert_eq!(meets("127.0.0.1:9"), Err(NoSharedMemory::NoListener));
    let one = listens("127.0.0.1:9").expect("free");
    assert_eq!(meets("127.0.0.1:9"), Ok(()));
    assert_eq!(meets("127.0.0.1:10"), Err(NoSharedMemory::NoListener));
    assert_eq!(meets("127.0.0.2:9"), Err(NoSharedMemory::NoListener));
    assert!(listens("127.0.0.1:9").is_err(), "it lives");
    let any = listens("0.0.0.0:9").expect("free");
    assert_eq!(meets("127.0.0.2:9"), Ok(()), "any includes it");
    assert_eq!(meets("[::1]:9"), Err(NoSharedMemory::NoListener));
    drop(any);
    assert_eq!(meets("127.0.0.2:9"), Err(NoSharedMemory::NoListener));
    // A process that ended without a word leaves its name.
    one.abandon();
    assert_eq!(meets("127.0.0.1:9"), Err(NoSharedMemory::NoListener));
    let again = listens("127.0.0.1:9").expect("a dead one's");
    assert_eq!(meets("127.0.0.1:9"), Ok(()));
    drop(again);
    assert_eq!(std::fs::read_dir(&base).expect("there").count(), 0);
    std::fs::remove_dir(&base).expect("empty");
}

#[test]
fn connect__forced_and_impossible_is_said_in_words() {
    let nobody = ([127, 0, 0, 1], 9).into();
    let refused = crate::connect(nobody, &options()).expect_err("nobody listens");
    assert!(
        refused.to_string().contains("nothing of this user listens"),
        "{refused}"
    );
    let elsewhere = ([192, 0, 2, 1], 9).into();
    let refused = crate::connect(elsewhere, &options()).expect_err("another host");
    assert!(
        refused
            .to_string()
            .contains("none of this network namespace"),
        "{refused}"
    );
    let best = Options {
        lane: LaneChoice::Best,
        ..options()
    };
    let driver = crate::connect(nobody, &best).expect("UDP");
    let account = driver.account();
    assert_eq!(account.lane, LaneKind::Udp);
    assert_eq!(account.no_shared_memory, Some(NoSharedMemory::NoListener));
    let cipher = Options {
        security: Security {
            cipher: Some(zerolane_handshake::Cipher::Aes128Gcm),
            ..Security::default()
        },
        ..best
    };
    let driver = crate::connect(nobody, &cipher).expect("UDP");
    let why = driver.account().no_shared_memory;
    assert_eq!(why, Some(NoSharedMemory::Cipher));
}

#[test]
fn listen__for_shared_memory_alone_hears_nobody_by_udp() {
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), options()).expect("listening");
    let udp = Options {
        lane: LaneChoice::Udp,
        ..options()
    };
    let mut a = crate::connect(listener.local_addr(), &udp).expect("a socket");
    a.turn().expect("asking");
    let heard = (0..PATIENCE).find_map(|_| match listener.try_accept().expect("read") {
        crate::Accept::Nothing => None,
        other => Some(other),
    });
    assert!(matches!(heard, Some(crate::Accept::Stranger)), "{heard:?}");
    assert_eq!(listener.counters().refused, 1);
}

#[test]
fn reference__to_what_may_not_be_read_any_more_is_lost_and_sent_again_through_the_ring() {
    let (mut a, mut b) = join(&options());
    let bytes = content(1 << 20);
    post(&mut a, &mut b, &bytes);
    while a.account().bytes_given == 0 {
        a.turn().expect("a");
        if a.account().bytes_given == 0 {
            b.turn().expect("b");
        }
    }
    // As where the peer became undumpable meanwhile.
    lane(&mut b).link.stop_reading();
    assert!(matches!(lane(&mut b).link.reading, Reading::Refused));
    drive(&mut a, &mut b, |_, b| b.has_completion());
    assert!(received(&mut b)[..] == bytes[..], "content");
    assert_eq!(
        b.account().moved(crate::MoveCause::Ring),
        bytes.len() as u64
    );
}

#[test]
fn look__says_what_each_end_may_read() {
    for lane in [LaneChoice::Best, LaneChoice::SharedMemory] {
        let options = Options { lane, ..options() };
        let any = ([127, 0, 0, 1], 0).into();
        let mut listener = Listener::bind(any, options.clone()).expect("listening");
        let at = listener.local_addr();
        // Nobody accepts.
        let silent = look(at, &options).expect("it listens");
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
            let found = look(at, &options);
            over.store(true, Ordering::Relaxed);
            found
        });
        let readable = Some(true);
        let (reads, is_read) = (readable, readable);
        assert_eq!(found, Ok(Reach { reads, is_read }), "the same process");
    }
    let udp = Listener::bind(([127, 0, 0, 1], 0).into(), Options::default()).expect("listening");
    let found = look(udp.local_addr(), &options());
    assert_eq!(found, Err(NoSharedMemory::NoListener));
}
