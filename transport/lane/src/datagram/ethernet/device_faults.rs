//! Tests that faults of a device while connections use it lose nothing: all content is verified.
#![allow(non_snake_case)]

use super::device_tests::{Devices, by_socket};
use super::tests::*;
use super::*;
use crate::driver::Step;
use crate::ethernet::{DeviceOptions, bpf_for_tests};
use aya::programs::{loaded_links, loaded_programs};
use netlab::forge::Forger;
use netlab::lab::{Lab, LabConfig};
use netlab::netns::{self, Namespace};
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::sync::atomic::{AtomicBool, Ordering};
use zerolane_wire::Header;

/// Bytes of a transfer with a fault in its middle.
const WHOLE: usize = 16 << 20;

/// A fault that affects both ends.
type Fault<'a> = &'a mut dyn FnMut(&mut End, &mut End);

/// A transfer of [`WHOLE`] from a to b, with each of `faults` after the given part of it, in MiB.
fn transfer_with(a: &mut End, b: &mut End, faults: &mut [(u64, Fault<'_>)]) {
    let bytes = content(WHOLE, faults.len());
    post(a, b, &bytes);
    let received = |b: &End| b.account().protocol.bytes_received;
    let start = received(b);
    for (part, fault) in faults {
        drive(a, b, |_, b| received(b) - start > *part << 20);
        assert!(!b.has_completion(), "too late for a fault");
        fault(a, b);
    }
    drive(a, b, |a, b| a.has_completion() && b.has_completion());
    a.next_completion().expect("sent").result.expect("sent");
    verify(b.next_completion(), &bytes);
}

/// Detaches the program of the interface of `host`, as root can for any program: what `bpftool link detach` does.
fn detach(host: &Namespace) {
    let program = program_at(host).expect("a program");
    let its = |link: &aya::programs::links::LinkInfo| link.program_id() == program;
    let link = loaded_links().flatten().find(its).expect("its link");
    bpf_for_tests::detach(link.id()).expect("detached");
    assert_eq!(program_at(host), None);
    assert!(
        loaded_programs().flatten().any(|it| it.id() == program),
        "it is there, and runs nowhere"
    );
}

#[test]
fn detached__in_the_middle_it_goes_on_by_the_packet_socket() {
    for mtu in [1500, 9000] {
        let Some(hosts) = hosts(mtu) else {
            return;
        };
        for options in both() {
            let (devices, mut listener, mut a, mut b) = Devices::joined(&hosts, &options);
            let mut at_receiver = |_: &mut End, b: &mut End| {
                assert_eq!(by_socket(b), 0);
                detach(hosts.b());
            };
            let mut at_sender = |_: &mut End, b: &mut End| {
                assert!(by_socket(b) > 0, "it came by the packet socket");
                detach(hosts.a());
            };
            transfer_with(
                &mut a,
                &mut b,
                &mut [(2, &mut at_receiver), (8, &mut at_sender)],
            );
            transfer(&mut b, &mut a, 5 << 20);
            assert!(by_socket(&a) > 0);
            // Later ones do as well.
            let (mut a, mut b) =
                join_at(&hosts, &mut listener, &devices.options(Side::A, &options));
            transfer(&mut a, &mut b, 300_000);
            transfer(&mut b, &mut a, 300_000);
        }
    }
}

#[test]
fn interface__renamed_and_down_in_the_middle_loses_nothing() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
        let (own, other) = (hosts.device(Side::B), "renamed");
        let kernel = hosts.b().rtnetlink().expect("there");
        let mut away = |a: &mut End, b: &mut End| {
            kernel.set_up(own, false).expect("down");
            kernel.rename(own, other).expect("renamed");
            for end in [a, b] {
                for _ in 0..100 {
                    end.turn(Step::Whole).expect("goes on");
                }
            }
            kernel.set_up(other, true).expect("up");
        };
        let mut back = |_: &mut End, _: &mut End| {
            kernel.set_up(other, false).expect("down");
            kernel.rename(other, own).expect("renamed");
            kernel.set_up(own, true).expect("up");
        };
        transfer_with(&mut a, &mut b, &mut [(2, &mut away), (8, &mut back)]);
        transfer(&mut b, &mut a, 1 << 20);
        assert_eq!(by_socket(&b), 0, "past the packet socket to the end");
    }
}

#[test]
fn interface__gone_in_the_middle_ends_both_and_says_so() {
    for options in both() {
        let Some(hosts) = hosts(1500) else {
            return;
        };
        let (_devices, mut listener, mut a, mut b) = Devices::joined(&hosts, &options);
        post(&mut a, &mut b, &content(WHOLE, 1));
        let received = |b: &End| b.account().protocol.bytes_received;
        drive(&mut a, &mut b, |_, b| received(b) > 2 << 20);
        assert!(!b.has_completion());
        delete_interface(&hosts, &mut a, &mut b, false);
        for mut end in [a, b] {
            let told = end.next_completion();
            let failed = told.is_none_or(|it| it.result.is_err());
            assert!(failed, "nothing that was under way is told to be done");
        }
        let error = inside(hosts.b(), || listener.accept(Some(PATIENCE)));
        let error = error.expect_err("nothing to listen on").to_string();
        assert_eq!(error, NoEthernet::Gone.to_string());
    }
}

#[test]
fn mtu__changed_in_the_middle_loses_nothing() {
    for (opened, then) in [(9000, 1500), (1500, 9000), (9000, 3500), (1500, 1280)] {
        let Some(hosts) = hosts(opened) else {
            return;
        };
        for options in both() {
            hosts.set_mtu(opened).expect("set");
            let (_devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
            transfer(&mut a, &mut b, 1 << 20);
            let stu = a.account().stu;
            let mut change = |_: &mut End, _: &mut End| hosts.set_mtu(then).expect("set");
            let mut restore = |_: &mut End, _: &mut End| hosts.set_mtu(opened).expect("set");
            transfer_with(&mut a, &mut b, &mut [(2, &mut change)]);
            // Frames fit the memory and the interface.
            let now = a.account().stu;
            assert!(now <= stu && now < then, "{stu}, then {now} at {then}");
            transfer(&mut b, &mut a, 1 << 20);
            transfer_with(&mut a, &mut b, &mut [(2, &mut restore)]);
            transfer(&mut b, &mut a, 1 << 20);
            assert_eq!(by_socket(&a) + by_socket(&b), 0);
        }
    }
}

/// Forged frames to a connection's key, as any host of the segment can send, as fast as one thread makes them during a
/// transfer.
#[test]
fn forged__truncated_tagged_and_long_frames_in_the_middle_change_nothing() {
    for mtu in [1500, 9000] {
        let Some(hosts) = hosts(mtu) else {
            return;
        };
        for options in both() {
            let (devices, _listener, mut a, mut b) = Devices::joined(&hosts, &options);
            transfer(&mut a, &mut b, 1 << 20);
            // The forger's interface permits longer ones than the receiver's.
            hosts.set_mtu_at(Side::A, mtu + 4).expect("set");
            let frames = forgeries(&b, mtu as usize);
            let over = AtomicBool::new(false);
            let sent = std::thread::scope(|scope| {
                let forging =
                    scope.spawn(|| inside(hosts.a(), || forge(hosts.a(), &frames, &over)));
                let mut sent_some = |_: &mut End, _: &mut End| {};
                transfer_with(&mut a, &mut b, &mut [(2, &mut sent_some)]);
                transfer(&mut b, &mut a, 1 << 20);
                over.store(true, Ordering::Relaxed);
                forging.join().expect("forged")
            });
            assert!(sent > frames.len() as u64, "{sent}");
            let counted = devices.of(Side::B).counters().expect("counted");
            for (what, count) in [
                ("truncated", counted.truncated),
                ("too long", counted.too_long),
                ("malformed", counted.malformed),
                ("tagged", counted.tagged),
                ("foreign", counted.foreign),
            ] {
                assert!(count > 0, "{what}: {counted:?}");
            }
            transfer(&mut a, &mut b, 1 << 20);
        }
    }
}

/// Frames with the key of `b`, each with one defect.
fn forgeries(b: &End, mtu: usize) -> Vec<Vec<u8>> {
    let to = hardware(b.lane().local_addr().expect("one"));
    let from = hardware(b.lane().peer_addr());
    let mut frames = Vec::new();
    for code in 0..32u8 {
        for len in [12, 39, 40, 46, 48, 60, mtu - 1, mtu, mtu + 4] {
            let mut datagram = vec![0xa5; len];
            datagram[0] = code << 3;
            datagram[8..12].copy_from_slice(&b.lane().key().to_be_bytes());
            let whole = frame(to, from, &datagram);
            let mut tagged = whole.clone();
            tagged.splice(12..12, [0x81, 0x00, 0, 5]);
            frames.extend([
                frame(to, [2, 9, 9, 9, 9, 9], &datagram),
                frame([0xff; 6], from, &datagram),
            ]);
            // The tag makes it longer.
            frames.extend(Some(tagged).filter(|_| len <= mtu));
            frames.push(whole);
        }
    }
    // The header of a Data of a Transfer that may exist.
    let header = Header {
        d_key: b.lane().key(),
        ..Header::new(zerolane_wire::Op::Data)
    };
    frames.push(frame(
        to,
        from,
        &[&header.emit()[..], &[0x5a; 1000]].concat(),
    ));
    frames
}

/// Sends `frames` repeatedly until `over`, at least once. Returns how many it sent.
fn forge(host: &Namespace, frames: &[Vec<u8>], over: &AtomicBool) -> u64 {
    let forger = Forger::open(host.device()).expect("permitted");
    let mut sent = 0;
    loop {
        for batch in frames.chunks(32) {
            let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            sent += batch.len() as u64 - forger.send(&batch);
        }
        if over.load(Ordering::Relaxed) {
            return sent;
        }
    }
}

/// A network that loses, duplicates and reorders between two hosts whose interfaces are devices.
#[test]
fn lossy__networks_are_got_over() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces and packet sockets need root");
        return;
    }
    let seed = std::env::var("ZEROLANE_SEED").map_or(7, |it| it.parse().expect("a number"));
    println!("ZEROLANE_SEED={seed}");
    for mtu in [1500, 9000] {
        let link = LinkConfig {
            delay: Duration::from_micros(300),
            loss: Loss::Random(0.02),
            reorder: Reorder {
                probability: 0.05,
                by: Duration::from_micros(500),
            },
            duplicate: 0.01,
            ..LinkConfig::default()
        };
        let config = LabConfig {
            prefix: "xdp".into(),
            mtu,
            link,
            seed,
            ..LabConfig::default()
        };
        let lab = Lab::start(config).expect("permitted");
        let ends = [lab.host(0), lab.host(1)];
        for options in both() {
            let devices = Devices::open_at(ends, DeviceOptions::default());
            let mut listener = devices.listen(ends[1], &options);
            let (mut a, mut b) =
                join_between(ends, &mut listener, &devices.options(Side::A, &options));
            assert!(a.account().bypass && b.account().bypass);
            for len in [1, 100, 5000, 100_000, 8 << 20] {
                transfer(&mut a, &mut b, len);
                transfer(&mut b, &mut a, len);
            }
            assert_eq!(by_socket(&a) + by_socket(&b), 0);
        }
        let total = lab.stats().total();
        assert!(
            total.lost > 30 && total.reordered > 30 && total.duplicated > 10,
            "{total:?}"
        );
    }
}
