//! Tests that two drivers in one thread survive a kernel that refuses sends, or reports that it copies nothing.
#![allow(non_snake_case)]

mod allocations;
mod arrival;
mod frames;
mod icmp;
mod paths;
mod trains;

use super::*;
use crate::account::Account;
use crate::account::{MoveCause, Zerocopy};
use crate::address::LaneChoice;
use crate::any::AnyLane;
use crate::driver::{Completion, Driver, OnWake, Progress, Report, Step};
use crate::listener::Listener;
use crate::memory::{ExportedRegion, Memory, Region, shared};
use crate::seal::Security;
use crate::socket::system::seam;
use crate::socket::system::seam::Sends;
use netlab::netns::{self, Topology};
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerolane_core::ExportAs;
use zerolane_core::{Counters, Delivery, DropReason, WorkFlags, WorkRequest};
use zerolane_wire::Rights;

type End = Driver<AnyLane>;

/// Turns without progress at either end after which a test fails. A turn that finds nothing takes microseconds, a
/// retransmission up to a second.
const PATIENCE: usize = 1 << 24;

/// Turns both ends until `done`.
fn drive(a: &mut End, b: &mut End, mut done: impl FnMut(&mut End, &mut End) -> bool) {
    let mut idle = 0;
    while !done(a, b) {
        let turns = [
            a.turn(Step::Whole).expect("a"),
            b.turn(Step::Whole).expect("b"),
        ];
        idle = if turns.contains(&Progress::Moved) {
            0
        } else {
            // The kernel's own thread may have a datagram.
            std::thread::yield_now();
            idle + 1
        };
        assert!(idle < PATIENCE, "stuck");
    }
}

/// Two ends whose time is that of this thread, which turns both: however busy the machine is, no timer expires only
/// because the thread did not run.
fn join(hosts: Option<&Topology>, options: &Options) -> (End, End) {
    join_at(hosts, address_of_b(hosts), options)
}

/// Does the same, with b at `address`.
fn join_at(hosts: Option<&Topology>, address: IpAddr, options: &Options) -> (End, End) {
    let (mut a, mut b) = join_in_real_time(hosts, address, options);
    a.count_time_of_thread();
    b.count_time_of_thread();
    (a, b)
}

fn address_of_b(hosts: Option<&Topology>) -> IpAddr {
    hosts
        .map_or(Ipv4Addr::LOCALHOST, |hosts| hosts.b().ipv4())
        .into()
}

/// Two ends by the system's clock, with b at `address`.
fn join_in_real_time(hosts: Option<&Topology>, address: IpAddr, options: &Options) -> (End, End) {
    let at_a = |work: &mut (dyn FnMut() -> End + Send)| match hosts {
        Some(hosts) => hosts.a().enter_thread(work).expect("entered"),
        None => work(),
    };
    let listen = || Listener::bind((address, 0).into(), options.clone()).expect("bound");
    let mut listener = match hosts {
        Some(hosts) => hosts.b().enter_thread(listen).expect("entered"),
        None => listen(),
    };
    let local = listener.local_addr();
    let mut a = at_a(&mut || crate::any::connect(local, options).expect("connecting"));
    let mut accept = || {
        let wait = Some(Duration::from_millis(1));
        listener.accept(wait).expect("accepting")
    };
    // A key exchange takes several messages.
    let accepted = (0..PATIENCE).find_map(|_| {
        a.turn(Step::Whole).expect("asking");
        match hosts {
            Some(hosts) => hosts.b().enter_thread(&mut accept).expect("entered"),
            None => accept(),
        }
    });
    let mut b = accepted.expect("asked");
    drive(&mut a, &mut b, |a, b| a.is_connected() && b.is_connected());
    (a, b)
}

/// The default options, for a peer on this host treated like any other.
fn sealed() -> Options {
    Options::default().with(|it| it.lane.choice = LaneChoice::Udp)
}

/// Plain mode at both ends, so that memory can be lent to the kernel as it is.
fn plain() -> Options {
    sealed().with(|it| it.security = Security::plain())
}

fn hosts(mtu: u32) -> Option<Topology> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    Some(Topology::pair("zc", mtu).expect("permitted"))
}

/// Content that depends on the position.
fn content(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 251 + at * 7 + seed) as u8)
        .collect()
}

fn region(bytes: &[u8]) -> Region {
    let mut region = Region::anonymous(bytes.len()).expect("memory");
    region.copy_from_slice(bytes);
    region
}

/// Posts one Transfer from a to b.
fn post(a: &mut End, b: &mut End, bytes: &[u8]) {
    let place = Region::anonymous(bytes.len()).expect("memory");
    b.post_target(WorkRequest::Receive, Report::default(), place)
        .expect("posted");
    let delivery = Delivery::Interrupt;
    let send = WorkRequest::Send { delivery };
    a.post_source(send, Report::default(), region(bytes).into())
        .expect("posted");
}

/// Does the same, and returns b's completion.
fn transfer(a: &mut End, b: &mut End, bytes: &[u8]) -> Option<Completion> {
    post(a, b, bytes);
    drive(a, b, |_, b| b.has_completion());
    b.next_completion()
}

fn exclusive(memory: Option<Memory>) -> Region {
    match memory {
        Some(Memory::Exclusive(region)) => region,
        _ => panic!("an exclusive region was posted"),
    }
}

fn verify(received: Option<Completion>, bytes: &[u8]) {
    let received = received.expect("received");
    assert_eq!(received.result, Ok(bytes.len() as u64));
    assert!(exclusive(received.memory)[..] == *bytes, "content");
}

/// Checks that neither end retransmitted, unless a timeout expired because the machine was busy.
fn assert_sent_once(a: &Account, b: &Account) {
    let sum = |count: fn(&Counters) -> u64| count(&a.protocol) + count(&b.protocol);
    let (resent, timeouts) = (sum(|it| it.bytes_resent), sum(|it| it.timeouts));
    assert!(resent == 0 || timeouts > 0, "{resent} bytes sent again");
}

const SIZE: usize = 3 << 20;

/// Refuses the next send that the kernel should segment, in any form.
fn refuse_segmented(errno: i32) {
    seam::refuse(Sends::Given, errno);
    seam::refuse(Sends::Segmented, errno);
}

#[test]
fn distinct__draws_again_while_the_key_is_taken() {
    let drawn = |key| Entropy {
        key,
        port: 1,
        sync: 0,
    };
    let mut keys = [7, 7, 8, 9].into_iter().map(drawn);
    let found = crate::entropy::distinct(|| Ok(keys.next().expect("one")), |key| key < 9);
    assert_eq!(found.expect("one").key, 9);
    assert!(
        crate::entropy::distinct(|| Ok(drawn(7)), |key| key == 7).is_err(),
        "it ends"
    );
}

#[test]
fn gso__refused_at_run_time_loses_nothing() {
    for (errno, options) in [
        (libc::EIO, plain()),
        (libc::EINVAL, plain()),
        (libc::EOPNOTSUPP, plain()),
        (libc::EIO, sealed()),
    ] {
        let Some(hosts) = hosts(1500) else { return };
        let (mut a, mut b) = join(Some(&hosts), &options);
        let bytes = content(SIZE, 1);
        verify(transfer(&mut a, &mut b, &bytes), &bytes);
        assert!(a.account().gso);
        refuse_segmented(errno);
        verify(
            transfer(&mut a, &mut b, &content(SIZE, 2)),
            &content(SIZE, 2),
        );
        assert_eq!(seam::refusals_left(), 0);
        let account = a.account();
        assert!(!account.gso, "and stays off: {errno}");
        assert_eq!(account.dropped_on_send, 0, "sent in the same call: {errno}");
        assert_sent_once(&account, &b.account());
    }
}

/// Control datagrams of one length that an end owes at once leave in one call: here the announcements of four
/// Transfers.
#[test]
fn control__of_one_length_leaves_together() {
    for options in [plain(), sealed()] {
        for gso in [true, false] {
            let Some(hosts) = hosts(1500) else { return };
            let options = options.clone().with(|it| it.datagrams.gso = gso);
            // A timer that expires on a busy machine adds a datagram, but not in each attempt.
            let expected = (if gso { 1 } else { 4 }, 4);
            let mut seen = (0..10).map(|_| calls_and_datagrams(&hosts, &options));
            assert!(seen.any(|it| it == expected), "{expected:?}");
        }
    }
}

/// The calls and datagrams that announce four Transfers.
fn calls_and_datagrams(hosts: &Topology, options: &Options) -> (u64, u64) {
    let (mut a, mut b) = join(Some(hosts), options);
    let bytes = content(100_000, 1);
    verify(transfer(&mut a, &mut b, &bytes), &bytes);
    let before = a.account();
    for seed in 1..5 {
        post(&mut a, &mut b, &content(bytes.len(), seed));
    }
    let _ = a.turn(Step::Whole).expect("a");
    let after = a.account();
    for seed in 1..5 {
        drive(&mut a, &mut b, |_, b| b.has_completion());
        verify(b.next_completion(), &content(bytes.len(), seed));
    }
    (
        after.tx_control_syscalls - before.tx_control_syscalls,
        after.datagrams_sent - before.datagrams_sent,
    )
}

/// Control datagrams for which the socket has no room all leave later.
#[test]
fn control__that_was_refused_leaves_later() {
    let Some(hosts) = hosts(1500) else { return };
    let timeouts = || {
        let (mut a, mut b) = join(Some(&hosts), &plain());
        seam::refuse(Sends::Together, libc::EAGAIN);
        for seed in 1..5 {
            post(&mut a, &mut b, &content(50_000, seed));
        }
        for seed in 1..5 {
            drive(&mut a, &mut b, |_, b| b.has_completion());
            verify(b.next_completion(), &content(50_000, seed));
        }
        assert_eq!(seam::refusals_left(), 0);
        assert_eq!(a.account().dropped_on_send, 0);
        a.account().protocol.timeouts
    };
    // A timeout may expire on a busy machine, but not in each attempt.
    assert!((0..10).any(|_| timeouts() == 0));
}

#[test]
fn gso__too_large_for_the_path_is_sent_again() {
    for options in [plain(), sealed()] {
        let Some(hosts) = hosts(1500) else { return };
        let (mut a, mut b) = join(Some(&hosts), &options);
        let bytes = content(SIZE, 1);
        verify(transfer(&mut a, &mut b, &bytes), &bytes);
        refuse_segmented(libc::EMSGSIZE);
        verify(
            transfer(&mut a, &mut b, &content(SIZE, 2)),
            &content(SIZE, 2),
        );
        assert_eq!(seam::refusals_left(), 0);
        let account = a.account();
        assert!(account.gso, "the offload is not to blame");
        assert_eq!(account.dropped_on_send, 1);
    }
}

#[test]
fn zerocopy__never_with_what_is_sealed() {
    let Some(hosts) = hosts(9000) else { return };
    seam::say_not_copied(true);
    let (mut a, mut b) = join(Some(&hosts), &sealed());
    for seed in 1..3 {
        let bytes = content(SIZE, seed);
        verify(transfer(&mut a, &mut b, &bytes), &bytes);
    }
    seam::say_not_copied(false);
    let account = a.account();
    assert!(account.cipher.is_some());
    assert_eq!(account.zerocopy, Zerocopy::Off);
    assert_eq!(account.tx_zerocopy_syscalls, 0);
}

#[test]
fn zerocopy__is_dropped_where_the_kernel_copies() {
    let Some(hosts) = hosts(9000) else { return };
    for (hosts, name) in [(Some(&hosts), "veth"), (None, "lo")] {
        let (mut a, mut b) = join(hosts, &plain());
        let bytes = content(SIZE, 1);
        verify(transfer(&mut a, &mut b, &bytes), &bytes);
        drive(&mut a, &mut b, |a, _| {
            a.account().zerocopy != Zerocopy::Probing
        });
        assert_eq!(a.account().zerocopy, Zerocopy::Copied, "{name}");
        assert_eq!(a.account().tx_zerocopy_syscalls, 0, "{name}");
    }
}

#[test]
fn zerocopy__off_asks_nothing() {
    let Some(hosts) = hosts(9000) else { return };
    let zerocopy = false;
    let (mut a, mut b) = join(
        Some(&hosts),
        &plain().with(|it| it.datagrams.zerocopy = zerocopy),
    );
    verify(
        transfer(&mut a, &mut b, &content(SIZE, 1)),
        &content(SIZE, 1),
    );
    assert_eq!(a.account().zerocopy, Zerocopy::Off);
}

/// Two ends whose kernel reports that it copies nothing, after the probe.
fn uncopied(hosts: &Topology) -> (End, End) {
    probe_uncopied(join(Some(hosts), &plain()))
}

fn probe_uncopied((mut a, mut b): (End, End)) -> (End, End) {
    seam::say_not_copied(true);
    verify(
        transfer(&mut a, &mut b, &content(SIZE, 1)),
        &content(SIZE, 1),
    );
    drive(&mut a, &mut b, |a, _| {
        a.account().zerocopy == Zerocopy::Used
    });
    while a.next_completion().is_none() {
        drive(&mut a, &mut b, |a, _| a.has_completion());
    }
    (a, b)
}

#[test]
fn zerocopy__memory_is_handed_back_when_the_kernel_let_go() {
    let Some(hosts) = hosts(9000) else { return };
    let (mut a, mut b) = uncopied(&hosts);
    let before = a.account().tx_zerocopy_syscalls;
    seam::hold_reports(true);
    let bytes = content(SIZE, 2);
    verify(transfer(&mut a, &mut b, &bytes), &bytes);
    assert!(a.account().tx_zerocopy_syscalls > before + 50);
    drive(&mut a, &mut b, |a, _| !a.is_sending());
    assert!(!a.has_completion(), "the kernel has its memory");
    assert_eq!(a.in_flight(), 1);
    seam::hold_reports(false);
    drive(&mut a, &mut b, |a, _| a.has_completion());
    let sent = a.next_completion().expect("over");
    assert_eq!(sent.result, Ok(SIZE as u64));
    assert!(exclusive(sent.memory)[..] == bytes[..]);
    assert_eq!(a.in_flight(), 0);
}

#[test]
fn zerocopy__beyond_what_the_kernel_may_hold_goes_with_the_copy() {
    let Some(hosts) = hosts(9000) else { return };
    let (mut a, mut b) = uncopied(&hosts);
    seam::hold_reports(true);
    let bytes = content(16 << 20, 3);
    let lent = a.account().tx_zerocopy_syscalls;
    verify(transfer(&mut a, &mut b, &bytes), &bytes);
    assert_eq!(a.account().tx_zerocopy_syscalls - lent, 256);
    seam::hold_reports(false);
    drive(&mut a, &mut b, |a, _| a.has_completion());
}

#[test]
fn zerocopy__refused_at_run_time_loses_nothing() {
    let Some(hosts) = hosts(9000) else { return };
    for (errno, state) in [
        (libc::ENOBUFS, Zerocopy::Used),
        (libc::EMSGSIZE, Zerocopy::Used),
        (libc::EFAULT, Zerocopy::Used),
        (libc::EPERM, Zerocopy::Refused),
        (libc::EOPNOTSUPP, Zerocopy::Refused),
    ] {
        let (mut a, mut b) = uncopied(&hosts);
        seam::refuse(Sends::Zerocopy, errno);
        // A send that fails with a fault is repeated once.
        seam::refuse(Sends::Zerocopy, errno);
        let bytes = content(SIZE, 4);
        verify(transfer(&mut a, &mut b, &bytes), &bytes);
        let account = a.account();
        assert_eq!(account.zerocopy, state, "{errno}");
        assert_eq!(account.dropped_on_send, 0, "{errno}");
        assert_sent_once(&account, &b.account());
        seam::take_back();
    }
}

#[test]
fn zerocopy__not_with_borrowed_memory() {
    let Some(hosts) = hosts(9000) else { return };
    // One thread for each end.
    let ends = join_in_real_time(Some(&hosts), address_of_b(Some(&hosts)), &plain());
    let (mut a, mut b) = probe_uncopied(ends);
    let before = a.account().tx_zerocopy_syscalls;
    let bytes = content(SIZE, 5);
    b.post_target(
        WorkRequest::Receive,
        Report::default(),
        Region::anonymous(SIZE).expect("memory"),
    )
    .expect("posted");
    let receiving = std::thread::spawn(move || {
        b.wait(
            Some(Duration::from_secs(20)),
            OnWake::Return,
            End::has_completion,
        )
        .expect("received");
        let completion = b.next_completion();
        b.wait(Some(Duration::from_millis(100)), OnWake::Return, |_| false)
            .expect("lingers");
        completion
    });
    let send = WorkRequest::Send {
        delivery: Delivery::Interrupt,
    };
    let sent = a.lend_source(send, &bytes).expect("connected");
    assert_eq!(sent.result, Ok(SIZE as u64));
    assert_eq!(a.account().tx_zerocopy_syscalls, before);
    verify(receiving.join().expect("no panic"), &bytes);
}

#[test]
fn zerocopy__memory_that_the_kernel_keeps_is_never_given_back() {
    let Some(hosts) = hosts(9000) else { return };
    let (mut a, mut b) = uncopied(&hosts);
    seam::hold_reports(true);
    let bytes = content(SIZE, 6);
    let mut owned = bytes.clone().into_boxed_slice();
    let start = NonNull::from(&mut owned[..]).cast();
    let alive = Arc::new(());
    let owner = Box::new((alive.clone(), owned));
    // SAFETY: the bytes lie on the heap, the owner keeps them, and nothing else has a pointer to them.
    let memory = unsafe { Region::foreign(start, SIZE, false, owner) };
    b.post_target(
        WorkRequest::Receive,
        Report::default(),
        Region::anonymous(SIZE).expect("memory"),
    )
    .expect("posted");
    a.post_source(
        WorkRequest::Send {
            delivery: Delivery::Interrupt,
        },
        Report::default(),
        memory.into(),
    )
    .expect("posted");
    drive(&mut a, &mut b, |_, b| b.has_completion());
    verify(b.next_completion(), &bytes);
    drop(a);
    assert_eq!(Arc::strong_count(&alive), 2, "still in use");
}

/// Turns after which a wait in which each turn brings something must have ended.
const BUSY_TURNS: usize = 1 << 18;

/// Waits at b while a puts something there before each of its turns, so that none is idle. Returns the number of turns.
fn wait_busy(a: &mut End, b: &mut End, timeout: Option<Duration>) -> usize {
    let memory = ExportedRegion::new(Region::anonymous(4096).expect("memory"));
    let memory = memory.expect("page-aligned");
    let theirs = b
        .export(memory.exporting(), Rights::ALL, ExportAs::Handle)
        .expect("exported");
    let quiet = WorkFlags {
        signalled: false,
        ..WorkFlags::default()
    };
    let mut turns = 0;
    let busy = |_: &End| {
        let put = WorkRequest::Put {
            place: theirs.start,
            immediate: None,
            flags: quiet,
        };
        let put = a.post_inline(put, Report::default(), &content(64, turns));
        put.expect("posted");
        a.turn(Step::Whole).expect("a");
        turns += 1;
        turns > BUSY_TURNS
    };
    b.wait(timeout, OnWake::Return, busy).expect("b");
    turns
}

#[test]
fn wait__ends_in_time_though_every_turn_brings_something() {
    let (mut a, mut b) = join(None, &sealed());
    let turns = wait_busy(&mut a, &mut b, Some(Duration::from_millis(1)));
    assert!(turns <= BUSY_TURNS, "{turns} turns");
}

#[test]
fn wait__is_woken_though_every_turn_brings_something() {
    let (mut a, mut b) = join(None, &sealed());
    b.waker().wake();
    let turns = wait_busy(&mut a, &mut b, None);
    assert!(turns <= 2, "{turns} turns");
}

#[test]
fn exported__what_missed_its_place_is_read_and_written_by_atomics() {
    // In trains, and with a header in each datagram.
    miss_exported_place(true, MoveCause::Unexpected);
    miss_exported_place(false, MoveCause::Mispredicted);
}

fn miss_exported_place(gro: bool, cause: MoveCause) {
    let Some(hosts) = hosts(1500) else { return };
    let options = plain().with(|it| it.datagrams.gro = gro);
    let (mut a, mut b) = join(Some(&hosts), &options);
    let memory = Region::anonymous(SIZE).expect("memory");
    let memory = ExportedRegion::new(memory).expect("aligned");
    let exported = b
        .export(memory.exporting(), Rights::ALL, ExportAs::Handle)
        .expect("exported");
    let put = |a: &mut End, b: &mut End, bytes: &[u8]| {
        let put = WorkRequest::Put {
            place: exported.start,
            immediate: None,
            flags: WorkFlags::default(),
        };
        a.post_source(put, Report::default(), region(bytes).into())
            .expect("posted");
        drive(a, b, |a, _| a.has_completion());
        let over = a.next_completion().expect("over");
        assert_eq!(over.result, Ok(SIZE as u64));
    };
    put(&mut a, &mut b, &content(SIZE, 1));
    let before = b.account();
    let _ = shared::seam::take();
    // A burst is lost, and the next one lands in its place.
    if gro {
        seam::refuse(Sends::Given, libc::EAGAIN);
    }
    seam::refuse(Sends::Segmented, libc::EMSGSIZE);
    let bytes = content(SIZE, 2);
    put(&mut a, &mut b, &bytes);
    let (loaded, stored) = shared::seam::take();
    assert_eq!(seam::refusals_left(), 0);
    let after = b.account();
    let moved = (after.bytes_moved() - before.bytes_moved()) as usize;
    let landed_there = (after.moved(cause) - before.moved(cause)) as usize;
    assert!(landed_there > 0, "nothing missed its place");
    assert!(
        loaded >= landed_there && stored >= moved,
        "{loaded} of {landed_there}, {stored} of {moved}"
    );
    let mut there = vec![0; SIZE];
    memory.read(0, &mut there);
    assert!(there == bytes, "content");
}

/// The child of a fork has copies of the descriptors: the parent continues with those that the child drops.
#[test]
fn drop__in_a_child_of_fork_says_nothing_to_the_peer() {
    let (a, mut b) = join(None, &sealed());
    let mut a = std::mem::ManuallyDrop::new(a);
    // SAFETY: the child drops one value and exits without running anything else. The drop takes no lock that another
    // thread of this program may hold, except the allocator's, which survives a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the value is not used afterwards, because the child ends here.
        unsafe {
            std::mem::ManuallyDrop::drop(&mut a);
            libc::_exit(0);
        }
    }
    assert!(child > 0, "forked");
    let mut status = 0;
    // SAFETY: a status that lives across the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    let mut a = std::mem::ManuallyDrop::into_inner(a);
    let bytes = content(1000, 3);
    let received = transfer(&mut a, &mut b, &bytes);
    verify(received, &bytes);
    assert!(b.closed().is_none());
}

/// Puts `bytes` into b's `memory`.
fn put_into(a: &mut End, b: &mut End, memory: &ExportedRegion, bytes: &[u8]) {
    let exported = b
        .export(memory.exporting(), Rights::ALL, ExportAs::Handle)
        .expect("exported");
    let put = WorkRequest::Put {
        place: exported.start,
        immediate: None,
        flags: WorkFlags::default(),
    };
    a.post_source(put, Report::default(), region(bytes).into())
        .expect("posted");
    drive(a, b, |a, _| a.has_completion());
    let over = a.next_completion().expect("over");
    assert_eq!(over.result, Ok(bytes.len() as u64));
}

#[test]
fn exported__sealed_payload_is_opened_where_it_lands_if_the_cipher_can() {
    for (security, out_of_place) in [
        (Security::default(), false),
        (Security::authenticated(), true),
    ] {
        let options = sealed().with(|it| it.security = security);
        let (mut a, mut b) = join(None, &options);
        let memory = Region::anonymous(SIZE).expect("memory");
        let memory = ExportedRegion::new(memory).expect("aligned");
        let bytes = content(SIZE, 3);
        put_into(&mut a, &mut b, &memory, &bytes);
        let mut there = vec![0; SIZE];
        memory.read(0, &mut there);
        assert!(there == bytes, "content");
        let account = b.account();
        let opened_out_of_place = account.moved(MoveCause::OpenedOutOfPlace);
        assert_eq!(
            opened_out_of_place > 0,
            out_of_place,
            "{opened_out_of_place} opened out of place"
        );
        assert_eq!(account.bytes_placed > 0, !out_of_place, "{account:?}");
    }
}

/// The program that owns the memory changes a word of the target all the time. Payload that therefore fails to open in
/// place is opened outside when it comes again.
#[test]
fn exported__sealed_payload_comes_through_while_its_place_is_written() {
    let (mut a, mut b) = join(None, &sealed());
    let memory = Region::anonymous(SIZE).expect("memory");
    let memory = ExportedRegion::new(memory).expect("aligned");
    let bytes = content(SIZE, 4);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                memory.word(SIZE / 2).fetch_add(1, Ordering::Relaxed);
            }
        });
        while memory.word(SIZE / 2).load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let put = || (0..8).for_each(|_| put_into(&mut a, &mut b, &memory, &bytes));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(put));
        over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let mut there = vec![0; SIZE];
    memory.read(0, &mut there);
    let word = SIZE / 2..SIZE / 2 + 8;
    let differs = |at: &usize| there[*at] != bytes[*at] && !word.contains(at);
    assert_eq!((0..SIZE).find(differs), None, "content");
    let forged = b.account().protocol.dropped(DropReason::Forged);
    assert!(forged <= 1, "{forged} times in a row");
}

/// All bytes of each stored word are equal, so a torn word would show.
#[test]
fn exported__a_sealed_get_takes_each_word_whole_while_all_are_written() {
    let (mut a, mut b) = join(None, &sealed());
    let memory = Region::anonymous(SIZE).expect("memory");
    let memory = ExportedRegion::new(memory).expect("aligned");
    let exported = a
        .export(memory.exporting(), Rights::ALL, ExportAs::Handle)
        .expect("exported");
    let over = AtomicBool::new(false);
    // Whole words are sealed where they lie, others from a copy.
    let mut get = |start: usize, len: usize| {
        let mut place = exported.start;
        place.address += start as u64;
        let get = WorkRequest::Get {
            place,
            flags: WorkFlags::default(),
        };
        let into = Region::anonymous(len).expect("memory");
        b.post_target(get, Report::default(), into).expect("posted");
        let _ = shared::seam::take();
        drive(&mut a, &mut b, |_, b| b.has_completion());
        let (copied, _) = shared::seam::take();
        let got = b.next_completion().expect("over");
        assert_eq!(got.result, Ok(len as u64));
        let got = exclusive(got.memory);
        let (words, _) = got[(8 - start % 8) % 8..].as_chunks::<8>();
        let torn = words.iter().find(|it| **it != [it[0]; 8]);
        // After an odd start, a word may lie in two trains.
        assert!(
            torn.is_none() || !start.is_multiple_of(8),
            "{len} at {start}: {torn:?}"
        );
        assert!(words[0] != [0; 8] && words[words.len() - 1] != [0; 8]);
        copied
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in (1..=255u8).cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let word = u64::from_ne_bytes([value; 8]);
                for at in (0..SIZE).step_by(8) {
                    memory.word(at).store(word, Ordering::Relaxed);
                }
            }
        });
        while memory.word(SIZE - 8).load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let gets = || {
            for _ in 0..8 {
                assert_eq!(get(0, SIZE), 0, "copied");
                assert_eq!(get(24, SIZE / 2), 0, "copied");
                assert_eq!(get(3, SIZE / 2), SIZE / 2);
            }
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(gets));
        over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert_eq!(b.account().protocol.dropped(DropReason::Forged), 0);
}
