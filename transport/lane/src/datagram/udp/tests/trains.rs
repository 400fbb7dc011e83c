//! Tests that trains carry payload at the expected cost, and fall back when the kernel refuses them.
#![allow(non_snake_case)]

use super::*;
use netlab::netns::Offloads;
use netsim::Side;
use zerolane_core::ExportAs;

const SIZE: usize = 8 << 20;

/// Sends and verifies `count` Transfers.
fn send(a: &mut End, b: &mut End, count: usize) {
    for seed in 0..count {
        let bytes = content(SIZE, seed);
        send_bytes(a, b, &bytes);
    }
}

fn send_bytes(a: &mut End, b: &mut End, bytes: &[u8]) {
    verify(transfer(a, b, bytes), bytes);
    drive(a, b, |a, _| !a.is_sending());
    while a.next_completion().is_some() {}
}

/// The accounts of both ends before and after four Transfers. If a timeout expires on a busy machine, and something is
/// sent again, it measures another run, at most five.
fn around_bulk(hosts: Option<&Topology>, options: &Options) -> ([Account; 2], [Account; 2]) {
    let mut runs = (0..5).map(|_| {
        let (mut a, mut b) = join(hosts, options);
        send(&mut a, &mut b, 1);
        let before = [a.account(), b.account()];
        send(&mut a, &mut b, 4);
        (before, [a.account(), b.account()])
    });
    let undisturbed = runs.find(|(_, after)| after.iter().all(|it| it.protocol.timeouts == 0));
    undisturbed.expect("a run in which no end waited in vain")
}

#[test]
fn trains__carry_bulk_without_a_copy_at_either_end() {
    carry_bulk(&sealed());
}

#[test]
fn plain__carry_bulk_without_a_copy_at_either_end() {
    carry_bulk(&plain());
}

fn carry_bulk(options: &Options) {
    let Some(hosts) = hosts(1500) else { return };
    let ([before_a, before_b], [a, b]) = around_bulk(Some(&hosts), options);
    let len = 4 * SIZE as u64;
    assert_eq!(a.bytes_sent - before_a.bytes_sent, len);
    assert_eq!(b.bytes_placed - before_b.bytes_placed, len);
    assert_eq!(b.bytes_moved(), before_b.bytes_moved());
    let given = a.bytes_sent_zerocopy - before_a.bytes_sent_zerocopy;
    assert!(
        given > len - len / 8,
        "{given} of {len} given, {:?}",
        (
            b.dropped_socket_buffer,
            b.dropped_truncated,
            a.dropped_on_send,
            a.protocol.bytes_resent,
            before_a.protocol.bytes_resent,
            b.protocol.reordered
        )
    );
    assert_eq!(a.protocol.bytes_resent, 0);
    assert_eq!(b.protocol.trains_broken, 0);
    let trains = b.protocol.trains_received - before_b.protocol.trains_received;
    assert!(trains >= given / 65_536 && trains <= given / 40_000);
    // A given train is two calls.
    let calls = a.tx_data_syscalls - before_a.tx_data_syscalls;
    assert!(calls <= 40 * 32, "{calls} calls for 32 MiB");
    let calls = b.rx_data_syscalls - before_b.rx_data_syscalls;
    assert!(calls <= 20 * 32, "{calls} calls for 32 MiB");
}

/// What is predicted right is placed; what is predicted in the place of a neighbour, or not at all, is moved. All of it is
/// right in the end, and a seal, which is opened into its place, needs no prediction.
#[test]
fn forecast__right_none_and_wrong() {
    let Some(hosts) = hosts(1500) else { return };
    let len = 4 * SIZE as u64;
    let headers = |base: Options| base.with(|it| it.datagrams.trains = false);
    let blind = |base: Options| base.with(|it| it.datagrams.forecast = false);
    let swapped = headers(plain()).with(|it| it.datagrams.swap = true);
    let nothing = 0..=len / 100;
    for (options, moved) in [
        (headers(plain()), nothing.clone()),
        (blind(headers(plain())), len..=len),
        (blind(plain()), len..=len),
        // All but the short last ones of bursts.
        (swapped, len - len / 8..=len),
        (blind(sealed()), nothing),
    ] {
        let ([_, before], [a, b]) = around_bulk(Some(&hosts), &options);
        let found = b.bytes_moved() - before.bytes_moved();
        assert!(
            moved.contains(&found),
            "{found} of {len} moved, not {moved:?}: {options:?}"
        );
        assert_eq!(b.bytes_placed - before.bytes_placed, len - found);
        assert_eq!(a.protocol.bytes_resent, 0, "{options:?}");
    }
}

#[test]
fn trains__in_both_directions_and_of_any_length() {
    any_length(&sealed());
}

#[test]
fn plain__in_both_directions_and_of_any_length() {
    any_length(&plain());
}

fn any_length(options: &Options) {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), options);
    send(&mut a, &mut b, 1);
    send(&mut b, &mut a, 1);
    for len in [20_000, 64_640, 64_641, 64_704, 129_280, 1 << 20, SIZE + 1] {
        for seed in 0..2 {
            let bytes = content(len, seed);
            send_bytes(&mut a, &mut b, &bytes);
            send_bytes(&mut b, &mut a, &bytes);
        }
    }
    let (a, b) = (a.account(), b.account());
    assert!(a.protocol.trains_received > 0);
    assert!(b.protocol.trains_received > 0);
    assert_sent_once(&a, &b);
}

#[test]
fn trains__of_large_datagrams() {
    let Some(hosts) = hosts(9000) else { return };
    for options in [sealed(), plain()] {
        let (mut a, mut b) = join(Some(&hosts), &options);
        send(&mut a, &mut b, 4);
        assert!(b.account().protocol.trains_received > 0);
        assert_sent_once(&a.account(), &b.account());
    }
}

#[test]
fn trains__not_without_merging_nor_in_plain_strictness_nor_unrequested() {
    let Some(hosts) = hosts(1500) else { return };
    let gro = false;
    let unmerged = sealed().with(|it| it.datagrams.gro = gro);
    let strict = plain().with(|it| it.strict = true);
    let unrequested = |base: Options| base.with(|it| it.datagrams.trains = false);
    for options in [
        strict,
        unmerged,
        unrequested(plain()),
        unrequested(sealed()),
    ] {
        let (mut a, mut b) = join(Some(&hosts), &options);
        send(&mut a, &mut b, 2);
        let (a, b) = (a.account(), b.account());
        assert_eq!((b.protocol.trains_received, a.bytes_sent_zerocopy), (0, 0));
    }
}

/// Calls that bring no payload are not data calls, even if trains are expected.
#[test]
fn trains__expected_make_no_data_calls_of_others() {
    for options in [sealed(), plain()] {
        let Some(hosts) = hosts(1500) else { return };
        let (mut a, mut b) = join(Some(&hosts), &options);
        let bytes = content(SIZE, 9);
        let theirs = ExportedRegion::new(region(&bytes)).expect("aligned");
        let theirs = a
            .export(theirs.exporting(), Rights::ALL, ExportAs::Handle)
            .expect("exported");
        send(&mut a, &mut b, 2);
        drive(&mut a, &mut b, |a, b| a.in_flight() + b.in_flight() == 0);
        // Trains are expected from now on and none comes, because a does not turn.
        let place = Region::anonymous(SIZE).expect("memory");
        let get = WorkRequest::Get {
            place: theirs.start,
            flags: WorkFlags::default(),
        };
        b.post_target(get, Report::default(), place)
            .expect("posted");
        let before = b.account();
        let delivery = Delivery::Interrupt;
        let announced = WorkRequest::Send { delivery };
        a.post_source(announced, Report::default(), region(&bytes).into())
            .expect("posted");
        a.turn(Step::Whole).expect("announced");
        let calls = |it: &Account| it.rx_data_syscalls + it.rx_control_syscalls;
        let taken = (0..PATIENCE).any(|_| {
            b.turn(Step::Whole).expect("received");
            calls(&b.account()) > calls(&before)
        });
        assert!(taken, "stuck");
        let after = b.account();
        assert_eq!(after.rx_data_syscalls, before.rx_data_syscalls);
        // Parts of a train are payload.
        drive(&mut a, &mut b, |_, b| b.has_completion());
        verify(b.next_completion(), &bytes);
        let account = b.account();
        let calls = account.rx_data_syscalls - after.rx_data_syscalls;
        let trains = account.protocol.trains_received - after.protocol.trains_received;
        assert!(calls >= trains && trains > 0, "{calls}, {trains} trains");
    }
}

/// Whichever method is cheaper, both are tried.
#[test]
fn trains__are_given_or_copied_as_measured() {
    for options in [sealed(), plain()] {
        let Some(hosts) = hosts(1500) else { return };
        let (mut a, mut b) = join(Some(&hosts), &options);
        seam::measure(true);
        send(&mut a, &mut b, 3);
        seam::measure(false);
        let (a, b) = (a.account(), b.account());
        assert!(a.bytes_sent_zerocopy > 0 && a.bytes_sent_zerocopy < a.bytes_sent);
        assert_sent_once(&a, &b);
        assert_eq!(b.protocol.trains_broken, 0);
    }
}

#[test]
fn given__refused_is_copied() {
    let Some(hosts) = hosts(1500) else { return };
    for (errno, again) in [
        (libc::EINVAL, false),
        (libc::EPERM, false),
        (libc::EAGAIN, true),
        (libc::ENOBUFS, true),
    ] {
        let (mut a, mut b) = join(Some(&hosts), &sealed());
        send(&mut a, &mut b, 1);
        seam::refuse(Sends::Given, errno);
        let before = a.account().bytes_sent_zerocopy;
        send(&mut a, &mut b, 2);
        assert_eq!(seam::refusals_left(), 0);
        let account = a.account();
        assert_eq!(account.bytes_sent_zerocopy > before, again, "{errno}");
        assert_sent_once(&account, &b.account());
        assert_eq!(account.dropped_on_send, 0);
        assert_eq!(b.account().protocol.trains_broken, 0);
    }
}

#[test]
fn given__memory_is_the_users_own_again_when_it_was_sent() {
    for options in [sealed(), plain()] {
        change_when_over(&options);
    }
}

fn change_when_over(options: &Options) {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), options);
    send(&mut a, &mut b, 1);
    for seed in 1..7 {
        let bytes = content(SIZE, seed);
        if seed > 3 {
            // One of its bursts is lost, and sent again.
            seam::refuse(Sends::Given, libc::EAGAIN);
            seam::refuse(Sends::Segmented, libc::EMSGSIZE);
        }
        post(&mut a, &mut b, &bytes);
        drive(&mut a, &mut b, |a, _| a.has_completion());
        let sent = a.next_completion().expect("over");
        assert_eq!(sent.result, Ok(SIZE as u64));
        exclusive(sent.memory).fill(0xee);
        drive(&mut a, &mut b, |_, b| b.has_completion());
        verify(b.next_completion(), &bytes);
    }
    assert_eq!(seam::refusals_left(), 0);
    assert!(a.account().protocol.bytes_resent > 0);
    assert!(a.account().bytes_sent_zerocopy > 0);
}

/// Cancelled memory returns to the user at once: later content is not accepted in place of the sent bytes.
#[test]
fn given__changed_when_it_is_cancelled_is_not_received() {
    for options in [sealed(), plain()] {
        let Some(hosts) = hosts(1500) else { return };
        let (mut a, mut b) = join(Some(&hosts), &options);
        send(&mut a, &mut b, 1);
        for turns in 1..20 {
            let bytes = content(SIZE, turns);
            let place = Region::anonymous(SIZE).expect("memory");
            b.post_target(WorkRequest::Receive, Report::default(), place)
                .expect("posted");
            let delivery = Delivery::Interrupt;
            let send = WorkRequest::Send { delivery };
            let id = a
                .post_source(send, Report::default(), region(&bytes).into())
                .expect("posted");
            for _ in 0..turns {
                let _ = (
                    b.turn(Step::Whole).expect("b"),
                    a.turn(Step::Whole).expect("a"),
                );
            }
            a.cancel(id);
            drive(&mut a, &mut b, |a, _| a.has_completion());
            let over = a.next_completion().expect("over");
            let whole = over.result == Ok(SIZE as u64);
            exclusive(over.memory).fill(0xee);
            drive(&mut a, &mut b, |_, b| b.has_completion());
            let received = b.next_completion().expect("over");
            match received.result {
                Ok(len) => verify_all(received, &bytes, len),
                Err(_) => assert!(!whole, "received as well"),
            }
        }
    }
}

/// Memory that its next owner overwrites as soon as it is released, or keeps.
struct Owned {
    memory: Region,
    fills: bool,
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.fills {
            self.memory.fill(0xee);
        }
    }
}

impl Owned {
    fn region(bytes: &[u8], fills: bool) -> Region {
        let mut memory = region(bytes);
        let start = NonNull::from(&mut memory[..]).cast();
        let owner = Box::new(Owned { memory, fills });
        // SAFETY: the owner keeps the memory in place, and touches it only after the region is gone.
        unsafe { Region::foreign(start, bytes.len(), false, owner) }
    }
}

/// The kernel still has trains when their sender is dropped. The lane's own memory stays unchanged: its trains are
/// whole, and reveal nothing else of the process. Later content of the user's memory is not accepted in place of the
/// sent bytes.
#[test]
fn given__of_a_connection_that_is_dropped() {
    let Some(hosts) = hosts(1500) else { return };
    for (options, fills, whole) in [
        (sealed(), true, true),
        (plain(), false, true),
        (plain(), true, false),
    ] {
        let mut given = 0;
        for turns in 1..16 {
            let (mut a, mut b) = join(Some(&hosts), &options);
            send(&mut a, &mut b, 1);
            let bytes = content(1 << 20, turns);
            let place = Region::anonymous(bytes.len()).expect("memory");
            b.post_target(WorkRequest::Receive, Report::default(), place)
                .expect("posted");
            let before = a.account().bytes_sent_zerocopy;
            let delivery = Delivery::Silent;
            let send = WorkRequest::Send { delivery };
            a.post_source(send, Report::default(), Owned::region(&bytes, fills).into())
                .expect("posted");
            for _ in 0..turns {
                let _ = (
                    b.turn(Step::Whole).expect("b"),
                    a.turn(Step::Whole).expect("a"),
                );
            }
            given += a.account().bytes_sent_zerocopy - before;
            drop(a);
            // Allocations that follow in the process.
            let reused = vec![vec![0xee_u8; 65_536]; 32];
            drive_alone(&mut b);
            drop(reused);
            if whole {
                assert_eq!(b.account().protocol.trains_broken, 0);
            }
            if let Some(received) = b.next_completion()
                && let Ok(len) = received.result
            {
                verify_all(received, &bytes, len);
            }
        }
        assert!(given > 0);
    }
}

/// Drives until the request or the connection is over.
fn drive_alone(b: &mut End) {
    let ended = (0..PATIENCE).any(|_| {
        // That the peer is gone is one of the outcomes.
        let _ = b.turn(Step::Whole);
        b.has_completion() || b.closed().is_some()
    });
    assert!(ended, "stuck");
}

fn verify_all(received: Completion, bytes: &[u8], len: u64) {
    assert_eq!(len, bytes.len() as u64);
    verify(Some(received), bytes);
}

/// The kernel stops segmenting trains: their datagrams come one by one, and are assembled nevertheless.
#[test]
fn gso__refused_in_the_midst_of_trains_loses_nothing() {
    for options in [sealed(), plain()] {
        let Some(hosts) = hosts(1500) else { return };
        let (mut a, mut b) = join(Some(&hosts), &options);
        send(&mut a, &mut b, 1);
        let before = b.account();
        refuse_segmented(libc::EIO);
        send(&mut a, &mut b, 3);
        assert_eq!(seam::refusals_left(), 0);
        assert!(!a.account().gso);
        assert_sent_once(&a.account(), &b.account());
        let after = b.account();
        assert_eq!(after.protocol.trains_broken, 0);
        // The parts of that train are in place. Some later arrivals were predicted to be merged.
        let moved = after.bytes_moved() - before.bytes_moved();
        assert!(moved < SIZE as u64 / 8, "{moved} moved: {after:?}");
    }
}

/// A train whose datagrams come in pieces with another operation between them is taken out of its place.
#[test]
fn plain__parts_with_an_operation_between_them() {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), &plain());
    send(&mut a, &mut b, 1);
    let word = Region::anonymous(4096).expect("memory");
    let word = ExportedRegion::new(word).expect("aligned");
    let exported = b
        .export(word.exporting(), Rights::ALL, ExportAs::Handle)
        .expect("exported");
    for seed in 0..8 {
        let bytes = content(SIZE, seed);
        let place = Region::anonymous(SIZE).expect("memory");
        b.post_target(WorkRequest::Receive, Report::default(), place)
            .expect("posted");
        let delivery = Delivery::Interrupt;
        let send = WorkRequest::Send { delivery };
        a.post_source(send, Report::default(), region(&bytes).into())
            .expect("posted");
        for number in 0..200u64 {
            let put = WorkRequest::Put {
                place: exported.start,
                immediate: None,
                flags: WorkFlags::default(),
            };
            let value = region(&number.to_le_bytes());
            let _ = a.post_source(put, Report::default(), value.into());
            let _ = a.turn(Step::Whole).expect("a");
        }
        drive(&mut a, &mut b, |a, b| a.in_flight() + b.in_flight() == 0);
        drive(&mut a, &mut b, |_, b| b.has_completion());
        verify(b.next_completion(), &bytes);
        while a.next_completion().is_some() {}
        let mut last = [0; 8];
        word.read(0, &mut last);
        assert_eq!(u64::from_le_bytes(last), 199);
    }
    assert_eq!(b.account().protocol.trains_broken, 0);
    assert_sent_once(&a.account(), &b.account());
}

#[test]
fn trains__both_ways_at_once() {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), &sealed());
    let count = 4;
    for seed in 0..count {
        let bytes = content(SIZE, seed);
        for end in [&mut a, &mut b] {
            let place = Region::anonymous(SIZE).expect("memory");
            end.post_target(WorkRequest::Receive, Report::default(), place)
                .expect("posted");
            let delivery = Delivery::Silent;
            let send = WorkRequest::Send { delivery };
            end.post_source(send, Report::default(), region(&bytes).into())
                .expect("posted");
        }
    }
    drive(&mut a, &mut b, |a, b| a.in_flight() + b.in_flight() == 0);
    for end in [&mut a, &mut b] {
        assert!(end.account().protocol.trains_received > 0);
        while let Some(completion) = end.next_completion() {
            assert_eq!(completion.result, Ok(SIZE as u64));
        }
    }
    assert_sent_once(&a.account(), &b.account());
}

/// Datagrams of 64 KiB, as loopback carries them: each is a train. The sender's kernel copies none of the sealed ones.
/// Plain ones would lie in the peer's queue with the user's own pages until the peer reads them.
#[test]
fn trains__of_one_datagram() {
    for (options, is_given) in [(sealed(), true), (plain(), false)] {
        let ([before_a, before_b], [a, b]) = around_bulk(None, &options);
        let len = 4 * SIZE as u64;
        let given = a.bytes_sent_zerocopy - before_a.bytes_sent_zerocopy;
        // Trains without a slot are copied: the peer reports rarely on so short a path.
        assert_eq!(given > len / 2, is_given, "{given} of {len} given");
        assert!(given == 0 || is_given, "{given} of the user's");
        assert!(b.protocol.trains_received > before_b.protocol.trains_received);
        assert_eq!(a.protocol.bytes_resent, 0);
        assert_eq!(b.bytes_moved(), before_b.bytes_moved());
        assert_eq!(b.protocol.trains_broken, 0);
    }
}

/// A put of `bytes` into b's memory, and a get of them by b from a's memory.
fn put_and_get(a: &mut End, b: &mut End, bytes: &[u8]) {
    let flags = WorkFlags::default();
    let place = Region::anonymous(bytes.len()).expect("memory");
    let theirs = ExportedRegion::new(place).expect("aligned");
    let exported = b
        .export(theirs.exporting(), Rights::ALL, ExportAs::Handle)
        .expect("exported");
    let put = WorkRequest::Put {
        place: exported.start,
        immediate: None,
        flags,
    };
    a.post_source(put, Report::default(), region(bytes).into())
        .expect("posted");
    drive(a, b, |a, _| a.has_completion());
    let over = a.next_completion().expect("over");
    assert_eq!(over.result, Ok(bytes.len() as u64));
    let mut there = vec![0; bytes.len()];
    theirs.read(0, &mut there);
    assert!(there == bytes, "what was put");

    let ours = ExportedRegion::new(region(bytes)).expect("aligned");
    let exported = a
        .export(ours.exporting(), Rights::ALL, ExportAs::Handle)
        .expect("exported");
    let get = WorkRequest::Get {
        place: exported.start,
        flags,
    };
    let place = Region::anonymous(bytes.len()).expect("memory");
    b.post_target(get, Report::default(), place)
        .expect("posted");
    drive(a, b, |_, b| b.has_completion());
    verify(b.next_completion(), bytes);
}

#[test]
fn exported__gets_and_puts_come_as_trains() {
    for options in [sealed(), plain()] {
        let Some(hosts) = hosts(1500) else { return };
        // A timeout may expire on a busy machine: then another run, at most five.
        let undisturbed = (0..5).any(|seed| {
            let (mut a, mut b) = join(Some(&hosts), &options);
            put_and_get(&mut a, &mut b, &content(SIZE, seed));
            let before = b.account();
            let bytes = content(SIZE, seed + 1);
            put_and_get(&mut a, &mut b, &bytes);
            let (a, b) = (a.account(), b.account());
            let trains = b.protocol.trains_received - before.protocol.trains_received;
            assert!(trains > 0);
            assert_sent_once(&a, &b);
            let waited = a.protocol.timeouts + b.protocol.timeouts > 0;
            if !waited {
                // Of all payload both ways: more than these have a header in each datagram.
                assert!(trains >= 2 * SIZE as u64 / 65_536, "{trains}");
                assert!(trains <= 2 * SIZE as u64 / 40_000, "{trains}");
                assert_eq!(b.protocol.trains_broken, 0);
                assert_eq!(b.bytes_placed - before.bytes_placed, 2 * SIZE as u64);
                assert_eq!(b.bytes_moved(), before.bytes_moved());
            }
            !waited
        });
        assert!(undisturbed, "an end waited in vain, five times");
    }
}

/// Without the offload each packet is sent separately, and the receiver's kernel merges at most as many as its device
/// permits: a train comes in pieces, which end anywhere.
#[test]
fn trains__cut_by_the_sender_s_interface() {
    for options in [sealed(), plain()] {
        let Some(hosts) = hosts(1500) else { return };
        for (side, tx) in [(Side::A, false), (Side::B, true)] {
            let offloads = Offloads { tx, gro: true };
            hosts.set_offloads(side, offloads).expect("set");
        }
        let device = hosts.device(Side::B);
        let kernel = hosts.b().rtnetlink().expect("there");
        kernel.set_gro_max_size(device, 30_000).expect("set");
        let (before, after) = around_bulk(Some(&hosts), &options);
        let (before, b) = (before[1], after[1]);
        let trains = b.protocol.trains_received - before.protocol.trains_received;
        let calls = b.rx_data_syscalls - before.rx_data_syscalls;
        assert!(trains > 0);
        assert!(calls >= 2 * trains, "{calls} calls, {trains} trains");
        assert_eq!(b.protocol.trains_broken, 0);
        assert_sent_once(&after[0], &b);
    }
}
