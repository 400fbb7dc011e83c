//! Tests that packets dropped on purpose, each in its place, are named correctly and counted exactly.
#![allow(non_snake_case)]

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use netlab::forge::{self, Datagram, Forger};
use netlab::netns::{self, Namespace, Offloads, TokenBucket, Topology};
use netsim::Side;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, UdpGsoSegment};
use nix::sys::socket::{
    AddressFamily, Backlog as Queue, SockFlag, SockType, SockaddrIn, connect, listen, setsockopt,
    socket,
};
use zerolane_explain::{Drop, Explainer, Explanation, Options, Rate, Subject};

/// Counters alone.
const COUNTERS: Options = Options {
    rate: Rate::Never,
    folded: false,
    system_calls: false,
};
const PAYLOAD: [u8; 1000] = [7; 1000];

fn topology() -> Option<Topology> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    Some(Topology::pair("explain", 1500).unwrap())
}

/// What is found in `namespace` while `work` runs there.
fn explained(namespace: &Namespace, work: impl FnOnce() + Send) -> Explanation {
    let watched = || {
        let explainer = Explainer::start(Subject::Machine, COUNTERS);
        work();
        explainer.finish()
    };
    namespace.enter_thread(watched).unwrap()
}

/// The count at `place`, and that nothing else was dropped in this namespace but at the places `beside`.
fn count(explanation: &Explanation, place: &str, beside: &[&str]) -> u64 {
    let own: Vec<&Drop> = explanation
        .drops
        .iter()
        .filter(|it| it.namespace == "this")
        .collect();
    for drop in &own {
        assert!(
            drop.place == place || beside.contains(&drop.place),
            "{drop:?}"
        );
    }
    own.iter()
        .filter(|it| it.place == place)
        .map(|it| it.count)
        .sum()
}

/// Takes what is there.
fn received(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2000];
    let mut received = 0;
    while socket.recv(&mut buffer).is_ok() {
        received += 1;
    }
    received
}

#[test]
fn udp_receive_buffer__a_small_one() {
    let Some(hosts) = topology() else { return };
    const SENT: u64 = 500;
    let mut taken = 0;
    // Closed sockets are no longer listed.
    let mut kept = None;
    let explanation = explained(hosts.b(), || {
        let socket = UdpSocket::bind((hosts.b().ipv4(), 0)).unwrap();
        setsockopt(&socket, RcvBuf, &4096).unwrap();
        let to = socket.local_addr().unwrap();
        let sending = hosts.a().enter_thread(|| {
            let sender = UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap();
            for _ in 0..SENT {
                sender.send_to(&PAYLOAD, to).unwrap();
            }
        });
        sending.unwrap();
        // What is taken counts as received only then.
        settle(|| {
            taken += received(&socket);
            udp_received() >= SENT
        });
        kept = Some(socket);
    });
    let dropped = count(&explanation, "udp_receive_buffer", &[]);
    assert!(taken > 0 && dropped > 0, "{taken} of {SENT}");
    assert_eq!(dropped, SENT - taken);
    let port = kept.unwrap().local_addr().unwrap().port();
    let mut sockets = explanation.lossy_sockets.iter();
    let socket = sockets.find(|it| it.namespace == "this").unwrap();
    let owner = socket.owner.as_deref().unwrap();
    assert!(
        owner.starts_with(&format!("{} ", std::process::id())),
        "{owner}"
    );
    assert_eq!(
        (socket.port, socket.drops, socket.protocol),
        (port, dropped, "udp")
    );
    reasoned(&explanation, "SOCKET_RCVBUFF", dropped);
}

/// What it counts whose record found no room: tests beside this one drop much.
const UNRECORDED: &str = "too many at once to record why";

/// The kernel gave `reason` for so many packets at least: reasons are of the whole machine.
fn reasoned(explanation: &Explanation, reason: &str, dropped: u64) {
    if let Some(why) = explanation.missing.iter().find(|it| it.contains("reasons")) {
        eprintln!("skipped: {why}");
        return;
    }
    let reasons = explanation.drop_reasons.iter();
    let counted: u64 = reasons
        .filter(|it| it.reason == reason || it.reason == UNRECORDED)
        .map(|it| it.count)
        .sum();
    assert!(
        counted >= dropped,
        "{dropped} by {reason}: {:?}",
        explanation.drop_reasons
    );
}

/// The datagrams that UDP of this thread's namespace took or dropped, by the kernel's own count.
fn udp_received() -> u64 {
    udp_counts().iter().sum()
}

fn udp_errors() -> u64 {
    udp_counts()[2]
}

/// A counter of this thread's namespace.
fn mib(line: &str, title: &str) -> u64 {
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = snmp.lines().filter(|it| it.starts_with(line));
    let [titles, numbers] = std::array::from_fn(|_| lines.next().unwrap().split_whitespace());
    let found = titles.zip(numbers).find(|it| it.0 == title);
    found.unwrap().1.parse().unwrap()
}

/// `InDatagrams`, `NoPorts` and `InErrors`.
fn udp_counts() -> [u64; 3] {
    ["InDatagrams", "NoPorts", "InErrors"].map(|title| mib("Udp: ", title))
}

/// Waits until `there`, for a limited time.
fn settle(mut there: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("what was sent did not arrive");
}

#[test]
fn udp_checksum__a_wrong_one() {
    let Some(hosts) = topology() else { return };
    const FORGED: u64 = 50;
    let explanation = explained(hosts.b(), || {
        let socket = UdpSocket::bind((hosts.b().ipv4(), 0)).unwrap();
        let to = socket.local_addr().unwrap();
        let sending = hosts.a().enter_thread(|| {
            let frame = frame_with_wrong_checksum(&hosts, to);
            let forger = Forger::open(hosts.a().device()).unwrap();
            for _ in 0..FORGED {
                assert_eq!(forger.send(&[&frame]), 0);
            }
        });
        sending.unwrap();
        // The checksum is looked at when the datagram is received, or before by the kernel.
        settle(|| received(&socket) == 0 && udp_errors() >= FORGED);
    });
    // Those by which the frame was learnt had no port.
    assert_eq!(
        count(&explanation, "udp_checksum", &["udp_no_port"]),
        FORGED
    );
}

/// What a genuine datagram looks like, but for its checksum.
fn frame_with_wrong_checksum(hosts: &Topology, to: SocketAddr) -> Vec<u8> {
    let mut frame = genuine(hosts, to).frame_with_checksum();
    let last = frame.len() - 1;
    frame[last] ^= 1;
    frame
}

/// A datagram from one host to the other, with the addresses of their hardware.
fn genuine(hosts: &Topology, to: SocketAddr) -> Datagram {
    let sender = UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap();
    let genuine = std::thread::scope(|scope| {
        let hearing = scope.spawn(|| {
            hosts.a().enter().unwrap();
            forge::overhear(hosts.a().device(), 1500, 1, Duration::from_secs(10)).unwrap()
        });
        while !hearing.is_finished() {
            // To another port, where it counts as something else.
            let _ = sender.send_to(b"learn", (to.ip(), 9));
            std::thread::sleep(Duration::from_millis(1));
        }
        hearing.join().unwrap().remove(0)
    });
    let SocketAddr::V4(to) = to else {
        panic!("{to} is not of IPv4")
    };
    Datagram {
        to,
        payload: PAYLOAD.to_vec(),
        ..genuine
    }
}

#[test]
fn ip_reassembly__fragments_whose_rest_never_comes() {
    let Some(hosts) = topology() else { return };
    const FRAGMENTS: u16 = 10;
    let explanation = explained(hosts.b(), || {
        // Seconds that a fragment waits for the others.
        std::fs::write("/proc/sys/net/ipv4/ipfrag_time", "1").unwrap();
        let to = (hosts.b().ipv4(), 9).into();
        let sending = hosts.a().enter_thread(|| {
            let frame = genuine(&hosts, to).frame();
            let forger = Forger::open(hosts.a().device()).unwrap();
            for number in 0..FRAGMENTS {
                assert_eq!(forger.send(&[&first_fragment(&frame, number)]), 0);
            }
        });
        sending.unwrap();
        settle(|| mib("Ip: ", "ReasmFails") >= FRAGMENTS.into());
    });
    let learning = ["udp_no_port"];
    assert_eq!(
        count(&explanation, "ip_reassembly", &learning),
        FRAGMENTS.into()
    );
}

/// The frame as the first fragment of the datagram with that identification.
fn first_fragment(frame: &[u8], identification: u16) -> Vec<u8> {
    const IP: usize = 14;
    const MORE_FRAGMENTS: u8 = 0x20;
    let mut frame = frame.to_vec();
    // All but the last are multiples of 8 bytes: 20 of IP, 8 of UDP and the payload of 1000 are.
    frame[IP + 4..IP + 6].copy_from_slice(&identification.to_be_bytes());
    frame[IP + 6] = MORE_FRAGMENTS;
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..IP + 20].chunks(2);
    let sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[IP + 10..IP + 12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame
}

/// Sets how many packets may wait for a CPU, of the whole machine, and back when dropped.
struct Backlog(String);

impl Backlog {
    const SETTING: &str = "/proc/sys/net/core/netdev_max_backlog";

    fn set(packets: u32) -> Backlog {
        let before = std::fs::read_to_string(Backlog::SETTING).unwrap();
        std::fs::write(Backlog::SETTING, packets.to_string()).unwrap();
        Backlog(before)
    }
}

impl std::ops::Drop for Backlog {
    fn drop(&mut self) {
        std::fs::write(Backlog::SETTING, &self.0).unwrap();
    }
}

/// It makes the whole machine drop packets for some milliseconds.
#[test]
#[ignore = "disturbs what else runs: .ci/run runs it alone"]
fn cpu_backlog__a_short_one() {
    let Some(hosts) = topology() else { return };
    const SEGMENTS: u64 = 40;
    // Packets are cut before they are sent, and all of a burst come at once.
    hosts
        .set_offloads(
            Side::A,
            Offloads {
                tx: false,
                gro: false,
            },
        )
        .unwrap();
    let mut arrived = 0;
    // From here, for namespaces do not have the setting.
    let _short = Backlog::set(2);
    let explanation = explained(hosts.b(), || {
        let socket = UdpSocket::bind((hosts.b().ipv4(), 0)).unwrap();
        let to = socket.local_addr().unwrap();
        let sending = hosts.a().enter_thread(|| {
            let sender = UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap();
            // Addresses are resolved first.
            sender.send_to(&PAYLOAD, to).unwrap();
            settle(|| received(&socket) == 1);
            setsockopt(&sender, UdpGsoSegment, &(PAYLOAD.len() as i32)).unwrap();
            sender
                .send_to(&PAYLOAD.repeat(SEGMENTS as usize), to)
                .unwrap();
        });
        sending.unwrap();
        std::thread::sleep(Duration::from_millis(200));
        arrived = received(&socket);
    });
    let dropped = explanation
        .drops
        .iter()
        .filter(|it| it.place == "cpu_backlog");
    assert!((1..SEGMENTS).contains(&arrived), "{arrived}");
    let dropped: u64 = dropped.map(|it| it.count).sum();
    assert_eq!(dropped, SEGMENTS - arrived);
}

/// A listening socket's queue that is not emptied holds one connection more than it was made for.
#[test]
fn tcp_listen__a_short_queue() {
    let Some(hosts) = topology() else { return };
    const CALLS: usize = 20;
    let explanation = explained(hosts.b(), || {
        let listener = TcpListener::bind((hosts.b().ipv4(), 0)).unwrap();
        listen(&listener, Queue::new(1).unwrap()).unwrap();
        let to = listener.local_addr().unwrap();
        let calling = hosts.a().enter_thread(|| {
            let calls: Vec<_> = (0..CALLS).map(|_| call(to)).collect();
            // What is dropped is sent again later, and dropped again.
            std::thread::sleep(Duration::from_millis(300));
            drop(calls);
        });
        calling.unwrap();
    });
    let dropped = count(&explanation, "tcp_listen", &[]);
    assert!(dropped >= CALLS as u64 - 2, "{dropped} of {CALLS}");
}

/// Begins a connection, and does not wait for it.
fn call(to: SocketAddr) -> OwnedFd {
    let flags = SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
    let SocketAddr::V4(to) = to else {
        panic!("{to} is not of IPv4")
    };
    let started = connect(socket.as_raw_fd(), &SockaddrIn::from(to));
    assert!(
        matches!(started, Ok(()) | Err(Errno::EINPROGRESS)),
        "{started:?}"
    );
    socket
}

#[test]
fn udp_no_port__nobody_listens() {
    let Some(hosts) = topology() else { return };
    const SENT: u64 = 20;
    let explanation = explained(hosts.b(), || {
        let to = (hosts.b().ipv4(), 9);
        let sending = hosts.a().enter_thread(|| {
            let sender = UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap();
            for _ in 0..SENT {
                sender.send_to(&PAYLOAD, to).unwrap();
            }
        });
        sending.unwrap();
        settle(|| udp_received() >= SENT);
    });
    assert_eq!(count(&explanation, "udp_no_port", &[]), SENT);
    reasoned(&explanation, "NO_SOCKET", SENT);
}

#[test]
fn qdisc__a_full_one() {
    let Some(hosts) = topology() else { return };
    const SENT: u64 = 300;
    let device = hosts.a().device().to_owned();
    let kernel = hosts.a().rtnetlink().unwrap();
    let slow = TokenBucket {
        rate_bytes_per_s: 1000,
        burst_bytes: 2000,
        // A few datagrams.
        limit_bytes: 5000,
    };
    let fast = TokenBucket {
        rate_bytes_per_s: 125_000_000,
        ..slow
    };
    // Where they arrive: what is neither there nor in the queue was dropped.
    let bound = || UdpSocket::bind((hosts.b().ipv4(), 0)).unwrap();
    let receiver = hosts.b().enter_thread(bound).unwrap();
    let to = receiver.local_addr().unwrap();
    // Its own packets would wait and be dropped as well.
    without_ipv6(hosts.b());
    without_ipv6(hosts.a());
    let mut there = false;
    let mut arrived = 0;
    let explanation = explained(hosts.a(), || {
        let sender = UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap();
        // Addresses are resolved first.
        sender.send_to(&PAYLOAD, to).unwrap();
        settle(|| received(&receiver) == 1);
        there = kernel.set_token_bucket(&device, slow).is_ok();
        if !there {
            return;
        }
        let before = mib("Udp: ", "SndbufErrors");
        for _ in 0..SENT {
            assert!(sender.send_to(&PAYLOAD, to).is_ok());
        }
        // What waits passes.
        kernel.set_token_bucket(&device, fast).unwrap();
        let refused = mib("Udp: ", "SndbufErrors") - before;
        settle(|| {
            arrived += received(&receiver);
            arrived + refused >= SENT
        });
    });
    if !there {
        eprintln!("skipped: this kernel has none of the queues that fill up");
        return;
    }
    // UDP counts a datagram that a queue refused as well, and IP too on some kernels.
    let dropped = count(&explanation, "qdisc", &["udp_send_buffer", "ip_send"]);
    assert!((1..SENT).contains(&arrived), "{arrived}");
    assert_eq!(dropped, SENT - arrived);
    let at = |place| {
        let mut drops = explanation.drops.iter();
        drops.find(|it| it.place == place && it.namespace == "this")
    };
    assert_eq!(at("qdisc").unwrap().interface.as_ref(), Some(&device));
    assert_eq!(at("udp_send_buffer").map(|it| it.count), Some(dropped));
}

/// Stops unsolicited traffic there, if the kernel supports IPv6.
fn without_ipv6(namespace: &Namespace) {
    let setting = format!(
        "/proc/sys/net/ipv6/conf/{}/disable_ipv6",
        namespace.device()
    );
    let disable = || match std::path::Path::new(&setting).exists() {
        true => std::fs::write(&setting, "1"),
        false => Ok(()),
    };
    namespace.enter_thread(disable).unwrap().unwrap();
}

#[test]
fn interfaces__of_a_namespace_of_its_children() {
    let Some(hosts) = topology() else { return };
    let mut explainer = Explainer::start(Subject::Children, COUNTERS);
    // In the namespace before it is seen, and for as long as that takes.
    let mut child = hosts.b().command("sleep").arg("60").spawn().unwrap();
    settle(|| {
        let there = std::fs::read_link(format!("/proc/{}/ns/net", child.id())).ok();
        there != std::fs::read_link("/proc/self/ns/net").ok()
    });
    std::thread::sleep(Duration::from_millis(300));
    explainer.poll();
    let socket = hosts
        .b()
        .enter_thread(|| UdpSocket::bind((hosts.b().ipv4(), 0)).unwrap());
    let to = socket.unwrap().local_addr().unwrap();
    let sending = hosts.a().enter_thread(|| {
        let sender = UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap();
        for _ in 0..100 {
            sender.send_to(&PAYLOAD, to).unwrap();
        }
    });
    sending.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let explanation = explainer.finish();
    let found = explanation
        .interfaces
        .iter()
        .find(|it| it.namespace == hosts.b().name());
    let bytes = found.map_or(0, |it| it.rx_bytes);
    assert!(
        bytes >= 100 * PAYLOAD.len() as u64,
        "{:?}",
        explanation.interfaces
    );
}
