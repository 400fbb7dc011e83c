//! Tests which DSCP packets have inside and outside.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use netlab::netns::Namespace;
use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket,
};

use crate::content::content;
use crate::lab::{Lab, Outside, PATIENCE, inside, until};

/// The port of the tunnel.
const TUNNEL: u16 = 9186;
/// ECN-capable, RFC 3168.
const ECT_0: u8 = 0b10;
/// Shortest payload, and how far lengths are apart: more than the headers that a packet gets outside.
const STEP: usize = 180;

/// A packet of UDP at a host.
struct Seen {
    /// Of the tunnel.
    outside: bool,
    /// With all headers of IP, bytes.
    len: usize,
    /// DSCP and ECN.
    class: u8,
}

/// Opens what sees each packet of a host, from its IP header on.
fn packets(host: &Namespace) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (family, kind) = (AddressFamily::Packet, SockType::Datagram);
    let open = || socket(family, kind, flags, SockProtocol::EthAll).unwrap();
    host.enter_thread(open).unwrap()
}

/// The packets of UDP since the last look.
fn seen(packets: &OwnedFd) -> Vec<Seen> {
    let mut bytes = vec![0; 1 << 16];
    let mut all = vec![];
    while let Ok(len) = recv(packets.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
        let packet = &bytes[..len];
        let (class, protocol, header) = match packet[0] >> 4 {
            4 => (packet[1], packet[9], usize::from(packet[0] & 15) * 4),
            6 => (packet[0] << 4 | packet[1] >> 4, packet[6], 40),
            _ => continue,
        };
        if protocol != 17 {
            continue;
        }
        let port = |at: usize| u16::from_be_bytes([packet[header + at], packet[header + at + 1]]);
        all.push(Seen {
            outside: port(0) == TUNNEL || port(2) == TUNNEL,
            len,
            class,
        });
    }
    all
}

/// Sends `len` bytes from B to A with this DSCP until they have come.
fn send(lab: &Lab, family: usize, dscp: u8, len: usize) {
    let open = |host: &Namespace, number: u8| {
        let at = SocketAddr::new(inside(number)[family], 0);
        host.enter_thread(|| UdpSocket::bind(at).unwrap()).unwrap()
    };
    let (receiver, sender) = (open(lab.hosts.a(), 1), open(lab.hosts.b(), 2));
    let class = i32::from(dscp << 2 | ECT_0);
    match family {
        0 => setsockopt(&sender, Ipv4Tos, &class).unwrap(),
        _ => setsockopt(&sender, Ipv6TClass, &class).unwrap(),
    }
    let wait = std::time::Duration::from_secs(1);
    receiver.set_read_timeout(Some(wait.min(PATIENCE))).unwrap();
    let to = receiver.local_addr().unwrap();
    let sent = content(len as u64, len);
    until("received", || {
        sender.send_to(&sent, to).unwrap();
        let mut came = vec![0; 1 << 16];
        let len = receiver.recv_from(&mut came).map(|it| it.0);
        len.is_ok_and(|len| came[..len] == sent)
    });
}

/// Inside, a packet keeps its DSCP and its ECN field; outside, its datagram has the DSCP only if asked.
#[test]
fn up__dscp_is_copied_outside_if_asked() {
    let Some(lab) = Lab::new() else { return };
    for (outside, copied) in [
        (Outside::V4, true),
        (Outside::V6, true),
        (Outside::V4, false),
    ] {
        lab.configure(outside, "10.9.0.2, fd99::2");
        lab.configure_interfaces(if copied { "DSCP = copy" } else { "DSCP = 0" });
        let packets = packets(lab.hosts.a());
        let ends = lab.both(&[]);
        let mut len = STEP;
        for family in [0, 1] {
            for dscp in [0, 46, 10] {
                len += STEP;
                let before = seen(&packets);
                send(&lab, family, dscp, len);
                let all = seen(&packets);
                let classes = |outside| -> BTreeSet<u8> {
                    let of_it = all.iter().filter(|it| it.outside == outside);
                    let of_it = of_it.filter(|it| (len..len + STEP).contains(&it.len));
                    of_it.map(|it| it.class).collect()
                };
                let class = dscp << 2 | ECT_0;
                assert_eq!(classes(false), BTreeSet::from([class]), "inside");
                let outer = if copied { dscp } else { 0 };
                let got: BTreeSet<u8> = classes(true).iter().map(|it| it >> 2).collect();
                assert!(got.contains(&outer), "{dscp} outside: {got:?}");
                // What is short is the tunnel's own: handshakes, confirmations, questions.
                let own = before.iter().chain(&all);
                let mut own = own.filter(|it| it.outside && it.len < STEP);
                assert!(own.all(|it| it.class >> 2 == 0));
                if !copied {
                    let mut all = all.iter().filter(|it| it.outside);
                    assert!(all.all(|it| it.class >> 2 == 0), "{dscp} leaks");
                }
            }
        }
        drop(ends);
    }
}
