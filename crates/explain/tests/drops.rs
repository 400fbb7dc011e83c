//! Packets dropped on purpose, each in its place, in network namespaces: named rightly, and counted exactly.
#![allow(non_snake_case)]

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use netlab::forge::{self, Datagram, Forger};
use netlab::netns::{self, Namespace, Topology};
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};
use zerolane_explain::{Drop, Explainer, Explanation, Options, Subject};

/// Counters alone.
const COUNTERS: Options = Options {
    frequency_hz: 0,
    folded: false,
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
    // Sockets that are closed are not listed any more.
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
    let socket = &explanation.lossy_sockets[0];
    assert_eq!(
        (socket.port, socket.drops, socket.protocol),
        (port, dropped, "udp")
    );
}

/// The datagrams that UDP of this thread's namespace took or dropped, by the kernel's own count.
fn udp_received() -> u64 {
    udp_counts().iter().sum()
}

fn udp_errors() -> u64 {
    udp_counts()[2]
}

/// `InDatagrams`, `NoPorts` and `InErrors`.
fn udp_counts() -> [u64; 3] {
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let line = snmp
        .lines()
        .filter(|it| it.starts_with("Udp: "))
        .nth(1)
        .unwrap();
    let mut numbers = line.split_whitespace().skip(1);
    std::array::from_fn(|_| numbers.next().unwrap().parse().unwrap())
}

/// Waits until `there`, but not for ever.
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
fn frame_with_wrong_checksum(hosts: &Topology, to: std::net::SocketAddr) -> Vec<u8> {
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
    let std::net::SocketAddr::V4(to) = to else {
        panic!("{to} is of IPv4")
    };
    let datagram = Datagram {
        to,
        payload: PAYLOAD.to_vec(),
        ..genuine
    };
    let mut frame = datagram.frame_with_checksum();
    let last = frame.len() - 1;
    frame[last] ^= 1;
    frame
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
}

#[test]
fn qdisc__a_full_one() {
    let Some(hosts) = topology() else { return };
    const SENT: u64 = 300;
    let device = hosts.a().device().to_owned();
    let tc = |words: &str| {
        let words = words.split_whitespace();
        Command::new("tc").args(words).output()
    };
    let mut there = false;
    let mut sent = 0;
    let explanation = explained(hosts.a(), || {
        // Slow, and room for a few datagrams.
        let made = tc(&format!(
            "qdisc add dev {device} root tbf rate 8kbit burst 2000 limit 5000"
        ));
        there = made.is_ok_and(|it| it.status.success());
        if !there {
            return;
        }
        let sender = UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap();
        // Addresses are resolved first.
        let to = (hosts.b().ipv4(), 9);
        sender.send_to(b"first", to).unwrap();
        settle(|| {
            std::fs::read_to_string("/proc/thread-self/net/arp")
                .unwrap()
                .contains("0x2")
        });
        for _ in 0..SENT {
            sent += u64::from(sender.send_to(&PAYLOAD, to).is_ok());
        }
    });
    if !there {
        eprintln!("skipped: this kernel mounts none of the queues that fill up, or there is no tc");
        return;
    }
    // UDP counts a datagram that a queue refused as well, and IP too on some kernels.
    let dropped = count(&explanation, "qdisc", &["udp_send_buffer", "ip_send"]);
    let at = explanation
        .drops
        .iter()
        .find(|it| it.place == "qdisc")
        .unwrap();
    assert_eq!(at.interface.as_ref(), Some(&device));
    // What the queue and the bucket hold passes or waits.
    assert!(
        (SENT - 20..SENT).contains(&dropped),
        "{dropped} of {sent}: {at:?}"
    );
    let refused = explanation
        .drops
        .iter()
        .find(|it| it.place == "udp_send_buffer");
    assert_eq!(refused.map(|it| it.count), Some(dropped));
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
