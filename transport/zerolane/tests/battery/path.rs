//! Makes the paths between two ends on which the battery runs.

use crate::drive::{Flag, PATIENCE};
use netlab::lab::{Lab, LabConfig};
use netlab::netns::{self, Namespace, Routed, Topology};
use netlab::udp::Relay;
use netsim::Side;
use netsim::link::{LinkConfig, Loss, Reorder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::time::Duration;
use zerolane::counters::LaneKind;
use zerolane::options::{DeviceOptions, EthernetAddress, EthernetDevice, LaneChoice};
use zerolane::{Connection, Endpoint, Options, Security};

/// Without encryption; encryption is the default.
pub fn plain() -> Options {
    Options::default().with(|it| it.security = Security::plain())
}

/// A network between the two ends of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Path {
    /// 127.0.0.1 by UDP, MTU 65536.
    LoopbackV4,
    /// ::1, MTU 65536.
    LoopbackV6,
    /// Shared memory.
    Shared,
    /// Two namespaces joined by veth of this MTU, IPv4.
    Veth(u32),
    /// Like `Veth`, IPv6.
    VethV6(u32),
    /// Raw Ethernet, without IP, over veth of this MTU.
    Ethernet(u32),
    /// Raw Ethernet by AF_XDP, which bypasses the kernel's network stack.
    Bypass(u32),
    /// Like `Bypass`, with ends that poll the driver.
    Polled(u32),
    /// Like `Bypass`, with a program in both drivers that drops ungranted payload.
    Validated(u32),
    /// IP protocol 118 over veth of this MTU, IPv4.
    Ip118(u32),
    /// Like `Ip118`, IPv6.
    Ip118V6(u32),
    /// Like `Ip118`, over a router whose second link has an MTU of 1400: it reports packets that do not fit.
    Ip118Routed,
    /// UDP over a router whose second link has this MTU: it reports packets that do not fit.
    Routed(u32),
    /// Like `Routed`, and no report of the router arrives.
    Narrow(u32),
    /// IP protocol 118 through an emulated network of MTU 1500 that loses this part of all packets, delays some and
    /// duplicates some.
    Ip118Lossy(f64),
    /// An emulated link on loopback of MTU 1500 that loses this part of all packets, delays some and duplicates some.
    Lossy(f64),
    /// Like `Lossy`, with the smallest MTU of any path: 1280.
    LossyNarrow(f64),
}

/// Two connected ends, and the network between them.
pub struct Pair {
    /// The Initiator.
    pub a: Connection,
    /// The Responder.
    pub b: Connection,
    pub net: Net,
}

/// The network between the ends.
pub enum Net {
    Loopback,
    Hosts(Topology),
    Routed(Routed),
    Lab(Lab),
    Relay(#[allow(dead_code, reason = "kept alive")] Relay),
}

impl Net {
    /// The two hosts.
    pub fn hosts(&self) -> &Topology {
        match self {
            Net::Hosts(hosts) => hosts,
            _ => panic!("a path without hosts"),
        }
    }

    /// Runs the `work` of one end in the network namespace of its sockets, because an end whose peer is silent opens
    /// others.
    pub fn run<T: Send>(&self, side: Side, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Net::Hosts(hosts) => hosts.side(side).enter_thread(work).expect("enter"),
            Net::Routed(hosts) => hosts.side(side).enter_thread(work).expect("enter"),
            Net::Lab(lab) => lab.host(side.index()).enter_thread(work).expect("enter"),
            Net::Loopback | Net::Relay(_) => work(),
        }
    }
}

impl Path {
    /// `whole` bytes or Transfers, or as many as this path can carry in a short test.
    pub fn scale(self, whole: usize) -> usize {
        match self {
            Path::Lossy(loss) | Path::LossyNarrow(loss) if loss >= 0.1 => whole / 64,
            Path::Lossy(_) | Path::LossyNarrow(_) | Path::Ip118Lossy(_) => whole / 16,
            _ => whole,
        }
    }

    /// Two connected ends, both with `options`. `None`, with a message on stderr, if not permitted.
    pub fn connect(self, options: &Options) -> Option<Pair> {
        self.connect_with(options, options)
    }

    /// Two connected ends, each with its own options.
    pub fn connect_with(self, a: &Options, b: &Options) -> Option<Pair> {
        match self {
            Path::LoopbackV4 => {
                let ip = Ipv4Addr::LOCALHOST.into();
                Some(on_loopback(ip, &by_udp(a), &by_udp(b)))
            }
            Path::LoopbackV6 => {
                let ip = Ipv6Addr::LOCALHOST.into();
                Some(on_loopback(ip, &by_udp(a), &by_udp(b)))
            }
            Path::Shared => {
                let (a, b) = (shared(a), shared(b));
                let pair = on_loopback(Ipv4Addr::LOCALHOST.into(), &a, &b);
                assert_eq!(pair.a.account().lane, LaneKind::SharedMemory);
                Some(pair)
            }
            Path::Veth(mtu) => between_hosts(mtu, a, b, |host| Some(host.ipv4().into())),
            Path::Ethernet(mtu) => Some(over_ethernet(hosts(mtu)?, &ethernet(a), &ethernet(b))),
            Path::Bypass(mtu) => {
                let pair = with_devices(mtu, a, b, DeviceOptions::default())?;
                assert!(pair.a.account().bypass && pair.b.account().bypass);
                Some(pair)
            }
            Path::Polled(mtu) => {
                let polled = DeviceOptions {
                    busy_poll: Some(8),
                    ..DeviceOptions::default()
                };
                with_devices(mtu, a, b, polled)
            }
            Path::Validated(mtu) => {
                let validated = DeviceOptions {
                    queue: None,
                    exclusive: true,
                    ..DeviceOptions::default()
                };
                with_devices(mtu, a, b, validated)
            }
            Path::VethV6(mtu) => between_hosts(mtu, a, b, |host| host.ipv6().map(IpAddr::from)),
            Path::Ip118(mtu) => {
                let hosts = hosts(mtu)?;
                let (here, there) = (hosts.a().clone(), hosts.b().clone());
                let ip = there.ipv4().into();
                Some(over_ip118([&here, &there], ip, a, b, Net::Hosts(hosts)))
            }
            Path::Ip118V6(mtu) => {
                let hosts = hosts(mtu)?;
                let (here, there) = (hosts.a().clone(), hosts.b().clone());
                let Some(ip) = there.ipv6() else {
                    eprintln!("skipped: no IPv6");
                    return None;
                };
                Some(over_ip118(
                    [&here, &there],
                    ip.into(),
                    a,
                    b,
                    Net::Hosts(hosts),
                ))
            }
            Path::Routed(mtu) => over_router(mtu, a, b, |_| {}),
            Path::Narrow(mtu) => over_router(mtu, a, b, |hosts| {
                for side in Side::BOTH {
                    hosts
                        .side(side)
                        .enter_thread(ignore_reports)
                        .expect("enter");
                }
            }),
            Path::Ip118Routed => {
                may_make_hosts()?;
                let hosts = Routed::pair("lane", [1500, 1400]).expect("permitted");
                let [here, there] = Side::BOTH.map(|side| hosts.side(side).clone());
                let ip = there.ipv4().into();
                Some(over_ip118([&here, &there], ip, a, b, Net::Routed(hosts)))
            }
            Path::Ip118Lossy(loss) => {
                may_make_hosts()?;
                let config = LabConfig {
                    prefix: "lane".to_owned(),
                    link: lossy(loss, 1500),
                    seed: 7,
                    ..LabConfig::default()
                };
                let lab = Lab::start(config).expect("permitted");
                let (here, there) = (lab.host(0).clone(), lab.host(1).clone());
                let ip = there.ipv4().into();
                Some(over_ip118([&here, &there], ip, a, b, Net::Lab(lab)))
            }
            Path::Lossy(loss) => Some(through_relay(loss, 1500, a, b)),
            Path::LossyNarrow(loss) => Some(through_relay(loss, 1280, a, b)),
        }
    }
}

/// Makes the network namespace of this thread ignore routers' reports of packets that do not fit, as if a filter dropped
/// them. (No limit of ICMP messages holds for these.)
fn ignore_reports() {
    const SWITCH: &str = "/proc/sys/net/ipv4/ip_no_pmtu_disc";
    std::fs::write(SWITCH, "3").unwrap_or_else(|error| panic!("{SWITCH}: {error}"));
}

/// Two ends with a router between them whose second link has an MTU of `mtu`, after `prepare`.
fn over_router(mtu: u32, a: &Options, b: &Options, prepare: impl FnOnce(&Routed)) -> Option<Pair> {
    may_make_hosts()?;
    let hosts = Routed::pair("lane", [1500, mtu]).expect("permitted");
    prepare(&hosts);
    let ip = hosts.side(Side::B).ipv4();
    let bind = || Endpoint::bind((ip, 0), b.clone());
    let endpoint = hosts.side(Side::B).enter_thread(bind);
    let endpoint = endpoint.expect("enter").expect("bind");
    let (a, b) = join_in(endpoint, None, a, |side, work| {
        hosts.side(side).enter_thread(work).expect("enter")
    });
    let net = Net::Routed(hosts);
    Some(Pair { a, b, net })
}

/// UDP, even if both ends are on one host.
fn by_udp(options: &Options) -> Options {
    options.clone().with(|it| it.lane.choice = LaneChoice::Udp)
}

/// Only shared memory.
pub fn shared(options: &Options) -> Options {
    options
        .clone()
        .with(|it| it.lane.choice = LaneChoice::SharedMemory)
}

/// Only raw Ethernet.
fn ethernet(options: &Options) -> Options {
    options
        .clone()
        .with(|it| it.lane.choice = LaneChoice::Ethernet)
}

fn on_loopback(ip: IpAddr, a: &Options, b: &Options) -> Pair {
    let endpoint = Endpoint::bind((ip, 0), b.clone()).expect("bind");
    let (a, b) = join(endpoint, None, a);
    let net = Net::Loopback;
    Pair { a, b, net }
}

/// A link that loses this part of all packets, delays some and duplicates some.
fn lossy(loss: f64, mtu: usize) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(200),
        loss: Loss::Random(loss),
        reorder: Reorder {
            probability: loss,
            by: Duration::from_micros(500),
        },
        duplicate: loss / 4.0,
        mtu: Some(mtu),
        ..LinkConfig::default()
    }
}

fn through_relay(loss: f64, mtu: usize, a: &Options, b: &Options) -> Pair {
    let endpoint = Endpoint::bind("127.0.0.1:0", b.clone()).expect("bind");
    let link = lossy(loss, mtu);
    let relay = Relay::start(endpoint.local_addr(), link, link, 7).expect("relay");
    let (a, b) = join(endpoint, Some(relay.addr()), a);
    let net = Net::Relay(relay);
    Pair { a, b, net }
}

/// Two hosts, or `None` with a message if not permitted.
pub fn hosts(mtu: u32) -> Option<Topology> {
    may_make_hosts()?;
    Some(Topology::pair("lane", mtu).expect("permitted"))
}

/// `None` with a message if namespaces are not permitted.
fn may_make_hosts() -> Option<()> {
    let permitted = netns::is_permitted();
    if !permitted {
        eprintln!("skipped: network namespaces need root");
    }
    permitted.then_some(())
}

fn between_hosts(
    mtu: u32,
    a: &Options,
    b: &Options,
    address: impl Fn(&Namespace) -> Option<IpAddr>,
) -> Option<Pair> {
    let hosts = hosts(mtu)?;
    let Some(ip) = address(hosts.b()) else {
        eprintln!("skipped: no IPv6");
        return None;
    };
    let bind = || Endpoint::bind((ip, 0), b.clone());
    let endpoint = hosts.b().enter_thread(bind).expect("enter").expect("bind");
    let (a, b) = join_in(endpoint, None, a, |side, work| {
        hosts.side(side).enter_thread(work).expect("enter")
    });
    let net = Net::Hosts(hosts);
    Some(Pair { a, b, net })
}

/// Two hosts with both interfaces opened as devices.
fn with_devices(mtu: u32, a: &Options, b: &Options, opened: DeviceOptions) -> Option<Pair> {
    let hosts = hosts(mtu)?;
    let with_device = |side: Side, options: &Options| {
        let open = || EthernetDevice::open(hosts.device(side), opened);
        let device = hosts.side(side).enter_thread(open).expect("enter");
        ethernet(options).with(|it| it.lane.device = Some(device.expect("opened")))
    };
    let (a, b) = (with_device(Side::A, a), with_device(Side::B, b));
    Some(over_ethernet(hosts, &a, &b))
}

fn over_ethernet(hosts: Topology, a: &Options, b: &Options) -> Pair {
    let own = |host: &Namespace| EthernetAddress::new(host.device(), None, 0);
    let bind = || Endpoint::bind(own(hosts.b()), b.clone());
    let endpoint = hosts.b().enter_thread(bind).expect("enter").expect("bind");
    // An interface has a different number at the other host.
    let here = hosts.a().enter_thread(|| own(hosts.a()).to_socket_addrs());
    let here = here.expect("enter").expect("an interface").next();
    let (Some(SocketAddr::V6(here)), SocketAddr::V6(there)) = (here, endpoint.local_addr()) else {
        panic!("no addresses of raw Ethernet");
    };
    let to = SocketAddrV6::new(*there.ip(), there.port(), 0, here.scope_id());
    let (a, b) = join_in(endpoint, Some(to.into()), a, |side, work| {
        hosts.side(side).enter_thread(work).expect("enter")
    });
    assert_eq!(a.account().lane, LaneKind::Ethernet);
    let net = Net::Hosts(hosts);
    Pair { a, b, net }
}

/// Only IP protocol 118, to `ip` of the second host.
fn over_ip118(
    [here, there]: [&Namespace; 2],
    ip: IpAddr,
    a: &Options,
    b: &Options,
    net: Net,
) -> Pair {
    let ip118 = |options: &Options| {
        options
            .clone()
            .with(|it| it.lane.choice = LaneChoice::Ip118)
    };
    let (a, b) = (ip118(a), ip118(b));
    let bind = || Endpoint::bind((ip, 0), b.clone());
    let endpoint = there.enter_thread(bind).expect("enter").expect("bind");
    let (a, b) = join_in(endpoint, None, &a, |side, work| {
        let host = [here, there][side.index()];
        host.enter_thread(work).expect("enter")
    });
    assert_eq!(a.account().lane, LaneKind::Ip118);
    Pair { a, b, net }
}

fn join(
    endpoint: Endpoint,
    via: Option<SocketAddr>,
    options: &Options,
) -> (Connection, Connection) {
    join_in(endpoint, via, options, |_, work| work())
}

/// Work of one end, run in the network namespace of its sockets.
type Work<'a> = &'a mut (dyn FnMut() + Send);

fn join_in(
    mut endpoint: Endpoint,
    via: Option<SocketAddr>,
    options: &Options,
    run: impl Fn(Side, Work<'_>) + Sync,
) -> (Connection, Connection) {
    let to = via.unwrap_or(endpoint.local_addr());
    let connected = Flag::default();
    let (mut a, mut b) = (None, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(Side::B, &mut || {
                let accepted = endpoint.accept(Some(PATIENCE)).expect("accept");
                let mut accepted = accepted.expect("a client connects");
                // The answer is sent by a call, and may be lost.
                connected.drive_until_raised(&mut accepted);
                b = Some(accepted);
            });
        });
        run(Side::A, &mut || {
            let _raised = connected.raise_at_end();
            a = Some(Connection::connect(to, options).expect("connect"));
        });
    });
    (a.expect("connected"), b.expect("accepted"))
}
