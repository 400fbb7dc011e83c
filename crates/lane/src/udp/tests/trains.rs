//! Trains between two drivers in one thread: what they carry, what they cost, and kernels that will not have them.
#![allow(non_snake_case)]

use super::*;

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

#[test]
fn trains__carry_bulk_without_a_copy_at_either_end() {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), &Options::default());
    send(&mut a, &mut b, 1);
    let (before_a, before_b) = (a.account(), b.account());
    send(&mut a, &mut b, 4);
    let (a, b) = (a.account(), b.account());
    let len = 4 * SIZE as u64;
    assert_eq!(a.bytes_sent - before_a.bytes_sent, len);
    assert_eq!(b.bytes_placed - before_b.bytes_placed, len);
    assert_eq!(b.bytes_moved(), before_b.bytes_moved());
    let given = a.bytes_given - before_a.bytes_given;
    assert!(given > len - len / 8, "{given} of {len} given");
    assert_eq!(a.protocol.bytes_resent, 0);
    assert_eq!(b.protocol.trains_spoiled, 0);
    let trains = b.protocol.trains_received - before_b.protocol.trains_received;
    assert!(trains >= given / 65_536 && trains <= given / 60_000);
    // A given train is two calls.
    let calls = a.tx_data_syscalls - before_a.tx_data_syscalls;
    assert!(calls <= 40 * 32, "{calls} calls for 32 MiB");
    let calls = b.rx_data_syscalls - before_b.rx_data_syscalls;
    assert!(calls <= 20 * 32, "{calls} calls for 32 MiB");
}

#[test]
fn trains__in_both_directions_and_of_any_length() {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), &Options::default());
    send(&mut a, &mut b, 1);
    send(&mut b, &mut a, 1);
    for len in [20_000, 64_703, 64_704, 64_705, 129_406, 1 << 20, SIZE + 1] {
        for seed in 0..2 {
            let bytes = content(len, seed);
            send_bytes(&mut a, &mut b, &bytes);
            send_bytes(&mut b, &mut a, &bytes);
        }
    }
    for end in [&mut a, &mut b] {
        let account = end.account();
        assert!(account.protocol.trains_received > 0);
        assert_eq!(account.protocol.bytes_resent, 0);
    }
}

#[test]
fn trains__of_large_datagrams() {
    let Some(hosts) = hosts(9000) else { return };
    let (mut a, mut b) = join(Some(&hosts), &Options::default());
    send(&mut a, &mut b, 4);
    assert!(b.account().protocol.trains_received > 0);
    assert_eq!(a.account().protocol.bytes_resent, 0);
}

#[test]
fn trains__not_without_merging_nor_seals() {
    let Some(hosts) = hosts(1500) else { return };
    let gro = false;
    let unmerged = Options {
        gro,
        ..Options::default()
    };
    for options in [plain(), unmerged] {
        let (mut a, mut b) = join(Some(&hosts), &options);
        send(&mut a, &mut b, 2);
        let (a, b) = (a.account(), b.account());
        assert_eq!((b.protocol.trains_received, a.bytes_given), (0, 0));
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
        let (mut a, mut b) = join(Some(&hosts), &Options::default());
        send(&mut a, &mut b, 1);
        seam::refuse(Sends::Given, errno);
        let before = a.account().bytes_given;
        send(&mut a, &mut b, 2);
        assert_eq!(seam::refusals_left(), 0);
        let account = a.account();
        assert_eq!(account.bytes_given > before, again, "{errno}");
        assert_eq!(
            (account.protocol.bytes_resent, account.dropped_on_send),
            (0, 0)
        );
        assert_eq!(b.account().protocol.trains_spoiled, 0);
    }
}

#[test]
fn given__memory_is_the_users_own_again_when_it_was_sent() {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), &Options::default());
    send(&mut a, &mut b, 1);
    for seed in 1..5 {
        let bytes = content(SIZE, seed);
        let place = Region::anonymous(SIZE).expect("memory");
        b.post_target(WorkRequest::Receive, Report::default(), place)
            .expect("posted");
        let delivery = Delivery::Interrupt;
        a.post_source(
            WorkRequest::Send { delivery },
            Report::default(),
            region(&bytes).into(),
        )
        .expect("posted");
        drive(&mut a, &mut b, |a, _| a.has_completion());
        let sent = a.next_completion().expect("over");
        assert_eq!(sent.result, Ok(SIZE as u64));
        exclusive(sent.memory).fill(0xee);
        drive(&mut a, &mut b, |_, b| b.has_completion());
        verify(b.next_completion(), &bytes);
    }
    assert_eq!(b.account().moved(MoveCause::Unexpected), 0);
}

/// The kernel cuts no train any more: its datagrams come one by one, and are put together all the same.
#[test]
fn gso__refused_in_the_midst_of_trains_loses_nothing() {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), &Options::default());
    send(&mut a, &mut b, 1);
    seam::refuse(Sends::Given, libc::EIO);
    seam::refuse(Sends::Segmented, libc::EIO);
    send(&mut a, &mut b, 3);
    assert_eq!(seam::refusals_left(), 0);
    assert!(!a.account().gso);
    assert_eq!(a.account().protocol.bytes_resent, 0);
}

#[test]
fn trains__both_ways_at_once() {
    let Some(hosts) = hosts(1500) else { return };
    let (mut a, mut b) = join(Some(&hosts), &Options::default());
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
        assert_eq!(end.account().protocol.bytes_resent, 0);
        while let Some(completion) = end.next_completion() {
            assert_eq!(completion.result, Ok(SIZE as u64));
        }
    }
}
