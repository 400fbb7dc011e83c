//! Tests that ICMP messages forged with nothing but the addresses and ports end no connection.

use super::*;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// Type and code of messages that the kernel reports to a connected socket: every fatal one of `icmp_err_convert`, one
/// for a datagram longer than the path's MTU, and one for a bad header.
const IPV4: [(u8, u8); 12] = [
    (3, 2),
    (3, 3),
    (3, 4),
    (3, 6),
    (3, 7),
    (3, 8),
    (3, 9),
    (3, 10),
    (3, 13),
    (3, 14),
    (3, 15),
    (12, 0),
];
/// The same of `icmpv6_err_convert`.
const IPV6: [(u8, u8); 5] = [(1, 1), (1, 4), (1, 5), (1, 6), (4, 0)];
const UDP: u8 = 17;

/// Sends a forged report from b's host that a datagram from `from` to `to` was not delivered.
fn forge(hosts: &Topology, (from, to): (SocketAddr, SocketAddr), (kind, code): (u8, u8)) {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    // Code 4 of type 3 reports an MTU of 1400 bytes.
    message[6..8].copy_from_slice(&[5, 120]);
    let (domain, protocol) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            message.extend([0x45, 0, 5, 220, 0, 0, 0x40, 0, 64, UDP, 0, 0]);
            message.extend(from.octets().iter().chain(&to.octets()));
            (Domain::IPV4, Protocol::ICMPV4)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            message[6..8].fill(0);
            message.extend([0x60, 0, 0, 0, 5, 180, UDP, 64]);
            message.extend(from.octets().iter().chain(&to.octets()));
            (Domain::IPV6, Protocol::ICMPV6)
        }
        _ => panic!("one family"),
    };
    message.extend(from.port().to_be_bytes());
    message.extend(to.port().to_be_bytes());
    message.extend([5, 180, 0, 0]);
    if from.is_ipv4() {
        let words = message.chunks_exact(2).map(|it| [it[0], it[1]]);
        let sum: u32 = words.map(|it| u32::from(u16::from_be_bytes(it))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let to = SockAddr::from(SocketAddr::new(from.ip(), 0));
    let sent = hosts.b().enter_thread(|| {
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).expect("root's");
        socket.send_to(&message, &to)
    });
    assert_eq!(sent.expect("entered").expect("sent"), message.len());
}

/// Waits until the kernel holds an error for the socket.
fn await_error(end: &End) {
    let mut socket = libc::pollfd {
        fd: end.lane().socket().as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one pollfd that lives across the call.
    let ready = unsafe { libc::poll(&raw mut socket, 1, 10_000) };
    assert_eq!(
        (ready, socket.revents),
        (1, libc::POLLERR),
        "the kernel took no notice"
    );
}

/// A sender without the keys cannot end a connection.
#[test]
fn icmp__that_is_forged_ends_nothing() {
    let Some(hosts) = hosts(1500) else { return };
    let families: [(IpAddr, &[(u8, u8)]); 2] = [
        (hosts.b().ipv4().into(), &IPV4),
        (hosts.b().ipv6().expect("has one").into(), &IPV6),
    ];
    for (address, reports) in families {
        for &report in reports {
            let (mut a, mut b) = join_at(Some(&hosts), address, &sealed());
            let ports = (
                a.lane().local_addr().expect("bound"),
                b.lane().local_addr().expect("bound"),
            );
            let bytes = content(30_000, 1);
            // Found by receiving, and by sending.
            forge(&hosts, ports, report);
            await_error(&a);
            a.turn(Step::Whole)
                .unwrap_or_else(|it| panic!("{report:?}: {it}"));
            verify(transfer(&mut a, &mut b, &bytes), &bytes);
            post(&mut a, &mut b, &bytes);
            forge(&hosts, ports, report);
            await_error(&a);
            let sent = a.turn(Step::WithoutInput);
            sent.unwrap_or_else(|it| panic!("{report:?}: {it}"));
            drive(&mut a, &mut b, |_, b| b.has_completion());
            verify(b.next_completion(), &bytes);
            assert_eq!(a.closed(), None, "{report:?}");
            assert!(a.account().dropped_on_send > 0, "{report:?}");
        }
    }
}
