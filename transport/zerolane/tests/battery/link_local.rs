//! Tests that IPv6 link-local addresses work with the name or number of their interface.

use crate::drive::{Flag, PATIENCE, transfer};
use crate::path::{Net, Pair, hosts};
use netlab::netns::Namespace;
use netsim::Side;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use zerolane::options::LaneChoice;
use zerolane::{Connection, Endpoint, Options};

const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xb);

/// Number of the host's interface.
fn scope_of(host: &Namespace) -> u32 {
    let number = || nix::net::if_::if_nametoindex(host.device());
    host.enter_thread(number).expect("enter").expect("a device")
}

fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(it) => it.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Connects from a to `to`, formatted by `written`, where b listens on `listens_on`, and transfers something.
fn connects(
    lane: LaneChoice,
    listens_on: impl Fn(u32) -> SocketAddr + Sync,
    written: impl Fn(&Namespace, u16) -> SocketAddr + Sync,
) {
    let Some(hosts) = hosts(1500) else { return };
    if hosts.b().ipv6().is_none() {
        eprintln!("skipped: no IPv6");
        return;
    }
    for (side, address) in [(Side::A, A), (Side::B, B)] {
        let host = hosts.side(side);
        let links = host.rtnetlink().expect("netlink");
        let assigned = links.assign_address(host.device(), address.into(), 64);
        assigned.expect("assigned");
    }
    let options = Options::default().with(|it| it.lane.choice = lane);
    let [scope_a, scope_b] = Side::BOTH.map(|side| scope_of(hosts.side(side)));
    let bind = || Endpoint::bind(listens_on(scope_b), options.clone());
    let mut endpoint = hosts.b().enter_thread(bind).expect("enter").expect("bind");
    let port = endpoint.local_addr().port();
    let connected = &Flag::default();
    let (mut a, mut b) = (None, None);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let connect = || {
                let _raised = connected.raise_at_end();
                let to = written(hosts.a(), port);
                a = Some(Connection::connect(to, &options).expect("connect"));
            };
            hosts.a().enter_thread(connect).expect("enter");
        });
        let accept = || {
            let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
            let mut accepted = accepted.expect("a client connects");
            connected.drive_until_raised(&mut accepted);
            b = Some(accepted);
        };
        hosts.b().enter_thread(accept).expect("enter");
    });
    let (a, b) = (a.expect("connected"), b.expect("accepted"));
    for (end, own) in [(&a, scope_a), (&b, scope_b)] {
        let local = end.local_addr().expect("there is a way");
        assert_eq!((scope(local), scope(end.peer_addr())), (own, own));
    }
    let net = Net::Hosts(hosts);
    transfer(&mut Pair { a, b, net }, 91, &[100_000, 1]);
}

fn anywhere(_: u32) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, 0).into()
}

fn by_number(host: &Namespace, port: u16) -> SocketAddr {
    SocketAddrV6::new(B, port, 0, scope_of(host)).into()
}

/// As parsed by getaddrinfo.
fn by_name(host: &Namespace, port: u16) -> SocketAddr {
    let written = format!("{B}%{}", host.device());
    let mut found = (written.as_str(), port).to_socket_addrs().expect("found");
    found.next().expect("one")
}

#[test]
fn connect__to_a_link_local_address_over_udp() {
    for lane in [LaneChoice::Best, LaneChoice::Udp] {
        connects(lane, anywhere, by_number);
        connects(lane, anywhere, by_name);
        let own = |scope| SocketAddrV6::new(B, 0, 0, scope).into();
        connects(lane, own, by_number);
    }
}

#[test]
fn connect__to_a_link_local_address_by_ip_118() {
    connects(LaneChoice::Ip118, anywhere, by_number);
}
