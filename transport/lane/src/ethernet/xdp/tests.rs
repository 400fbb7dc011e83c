//! Tests that the program at a host's end of a veth pair drops forged frames by reason and passes all others.
#![allow(non_snake_case)]

use super::*;
use crate::address::Station;
use crate::datagram::ethernet::tests::{
    End, PATIENCE, both, content, drive, frame, hardware, heard, hosts, inside, join_at, listen,
    overhear, own_address, post, program_at, transfer, verify,
};
use crate::ethernet::bpf_for_tests::Generator;
use crate::ethernet::{AROUND, DeviceOptions, EthernetDevice};
use crate::options::Options;
use netlab::forge::Forger;
use netlab::netns::{Namespace, Topology};
use netsim::Side;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use zerolane_wire::encapsulation::{MIN_FRAME, pad_frame};
use zerolane_wire::{HEADER_LEN, Header, Op};

const RULES: Rules = Rules {
    slots: 4,
    exclusive: true,
};

/// Attaches to the interface of `host`.
fn attach(host: &Namespace, rules: Rules) -> Result<Program, NoXdp> {
    let station = Station::of(own_address(host, 0)).expect("one");
    inside(host, || Program::attach(station.interface, rules))
}

#[test]
fn attach__refuses_a_second_and_detaches_with_the_first() {
    let Some(hosts) = hosts(9000) else {
        return;
    };
    let first = attach(hosts.b(), RULES).expect("attached");
    // In the driver: a program in generic mode is reported elsewhere.
    assert!(program_at(hosts.b()).is_some());
    let second = attach(hosts.b(), RULES).expect_err("taken");
    assert_eq!(second, NoXdp::Taken);
    assert!(second.to_string().contains("already"), "{second}");
    drop(first);
    assert_eq!(program_at(hosts.b()), None);
    attach(hosts.b(), RULES).expect("free again");
}

/// An exclusive or shared device at the interface of `host`.
fn device(host: &Namespace, exclusive: bool) -> Arc<EthernetDevice> {
    let options = DeviceOptions {
        queue: None,
        max_connections: 4,
        exclusive,
        ..DeviceOptions::default()
    };
    inside(host, || EthernetDevice::open(host.device(), options)).expect("attached")
}

/// Two ends connected over `hosts`, b with a device.
fn joined(hosts: &Topology, options: &Options, exclusive: bool) -> (End, End, Arc<EthernetDevice>) {
    let device = device(hosts.b(), exclusive);
    let with_device = options
        .clone()
        .with(|it| it.lane.device = Some(device.clone()));
    let mut listener = listen(hosts.b(), 0, &with_device).expect("a port");
    let (a, b) = join_at(hosts, &mut listener, options);
    (a, b, device)
}

#[test]
fn transfer__is_not_hindered_by_what_validates_it() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let (mut a, mut b, device) = joined(&hosts, &options, true);
        for len in [1, 40, 1461, 100_000, 5 << 20, 33 << 20] {
            transfer(&mut a, &mut b, len);
            transfer(&mut b, &mut a, len);
        }
        let counted = device.counters().expect("counted");
        assert_eq!(counted.dropped(), 0, "{counted:?}");
        assert!(
            counted.passed_data > 10_000 && counted.passed_requests > 0,
            "{counted:?}"
        );
        let kernel = hosts.b().rtnetlink().expect("there");
        let off = kernel.detach_xdp(hosts.b().device());
        off.expect_err("a link is its maker's");
    }
}

/// One of the counters.
type Counter = fn(&XdpCounters) -> u64;

/// Frames that the driver drops never reach a socket, and each reason is counted.
#[test]
fn forged__frames_are_dropped_in_the_driver_by_reason() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let (mut a, mut b, device) = joined(&hosts, &options, true);
        transfer(&mut a, &mut b, 1 << 20);
        // Another transfer, of which a part is granted and nothing has arrived.
        let bytes = content(8 << 20, 5);
        let ear = inside(hosts.b(), overhear);
        post(&mut a, &mut b, &bytes);
        drive(&mut a, &mut b, |_, b| b.account().bytes_placed > 2 << 20);
        let data = |frame: &Vec<u8>| frame[AROUND] >> 3 == Op::Data as u8 && frame.len() > 1000;
        let sent = heard(&ear).into_iter().rfind(data).expect("payload");
        let header = Header::parse(&sent[AROUND..]).expect("one");
        let payload = sent.len() - AROUND - HEADER_LEN;
        let (to, from) = (
            hardware(b.lane().local_addr().expect("one")),
            hardware(b.lane().peer_addr()),
        );
        let with =
            |header: Header| frame(to, from, &[&header.emit()[..], &vec![7; payload]].concat());
        let changed = |change: fn(&mut Header)| {
            let mut header = header;
            change(&mut header);
            with(header)
        };
        let tagged = |number: u8| {
            let mut tagged = sent.clone();
            tagged.splice(12..12, [0x81, 0x00, 0, number]);
            tagged
        };
        let unauthenticated = Header {
            d_port: 9,
            ..Header::new(Op::RequestConnection)
        };
        let control = Header {
            op: Op::Nop,
            ..header
        };
        let padded = |last: u8| {
            let mut padded = pad_frame(&control.emit()).expect("short");
            padded[MIN_FRAME + 1] = last;
            frame(to, from, &padded)
        };
        let cases: [(&str, Vec<u8>, Counter); 15] = [
            ("key", changed(|it| it.d_key ^= 1), |it| it.unknown_key),
            ("port of a listener", with(unauthenticated), |it| {
                it.unknown_port
            }),
            ("no key", frame(to, from, &[0x78; 11]), |it| it.truncated),
            ("half a header", sent[..AROUND + 39].to_vec(), |it| {
                it.truncated
            }),
            (
                "longer than the MTU",
                frame(to, from, &[&header.emit()[..], &[7; 1464]].concat()),
                |it| it.too_long,
            ),
            ("port", changed(|it| it.d_port = !it.d_port), |it| {
                it.malformed
            }),
            ("padding", padded(200), |it| it.malformed),
            (
                "no operation",
                {
                    let mut it = sent.clone();
                    it[AROUND] = 25 << 3;
                    it
                },
                |it| it.malformed,
            ),
            ("VLAN", tagged(5), |it| it.tagged),
            (
                "source",
                frame(to, [2, 9, 9, 9, 9, 9], &sent[AROUND..]),
                |it| it.foreign,
            ),
            (
                "destination",
                frame([0xff; 6], from, &sent[AROUND..]),
                |it| it.foreign,
            ),
            ("Transfer", changed(|it| it.d_id ^= 0x0100_0000), |it| {
                it.ungranted
            }),
            ("Block", changed(|it| it.b_num += 9000), |it| it.ungranted),
            ("generation", changed(|it| it.b_id ^= 0x8000), |it| {
                it.ungranted
            }),
            ("bounds", changed(|it| it.bufx ^= 0x4000), |it| {
                it.out_of_bounds
            }),
        ];
        hosts.set_mtu_at(Side::A, 1504).expect("set");
        let _ = heard(&ear);
        for (name, frame, counter) in cases {
            let before = device.counters().expect("counted");
            inside(hosts.a(), || {
                let forger = Forger::open(hosts.a().device()).expect("permitted");
                assert_eq!(forger.send(&[&frame]), 0, "the kernel took it");
            });
            let end = Instant::now() + PATIENCE;
            let counted = loop {
                let counted = device.counters().expect("counted");
                if counter(&counted) > counter(&before) || Instant::now() > end {
                    break counted;
                }
            };
            assert_eq!(
                counter(&counted),
                counter(&before) + 1,
                "{name}: {counted:?}"
            );
            assert_eq!(
                counted.dropped(),
                before.dropped() + 1,
                "{name}: {counted:?}"
            );
        }
        let seen = heard(&ear);
        assert!(seen.is_empty(), "{} frames came through", seen.len());
        hosts.set_mtu_at(Side::A, 1500).expect("set");
        drive(&mut a, &mut b, |a, b| {
            a.has_completion() && b.has_completion()
        });
        a.next_completion().expect("sent").result.expect("sent");
        verify(b.next_completion(), &bytes);
    }
}

/// Frames of the same protocol on the interface that belong to others.
#[test]
fn exclusive__or_not_decides_about_frames_for_nobody() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for exclusive in [true, false] {
        let device = device(hosts.b(), exclusive);
        let ear = inside(hosts.b(), overhear);
        let to = hardware(own_address(hosts.b(), 0));
        let nobodys = frame(to, [2, 9, 9, 9, 9, 9], &[0x78; 60]);
        let others = [&nobodys[..12], &[0x88, 0xb5], &nobodys[14..]].concat();
        inside(hosts.a(), || {
            let forger = Forger::open(hosts.a().device()).expect("permitted");
            assert_eq!(forger.send(&[&others, &nobodys]), 0, "the kernel took them");
        });
        let end = Instant::now() + PATIENCE;
        let counted = loop {
            let counted = device.counters().expect("counted");
            if counted != XdpCounters::default() || Instant::now() > end {
                break counted;
            }
        };
        let own = XdpCounters {
            unknown_key: exclusive.into(),
            passed_unknown: (!exclusive).into(),
            ..XdpCounters::default()
        };
        assert_eq!(counted, own);
        // Frames that are passed on reach other sockets a little after they are counted.
        let mut others = heard(&ear).len();
        while others < usize::from(!exclusive) && Instant::now() < end {
            others += heard(&ear).len();
        }
        assert_eq!(others, usize::from(!exclusive));
    }
}

/// Frames of one kind that the kernel makes at a time: it takes some 30 ms to start, whatever their number.
const BATCH: u32 = 1 << 15;

#[test]
fn flood__of_what_was_not_granted_comes_no_further_than_the_driver() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let (mut a, mut b, device) = joined(&hosts, &options, true);
        let header = Header {
            d_key: b.lane().key(),
            ..Header::new(Op::Data)
        };
        let (to, from) = (
            hardware(b.lane().local_addr().expect("one")),
            hardware(b.lane().peer_addr()),
        );
        let unauthenticated = frame(
            to,
            [2, 9, 9, 9, 9, 9],
            &[&header.emit()[..], &[7; 20]].concat(),
        );
        let forged = frame(to, from, &[&header.emit()[..], &[7; 20]].concat());
        let over = AtomicBool::new(false);
        let before = device.counters().expect("counted");
        let interface = Station::of(own_address(hosts.a(), 0))
            .expect("one")
            .interface;
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                inside(hosts.a(), || {
                    let generator = Generator::new(interface).expect("Linux 5.18");
                    while !over.load(Ordering::Relaxed) {
                        for frame in [&forged, &unauthenticated] {
                            generator.send(frame, BATCH).expect("sent");
                        }
                    }
                })
            });
            // By content.
            (0..4).for_each(|_| transfer(&mut a, &mut b, 8 << 20));
            over.store(true, Ordering::Relaxed);
            flood.join().expect("sent");
        });
        let after = device.counters().expect("counted");
        let account = b.account();
        assert!(after.dropped() > before.dropped() && account.dropped_foreign == 0);
        assert_eq!(
            account.protocol.dropped(zerolane_core::DropReason::NoGrant),
            0
        );
    }
}

/// Keys are random: two connections may have drawn the same one.
#[test]
fn direct__of_a_key_that_is_taken_leaves_its_owner_alone() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let program = Arc::new(attach(hosts.b(), RULES).expect("attached"));
    let direct = |key| {
        let route = Route {
            peer: [2, 0, 0, 0, 0, 1],
            local: [2, 0, 0, 0, 0, 2],
            seal: 0,
            buffer_log2: 30,
            data: None,
            control: None,
        };
        program.direct(key, route)
    };
    let owner = direct(7).expect("room");
    assert!(program.is_taken(7) && !program.is_taken(8));
    for _ in 0..=RULES.slots {
        direct(7).expect_err("taken");
    }
    assert!(program.is_taken(7), "by the first");
    let others: Vec<_> = (8..8 + RULES.slots - 1).map(direct).collect();
    assert!(
        others
            .iter()
            .all(|it| it.as_ref().is_ok_and(|it| it.is_judged()))
    );
    drop(owner);
    assert!(!program.is_taken(7));
    assert!(direct(7).expect("room").is_judged());
}
