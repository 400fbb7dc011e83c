//! Tests that a socket from another program can be adopted, and only a suitable one.
#![allow(non_snake_case)]
use super::*;
use crate::address::LaneChoice;
use crate::driver::Step;
use crate::listener::Listener;
use crate::options::Options;
use socket2::{Domain, Protocol, Type};
use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

fn over_udp() -> Options {
    Options::default().with(|it| it.lane.choice = LaneChoice::Udp)
}

fn adopt(passed: impl Into<OwnedFd>) -> io::Result<Listener> {
    Listener::adopt(passed.into(), over_udp())
}

/// A socket as systemd makes it.
fn passed(address: &str) -> Socket {
    let address: SocketAddr = address.parse().expect("an address");
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
    socket.set_reuse_address(true).expect("set");
    socket.bind(&SockAddr::from(address)).expect("bound");
    socket
}

#[test]
fn adopt__what_cannot_be_listened_on_is_named() {
    let any = "127.0.0.1:0";
    let connected = UdpSocket::bind(any).expect("bound");
    let peer = connected.local_addr().expect("bound");
    connected.connect(peer).expect("to itself");
    let unbound = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    for (passed, words) in [
        (
            File::open("/dev/null").expect("there").into(),
            "not a socket",
        ),
        (
            TcpListener::bind(any).expect("bound").into(),
            "not a UDP socket",
        ),
        (
            UnixDatagram::unbound().expect("made").into(),
            "not an IPv4 or IPv6 socket",
        ),
        (OwnedFd::from(connected), "connected to 127.0.0.1:"),
        (unbound.into(), "not bound to an address and a port"),
    ] {
        let why = adopt(passed).expect_err(words).to_string();
        assert!(why.contains(words), "{why:?} does not say {words:?}");
    }
}

#[test]
fn adopt__several_connections_beside_it() {
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let mut listener = adopt(passed(address)).expect("adopted");
        let mut peer = listener.local_addr();
        if peer.ip().is_unspecified() {
            let loopback = if peer.is_ipv4() { "127.0.0.2" } else { "::1" };
            peer.set_ip(loopback.parse().expect("an address"));
        }
        let mut open = vec![];
        for _ in 0..3 {
            let mut calling = crate::any::connect(peer, &over_udp()).expect("connecting");
            let accepted = std::iter::repeat_with(|| {
                calling.turn(Step::Whole).expect("asking");
                let wait = Some(Duration::from_millis(1));
                listener.accept(wait).expect("accepting")
            });
            let mut accepted = accepted.take(10_000).find_map(|it| it).expect("asked");
            for _ in 0..10_000 {
                calling.turn(Step::Whole).expect("connecting");
                accepted.turn(Step::Whole).expect("connecting");
                if calling.is_connected() && accepted.is_connected() {
                    break;
                }
            }
            assert!(
                calling.is_connected() && accepted.is_connected(),
                "{address}"
            );
            open.extend([calling, accepted]);
        }
    }
}

#[test]
fn bind_beside__lets_no_other_program_in() {
    let adopted = passed("127.0.0.1:0");
    let local = adopted.local_addr().expect("bound");
    let joins = || {
        let other = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        other.set_reuse_address(true).expect("set");
        other.bind(&local).is_ok()
    };
    assert!(joins(), "as systemd leaves it");
    let (adopted, address) = super::adopt(adopted.into(), 1 << 20).expect("adopted");
    let beside = [(); 2].map(|()| bind_beside(&adopted, address).expect("bound"));
    assert!(!joins());
    drop(beside);
    assert!(!joins());
    assert!(!adopted.reuse_address().expect("read"));
}

#[test]
fn bind_beside__an_ipv6_socket_that_leaves_ipv4_to_others() {
    let passed = Socket::new(Domain::IPV6, Type::DGRAM, None).expect("a socket");
    passed.set_only_v6(true).expect("set");
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    passed.bind(&any.into()).expect("bound");
    let (adopted, local) = super::adopt(passed.into(), 1 << 20).expect("adopted");
    let _other = UdpSocket::bind(("0.0.0.0", local.port())).expect("free");
    bind_beside(&adopted, local).expect("bound");
}
