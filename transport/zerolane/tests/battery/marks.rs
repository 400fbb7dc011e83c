//! Tests that datagrams are sent ECN-capable and with the DSCP of the program, and that congestion marks are counted.

use crate::drive::{PATIENCE, transfer};
use crate::path::{Pair, Path};
use netsim::Side;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::collections::BTreeSet;
use std::io::Read;
use std::time::{Duration, Instant};
use zerolane::options::Control;
use zerolane::{Connection, Options};

const PATHS: [Path; 3] = [Path::LoopbackV4, Path::LoopbackV6, Path::VethV6(1500)];

fn controlled(control: Control) -> Options {
    Options::default().with(|it| it.rate.control = control)
}

/// Datagrams that `end` received: ECN-capable ones, and marked ones.
fn seen(end: &Connection) -> (u64, u64) {
    let counters = end.account().protocol;
    (counters.ecn_capable, counters.ecn_marked)
}

fn exchange(pair: &mut Pair) {
    transfer(pair, 1, &[4 << 20, 1, 300_000]);
}

#[test]
fn datagrams__are_capable_when_the_controller_reads_marks() {
    for path in PATHS {
        let Some(mut pair) = path.connect(&controlled(Control::Model)) else {
            continue;
        };
        exchange(&mut pair);
        let (capable, marked) = seen(&pair.b);
        assert!(capable > 0, "{path:?}");
        assert_eq!(marked, 0, "{path:?}");
    }
}

#[test]
fn datagrams__are_plain_where_grants_are_enough() {
    for path in PATHS {
        let Some(mut pair) = path.connect(&controlled(Control::Lan)) else {
            continue;
        };
        exchange(&mut pair);
        assert_eq!(seen(&pair.b), (0, 0), "{path:?}");
    }
}

/// Sets both bits, as a congested queue would.
#[test]
fn datagrams__that_are_marked_are_counted() {
    let Some(mut pair) = Path::LoopbackV4.connect(&controlled(Control::Lan)) else {
        return;
    };
    SockRef::from(&pair.a).set_tos_v4(0b11).expect("set");
    exchange(&mut pair);
    let (capable, marked) = seen(&pair.b);
    assert_eq!(capable, marked);
    let datagrams = pair.b.account().datagrams_received;
    assert!(marked > 0 && marked <= datagrams, "{marked} of {datagrams}");
}

/// Each datagram of a train counts, although the kernel merges them.
#[test]
fn datagrams__of_trains_are_each_counted() {
    let Some(mut pair) = Path::Veth(1500).connect(&controlled(Control::Lan)) else {
        return;
    };
    SockRef::from(&pair.a).set_tos_v4(0b11).expect("set");
    transfer(&mut pair, 1, &[8 << 20; 4]);
    let account = pair.b.account();
    assert!(account.protocol.trains_received > 0);
    let (capable, marked) = seen(&pair.b);
    assert_eq!(capable, marked);
    let least = account.protocol.bytes_received / 1500;
    assert!(marked >= least, "{marked} of {least} and more");
}

/// Opens what sees each packet of the namespace that this thread is in, from its IP header on.
fn packets() -> Socket {
    let all = Protocol::from(i32::from((nix::libc::ETH_P_ALL as u16).to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(all)).expect("a packet socket");
    socket.set_nonblocking(true).expect("set");
    socket
}

/// The traffic classes of the packets of more than `longer` bytes since the last look.
fn classes(mut socket: &Socket, longer: usize) -> BTreeSet<u8> {
    let mut packet = [0; 4096];
    let mut seen = BTreeSet::new();
    while let Ok(len) = socket.read(&mut packet) {
        let class = match packet[0] >> 4 {
            4 => packet[1],
            6 => packet[0] << 4 | packet[1] >> 4,
            _ => continue,
        };
        if len > longer {
            seen.insert(class);
        }
    }
    seen
}

/// Sends a datagram of `len` bytes from a to b.
fn datagram(pair: &mut Pair, len: usize) {
    pair.a.send_datagram(vec![7; len]).expect("sent");
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "{len} bytes never came");
        let came = pair.b.recv_datagram(Some(Duration::from_millis(5)));
        if let Some(came) = came.expect("open").got() {
            assert_eq!(came, vec![7; len]);
            return;
        }
        // What is paced leaves later.
        let none = pair.a.recv_datagram(Some(Duration::from_millis(1)));
        assert!(none.expect("open").got().is_none());
    }
}

#[test]
fn datagrams__of_the_program_have_the_dscp_that_it_chose() {
    // Longer than a packet: with GSO, which IP protocol 118 lacks, only trains are seen so.
    const WHOLE: usize = 1600;
    for (path, longer) in [
        (Path::Veth(1500), WHOLE),
        (Path::VethV6(1500), WHOLE),
        (Path::Ip118(1500), 1000),
    ] {
        for (control, ecn) in [(Control::Lan, 0), (Control::Model, 0b10)] {
            let Some(mut pair) = path.connect(&controlled(control)) else {
                continue;
            };
            let seen = pair.net.run(Side::B, packets);
            for dscp in [0, 46, 10, 0, 63] {
                pair.a.set_dscp(dscp).expect("set");
                datagram(&mut pair, 20_000);
                datagram(&mut pair, 100);
                let seen = classes(&seen, longer);
                let (class, probes) = (dscp << 2 | ecn, ecn);
                assert!(seen.contains(&class), "{path:?} {dscp}: {seen:?}");
                // Whole packets are probes of the path as well.
                let others = seen.iter().any(|&it| it != class && it != probes);
                assert!(!others, "{path:?} {dscp}: {seen:?}");
                if longer == WHOLE {
                    assert_eq!(seen.len(), 1, "{path:?} {dscp}: {seen:?}");
                }
            }
            // Everything else has none.
            transfer(&mut pair, 1, &[1 << 20]);
            let seen = classes(&seen, 1000);
            assert_eq!(seen, BTreeSet::from([ecn]), "{path:?}");
        }
    }
}
