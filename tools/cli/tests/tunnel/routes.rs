//! Tests a default route through a peer.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use netlab::netns::Namespace;

use crate::lab::{Lab, Outside, inside, stream, until};

/// An address of A that only B's default route leads to.
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Where a datagram from B to the far address comes from; `None`: it does not come.
fn source_at_far(lab: &Lab) -> Option<IpAddr> {
    let bound = lab.hosts.a().enter_thread(|| UdpSocket::bind((FAR, 0)));
    let receiver = bound.unwrap().unwrap();
    let wait = Some(Duration::from_millis(500));
    receiver.set_read_timeout(wait).unwrap();
    let bound = lab.hosts.b().enter_thread(|| UdpSocket::bind("0.0.0.0:0"));
    let to = receiver.local_addr().unwrap();
    bound.unwrap().unwrap().send_to(b"who", to).ok()?;
    let came = receiver.recv_from(&mut [0; 8]);
    came.ok().map(|(_, source)| source.ip())
}

/// The number by which tunnels make rules.
const OF_TUNNELS: u8 = 157;

/// Rules of tunnels that the kernel has at a host, IPv4 and IPv6.
fn rules(host: &Namespace) -> usize {
    host.rtnetlink().unwrap().rules_of(OF_TUNNELS).unwrap()
}

/// The peer is itself behind B's default route, so the datagrams of the tunnel must not go into it.
#[test]
fn up__a_default_route_through_a_peer() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    let links = a.rtnetlink().unwrap();
    links.assign_address(a.device(), FAR.into(), 32).unwrap();
    let links = b.rtnetlink().unwrap();
    links.add_route(Ipv4Addr::UNSPECIFIED, 0, a.ipv4()).unwrap();
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let file = lab.base.path().join("tb.conf");
    let near = format!("Endpoint = {}:9186", a.ipv4());
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace(&near, &format!("Endpoint = {FAR}:9186"));
    let text = text.replace("10.9.0.1, fd99::1", "0.0.0.0/0, ::/0");
    fs::write(&file, text).unwrap();
    let [of_a, of_b] = lab.both(&[]);
    until("inside", || source_at_far(&lab) == Some(inside(2)[0]));
    stream(b, a, FAR.into());
    stream(b, a, inside(1)[1]);
    assert_eq!(
        rules(b),
        5,
        "main, outside and inside; nothing is outside in IPv6"
    );
    // Killed: the rules stay, without effect, until the next tunnel.
    drop(of_b);
    let outside = Some(IpAddr::from(b.ipv4()));
    until("outside", || source_at_far(&lab) == outside);
    assert_eq!(rules(b), 5);
    let mut of_b = lab.up(b, &["./tb.conf"]);
    lab.wait_connected();
    until("inside", || source_at_far(&lab) == Some(inside(2)[0]));
    assert_eq!(rules(b), 5, "no stale ones");
    // A restart of the far end is found again.
    drop(of_a);
    let of_a = lab.up(a, &["./ta.conf"]);
    until("inside", || source_at_far(&lab) == Some(inside(2)[0]));
    assert!(lab.output(b, &["down", "tb"]).status.success());
    assert!(of_b.0.wait().unwrap().success());
    assert_eq!(rules(b), 0);
    assert_eq!(source_at_far(&lab), outside);
    drop(of_a);
}
