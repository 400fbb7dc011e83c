//! Tests that two drivers in one thread, at two hosts joined by veth, exchange payload despite other senders of the
//! protocol.
#![allow(non_snake_case)]

use super::*;
use crate::address::LaneChoice;
use crate::datagram::ethernet::tests::{
    End, PATIENCE, content, drive, hosts, inside, post, transfer,
};
use crate::driver::Step;
use crate::listener::Listener;
use crate::seal::Security;
use crate::unavailable::NoIp118;
use netlab::netns::{Namespace, Topology};
use netsim::Side;
use socket2::{Domain, Protocol, SockAddr, Type};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use std::time::Instant;
use zerolane_core::CloseReason;
use zerolane_wire::encapsulation::IP_PROTOCOL;
use zerolane_wire::{HEADER_LEN, Header, Op};

fn both() -> [Options; 2] {
    [Security::default(), Security::plain()].map(|security| {
        Options::default().with(|it| {
            it.lane.choice = LaneChoice::Ip118;
            it.security = security;
        })
    })
}

/// The addresses of a host.
fn addresses(host: &Namespace) -> Vec<IpAddr> {
    let v6 = host.ipv6().map(IpAddr::from);
    [Some(host.ipv4().into()), v6]
        .into_iter()
        .flatten()
        .collect()
}

fn listen(host: &Namespace, at: (IpAddr, u16), options: &Options) -> io::Result<Listener> {
    inside(host, || Listener::bind(at.into(), options.clone()))
}

/// Listens as [`listen`], on a port of an earlier listener. A child that another test is starting has that listener's
/// sockets until it executes its program.
fn listen_again(host: &Namespace, at: (IpAddr, u16), options: &Options) -> Listener {
    let end = Instant::now() + PATIENCE;
    loop {
        match listen(host, at, options) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            listening => return listening.expect("a port"),
        }
    }
}

fn join_at(
    hosts: &Topology,
    listener: &mut Listener,
    to: SocketAddr,
    options: &Options,
) -> (End, End) {
    let connect = || crate::any::connect(to, options).expect("connecting");
    let mut a = inside(hosts.a(), connect);
    let end = Instant::now() + PATIENCE;
    let mut b = loop {
        assert!(Instant::now() < end, "{:?}", listener.counters());
        a.turn(Step::Whole).expect("asking");
        let wait = Some(Duration::from_millis(1));
        // A connection's socket is made in the namespace of the thread.
        let accepted = inside(hosts.b(), || listener.accept(wait));
        if let Some(b) = accepted.expect("accepting") {
            break b;
        }
    };
    drive(&mut a, &mut b, |a, b| a.is_connected() && b.is_connected());
    assert_eq!(b.account().lane, LaneKind::Ip118);
    (a, b)
}

fn join(hosts: &Topology, ip: IpAddr, options: &Options) -> (End, End) {
    let mut listener = listen(hosts.b(), (ip, 0), options).expect("a port");
    let to = listener.local_addr();
    join_at(hosts, &mut listener, to, options)
}

#[test]
fn transfer__every_length_at_every_mtu() {
    for mtu in [1280, 1500, 9000, 65_535] {
        let Some(hosts) = hosts(mtu) else {
            return;
        };
        for ip in addresses(hosts.b()) {
            for options in both() {
                let (mut a, mut b) = join(&hosts, ip, &options);
                transfer(&mut a, &mut b, 1 << 20);
                let stu = b.account().stu as usize;
                let header = if ip.is_ipv4() { 20 } else { 40 };
                let whole = stu + HEADER_LEN + options.security.seal_len();
                let most = zerolane_core::Config::default().max_stu as usize + HEADER_LEN;
                // Payload has whole words.
                assert!(
                    whole + 8 > most.min(mtu as usize - header),
                    "{whole} of {mtu}"
                );
                let edges = [stu - 1, stu, stu + 1, 3 * stu + 5, 64 * stu + 1];
                for len in (0..10).chain(39..48).chain(edges) {
                    transfer(&mut a, &mut b, len);
                }
                assert!(!a.account().gso && !a.account().gro);
                // One has the family's address, the other the listener's port.
                assert_eq!(b.lane().local_addr(), Some(a.lane().peer_addr()));
                assert_eq!(a.lane().local_addr(), Some(b.lane().peer_addr()));
            }
        }
    }
}

/// No copies in user space except of payload that no forecast can place.
#[test]
fn strict__permits_payload_in_its_place() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for ip in addresses(hosts.b()) {
        let strict = both()[1].clone().with(|it| it.strict = true);
        let (mut a, mut b) = join(&hosts, ip, &strict);
        transfer(&mut a, &mut b, 1 << 20);
        let stu = b.account().stu as usize;
        let before = b.account().bytes_placed;
        transfer(&mut a, &mut b, 40 * stu);
        assert_eq!(b.account().bytes_placed - before, 40 * stu as u64);
    }
}

/// An IPv4 packet of the protocol with these options, which the kernel completes.
fn packet((from, to): (Ipv4Addr, Ipv4Addr), options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = 5 + (options.len() / 4) as u8;
    let mut packet = vec![0x40 | words, 0, 0, 0, 0, 0, 0x40, 0, 64, IP_PROTOCOL, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(options);
    packet.extend(payload);
    packet
}

fn raw_socket() -> Socket {
    let protocol = Protocol::from(i32::from(IP_PROTOCOL));
    Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).expect("permitted")
}

fn forge(to: Ipv4Addr, packets: &[Vec<u8>]) {
    let socket = raw_socket();
    socket.set_header_included_v4(true).expect("set");
    let to = SockAddr::from(SocketAddrV4::new(to, 0));
    for packet in packets {
        socket.send_to(packet, &to).expect("sent");
    }
}

/// Packets that a host can send if it knows a connection's key, in the peer's name or its own.
#[test]
fn forged__packets_are_counted_and_change_nothing() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let (here, there) = (hosts.a().ipv4(), hosts.b().ipv4());
    for options in both() {
        let (mut a, mut b) = join(&hosts, there.into(), &options);
        transfer(&mut a, &mut b, 1 << 20);
        let header = Header {
            d_key: b.lane().key(),
            ..Header::new(Op::Data)
        };
        let datagram = [&header.emit()[..], &[7; 100]].concat();
        let way = (here, there);
        let broken = [
            packet(way, &[], &datagram[..12]),
            packet(way, &[], &datagram[..HEADER_LEN - 1]),
            packet(way, &[], &datagram),
        ];
        let not_shown = [
            packet(way, &[], &datagram[..11]),
            packet(way, &[], &[]),
            packet(way, &[], &[0; 100]),
            // With options; from another address.
            packet(way, &[1, 1, 1, 0], &datagram),
            packet((Ipv4Addr::new(10, 77, 0, 9), there), &[], &datagram),
        ];
        let before = b.account();
        inside(hosts.a(), || {
            forge(there, &not_shown);
            forge(there, &broken);
            // Longer than the MTU: the forger's kernel fragments it, and the receiver's reassembles it.
            let long = [&datagram[..HEADER_LEN], &[7; 3000]].concat();
            let to = SockAddr::from(SocketAddrV4::new(there, 0));
            assert_eq!(raw_socket().send_to(&long, &to).expect("sent"), long.len());
        });
        let dropped = |end: &End| end.account().protocol.dropped_total();
        let expected = dropped(&b) + broken.len() as u64 + 1;
        drive(&mut a, &mut b, |_, b| dropped(b) >= expected);
        transfer(&mut a, &mut b, 1 << 20);
        assert_eq!(dropped(&b), expected);
        // Among them are datagrams that the ends sent each other.
        let came = b.account().datagrams_received - before.datagrams_received;
        let sent = a.account().datagrams_sent;
        assert!(came <= sent + broken.len() as u64 + 1, "{came} of {sent}");
    }
}

#[test]
fn unauthenticated__wrong_requests_are_counted_and_refused() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let way = (hosts.a().ipv4(), hosts.b().ipv4());
    for options in both() {
        let mut listener = listen(hosts.b(), (way.1.into(), 0), &options).expect("a port");
        let header = Header {
            d_port: listener.local_addr().port(),
            ..Header::new(Op::RequestConnection)
        };
        let header = header.emit();
        let asked = [
            packet(way, &[], &header[..6]),
            packet(way, &[], &header[..HEADER_LEN - 1]),
            packet(way, &[], &header),
        ];
        let not_shown = [
            packet(way, &[], &header[..5]),
            packet(way, &[], &[0xff; 80]),
        ];
        inside(hosts.a(), || {
            forge(way.1, &not_shown);
            forge(way.1, &asked);
        });
        let end = Instant::now() + PATIENCE;
        while listener.counters().refused < asked.len() as u64 {
            assert!(Instant::now() < end, "{:?}", listener.counters());
            let wait = Some(Duration::from_millis(1));
            assert!(listener.accept(wait).expect("accepting").is_none());
        }
        let to = listener.local_addr();
        let (mut a, mut b) = join_at(&hosts, &mut listener, to, &options);
        transfer(&mut a, &mut b, 300_000);
        assert_eq!(listener.counters().refused, asked.len() as u64);
    }
}

#[test]
fn listeners__of_one_host_have_ports() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for ip in addresses(hosts.b()) {
        for options in both() {
            let mut first = listen_again(hosts.b(), (ip, 7411), &options);
            let mut second = listen(hosts.b(), (ip, 0), &options).expect("another");
            let [one, other] = [first.local_addr(), second.local_addr()];
            assert_ne!(one.port(), other.port());
            let taken = listen(hosts.b(), (ip, 7411), &options).expect_err("taken");
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            assert_eq!(taken.to_string(), NoIp118::InUse.to_string());
            let mut pairs = [
                join_at(&hosts, &mut first, one, &options),
                join_at(&hosts, &mut first, one, &options),
                join_at(&hosts, &mut second, other, &options),
            ];
            for (a, b) in &mut pairs {
                transfer(a, b, 300_000);
            }
            // The connections continue without the listener, and its port can be used again.
            drop(first);
            let mut first = listen_again(hosts.b(), (ip, 7411), &options);
            let (mut a, mut b) = join_at(&hosts, &mut first, one, &options);
            transfer(&mut a, &mut b, 300_000);
            for (a, b) in &mut pairs {
                transfer(a, b, 300_000);
            }
        }
    }
}

/// A listener at all addresses answers from the one that its peer called.
#[test]
fn listener__at_any_address_answers_from_the_one_that_was_called() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let kernel = hosts.b().rtnetlink().expect("there");
    let second = [10, 77, 0, 9].into();
    let assigned = kernel.assign_address(hosts.device(Side::B), second, 24);
    assigned.expect("free");
    for options in both() {
        for ip in [IpAddr::from([10, 77, 0, 9]), hosts.b().ipv4().into()] {
            let any = Ipv4Addr::UNSPECIFIED.into();
            let mut listener = listen(hosts.b(), (any, 0), &options).expect("a port");
            let to = SocketAddr::new(ip, listener.local_addr().port());
            let (mut a, mut b) = join_at(&hosts, &mut listener, to, &options);
            transfer(&mut a, &mut b, 300_000);
            assert_eq!(b.lane().local_addr(), Some(to));
        }
    }
}

/// Turns `ends` until each has ended. Returns why.
fn ended<const N: usize>(mut ends: [&mut End; N]) -> [CloseReason; N] {
    let end = Instant::now() + PATIENCE;
    while ends.iter().any(|it| it.closed().is_none()) {
        assert!(Instant::now() < end, "it goes on");
        for it in ends.iter_mut().filter(|it| it.closed().is_none()) {
            it.turn(Step::Whole).expect("no error");
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    ends.map(|it| it.closed().expect("ended"))
}

/// As over UDP: the lane has no interface of its own, and the peer falls silent.
#[test]
fn interface__gone_ends_both_ends_after_the_idle_timeout() {
    for options in both() {
        let Some(hosts) = hosts(1500) else {
            return;
        };
        let impatient = options.with(|it| it.times.idle = Duration::from_millis(500));
        let (mut a, mut b) = join(&hosts, hosts.b().ipv4().into(), &impatient);
        transfer(&mut a, &mut b, 300_000);
        post(&mut a, &mut b, &content(4 << 20, 3));
        hosts.a().delete(0).expect("there");
        let gone = [CloseReason::PeerDead, CloseReason::Unreachable];
        for why in ended([&mut a, &mut b]) {
            assert!(gone.contains(&why), "{why}");
        }
    }
}

/// The kernel of a host without a raw socket of the protocol reports that.
#[test]
fn connect__where_nothing_takes_the_protocol_says_so() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for ip in addresses(hosts.b()) {
        for options in both() {
            let to = SocketAddr::new(ip, 7411);
            let connect = || crate::any::connect(to, &options).expect("connecting");
            let mut a = inside(hosts.a(), connect);
            let [why] = ended([&mut a]);
            assert_eq!(
                why,
                CloseReason::Unreachable,
                "{ip}, {:?}",
                options.security.mode
            );
        }
    }
}

/// As an ordinary user.
#[test]
fn connect__without_the_right_says_what_is_needed() {
    let options = &both()[0];
    let to = SocketAddr::from(([127, 0, 0, 1], 7411));
    let connected = crate::any::connect(to, options).map(drop);
    let bound = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), options.clone()).map(drop);
    let refused: Vec<_> = [connected, bound]
        .into_iter()
        .filter_map(Result::err)
        .collect();
    if refused.is_empty() {
        eprintln!("skipped: this process has the rights");
        return;
    }
    assert_eq!(refused.len(), 2);
    for error in refused {
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains("setcap cap_net_raw+ep"),
            "{error}"
        );
    }
}
