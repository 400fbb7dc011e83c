//! Tests labs on the real kernel. Skips, with a message, without the permissions.
//!
//! No test depends on the speed of the machine.

#![allow(non_snake_case)]

use netlab::lab::{Lab, LabConfig, LabStats};
use netlab::netns::{self, Namespace};
use netsim::link::{LinkConfig, Loss, Reorder};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Long enough on a busy machine; only ever waited for in full on failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Long enough for what is on its way to arrive, where nothing more is expected.
const QUIET: Duration = Duration::from_millis(300);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A lab, or `None` with a message where namespaces are not allowed.
fn lab_or_skip(config: LabConfig) -> Option<Lab> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    Some(Lab::start(config).expect("permitted"))
}

fn lab_of(link: LinkConfig) -> Option<Lab> {
    lab_or_skip(LabConfig {
        link,
        seed: 5,
        ..LabConfig::default()
    })
}

fn socket_in(host: &Namespace, address: IpAddr) -> UdpSocket {
    let socket = host
        .enter_thread(|| UdpSocket::bind((address, 0)))
        .expect("enter")
        .expect("bind");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket
}

/// A socket that holds all that a test sends at once.
fn socket(host: &Namespace) -> UdpSocket {
    let socket = socket_in(host, host.ipv4().into());
    setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)).expect("root may");
    socket
}

/// A signal to the process, as another test's child may cause, is no failure.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A payload that no other number has.
fn payload(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(length.max(4), number as u8);
    bytes
}

fn send_numbered(from: &UdpSocket, to: &UdpSocket, count: u32, length: usize) {
    let to = to.local_addr().expect("bound");
    for number in 0..count {
        from.send_to(&payload(number, length), to).expect("send");
    }
}

/// The numbers that arrive, each datagram checked: as many as are `due`, and then until it is quiet.
fn receive_numbers(socket: &UdpSocket, length: usize, due: usize) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut buffer = [0; 2000];
    loop {
        let patience = if numbers.len() < due { PATIENCE } else { QUIET };
        socket.set_read_timeout(Some(patience)).expect("timeout");
        let Ok((got, _)) = receive(socket, &mut buffer) else {
            return numbers;
        };
        let number = u32::from_be_bytes(buffer[..4].try_into().expect("4 bytes"));
        assert_eq!(buffer[..got], payload(number, length));
        numbers.push(number);
    }
}

/// Waits until the counters are as asked, and fails if they never are.
fn wait_for(lab: &Lab, reached: impl Fn(&LabStats) -> bool) -> LabStats {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let stats = lab.stats();
        if reached(&stats) {
            return stats;
        }
        thread::sleep(ms(1));
    }
    panic!("never reached: {:?}", lab.stats());
}

/// Sends `length` bytes over TCP from host 0 to host 1 and checks them all.
fn assert_tcp_carries(lab: &Lab, length: usize) {
    let content: Vec<u8> = (0..length)
        .map(|at| {
            (at as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_be_bytes()[0]
        })
        .collect();
    let [client, server] = [0, 1].map(|host| lab.host(host).clone());
    let listener = server
        .enter_thread(|| TcpListener::bind((server.ipv4(), 0)))
        .expect("enter")
        .expect("bind");
    let to = listener.local_addr().expect("bound");
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || TcpStream::connect_timeout(&to, PATIENCE);
            let mut stream = client.enter_thread(connect).expect("enter").expect("open");
            stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
            stream.write_all(&content).expect("send");
        });
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream.read_to_end(&mut received).expect("receive");
    });
    assert!(received == content, "content differs");
}

#[test]
fn lab__tcp_arrives_whole_through_everything_at_once() {
    let Some(lab) = lab_of(LinkConfig {
        delay: ms(1),
        jitter: ms(1),
        loss: Loss::Random(0.01),
        reorder: Reorder {
            probability: 0.02,
            by: ms(1),
        },
        duplicate: 0.02,
        rate_bits_per_s: Some(200_000_000),
        ..LinkConfig::default()
    }) else {
        return;
    };
    assert_tcp_carries(&lab, 4 << 20);
    let stats = lab.stop().expect("no failure");
    let there = stats.towards[1];
    assert!(there.lost > 0 && there.duplicated > 0 && there.reordered > 0);
    assert_eq!(stats.missed + stats.overflowed, 0);
}

#[test]
fn lab__frames_are_no_longer_than_the_mtu() {
    let Some(lab) = lab_of(LinkConfig {
        mtu: Some(1500),
        ..LinkConfig::default()
    }) else {
        return;
    };
    assert_tcp_carries(&lab, 4 << 20);
    let total = lab.stats().total();
    assert_eq!(total.too_big, 0);
    assert!(total.sent > (4 << 20) / 1500, "{total:?}");
}

#[test]
fn lab__ipv4_and_ipv6_between_all_hosts_of_a_star() {
    let Some(lab) = lab_or_skip(LabConfig {
        hosts: 3,
        ..LabConfig::default()
    }) else {
        return;
    };
    let addresses = |host: &Namespace| {
        let v6 = host.ipv6().expect("this kernel has IPv6");
        [IpAddr::from(host.ipv4()), IpAddr::from(v6)]
    };
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)] {
        let (from, to) = (lab.host(from), lab.host(to));
        for (ip_from, ip_to) in addresses(from).into_iter().zip(addresses(to)) {
            let (sender, receiver) = (socket_in(from, ip_from), socket_in(to, ip_to));
            send_numbered(&sender, &receiver, 1, 1400);
            let mut buffer = [0; 2000];
            let (length, source) = receive(&receiver, &mut buffer).expect("arrives");
            assert_eq!(buffer[..length], payload(0, 1400));
            assert_eq!(source, sender.local_addr().expect("bound"));
        }
    }
}

#[test]
fn lab__loses_the_share_asked_for_and_nothing_else() {
    const COUNT: u32 = 5000;
    let Some(lab) = lab_of(LinkConfig {
        loss: Loss::Random(0.1),
        ..LinkConfig::default()
    }) else {
        return;
    };
    let (from, to) = (socket(lab.host(0)), socket(lab.host(1)));
    send_numbered(&from, &to, COUNT, 100);
    // The hosts' own IPv6 sends a few frames when it comes up.
    const OWN: u64 = 20;
    let through = |stats: &LabStats| {
        let there = stats.towards[1];
        there.sent >= u64::from(COUNT) && there.lost + there.delivered == there.sent
    };
    let due = wait_for(&lab, through).towards[1].delivered - OWN;
    let arrived = receive_numbers(&to, 100, due as usize).len() as u64;
    let stats = wait_for(&lab, through);
    let there = stats.towards[1];
    assert_eq!((stats.missed, stats.unsent), (0, 0));
    assert!(
        (arrived..arrived + OWN).contains(&there.delivered),
        "{arrived} {there:?}"
    );
    // Five standard deviations of a binomial distribution.
    let (mean, deviation) = (500.0, (5000.0_f64 * 0.1 * 0.9).sqrt());
    let lost = there.lost as f64;
    assert!((lost - mean).abs() < 5.0 * deviation, "{there:?}");
}

#[test]
fn lab__full_queue_drops_the_tail_and_counts_it() {
    const COUNT: u32 = 60;
    let Some(lab) = lab_of(LinkConfig {
        // A second for each: all come while the first is served.
        rate_bits_per_s: Some(8_000),
        queue_packets: 10,
        ..LinkConfig::default()
    }) else {
        return;
    };
    let (from, to) = (socket(lab.host(0)), socket(lab.host(1)));
    send_numbered(&from, &to, COUNT, 972);
    let stats = wait_for(&lab, |stats| stats.towards[1].sent >= u64::from(COUNT));
    let there = stats.towards[1];
    assert!(there.queue_dropped >= u64::from(COUNT) - 15, "{there:?}");
    assert_eq!(there.lost, 0);
    let mut buffer = [0; 2000];
    let (first, _) = receive(&to, &mut buffer).expect("the head of the queue goes on");
    assert_eq!(buffer[..first], payload(0, 972));
}

#[test]
fn lab__a_queue_can_be_bounded_in_bytes() {
    let Some(lab) = lab_of(LinkConfig {
        rate_bits_per_s: Some(8_000),
        queue_bytes: Some(2500),
        ..LinkConfig::default()
    }) else {
        return;
    };
    let (from, to) = (socket(lab.host(0)), socket(lab.host(1)));
    // One is being served, two wait.
    send_numbered(&from, &to, 20, 972);
    let stats = wait_for(&lab, |stats| stats.towards[1].sent >= 20);
    assert!(stats.towards[1].queue_dropped >= 15, "{stats:?}");
}

#[test]
fn lab__delays_at_least_as_long_as_asked() {
    let Some(lab) = lab_of(LinkConfig {
        delay: ms(30),
        ..LinkConfig::default()
    }) else {
        return;
    };
    let (here, there) = (socket(lab.host(0)), socket(lab.host(1)));
    let started = Instant::now();
    send_numbered(&here, &there, 1, 100);
    let mut buffer = [0; 200];
    let (length, from) = receive(&there, &mut buffer).expect("arrives");
    there.send_to(&buffer[..length], from).expect("send");
    assert_eq!(receive(&here, &mut buffer).expect("comes back").0, 100);
    assert!(started.elapsed() >= ms(60));
    assert!(lab.stats().lateness.frames >= 2);
}

#[test]
fn lab__duplicates_and_keeps_order() {
    let Some(lab) = lab_of(LinkConfig {
        delay: ms(2),
        jitter: ms(5),
        duplicate: 1.0,
        ..LinkConfig::default()
    }) else {
        return;
    };
    let (from, to) = (socket(lab.host(0)), socket(lab.host(1)));
    send_numbered(&from, &to, 50, 500);
    let expected: Vec<u32> = (0..50).flat_map(|number| [number, number]).collect();
    assert_eq!(receive_numbers(&to, 500, expected.len()), expected);
}

#[test]
fn set_link__takes_effect_in_one_direction_while_running() {
    let Some(lab) = lab_of(LinkConfig::default()) else {
        return;
    };
    let (one, two) = (socket(lab.host(0)), socket(lab.host(1)));
    lab.set_link(
        1,
        LinkConfig {
            loss: Loss::Random(1.0),
            ..lab.link(1)
        },
    );
    send_numbered(&one, &two, 20, 100);
    send_numbered(&two, &one, 20, 100);
    assert_eq!(receive_numbers(&one, 100, 20).len(), 20);
    wait_for(&lab, |stats| stats.towards[1].lost >= 20);
    assert_eq!(receive_numbers(&two, 100, 0), []);

    lab.set_link(1, LinkConfig::default());
    send_numbered(&one, &two, 20, 100);
    assert_eq!(receive_numbers(&two, 100, 20).len(), 20);
}

#[test]
fn set_up__a_link_that_is_down_carries_nothing() {
    let Some(lab) = lab_of(LinkConfig::default()) else {
        return;
    };
    let (one, two) = (socket(lab.host(0)), socket(lab.host(1)));
    lab.set_up(1, false);
    send_numbered(&one, &two, 5, 100);
    wait_for(&lab, |stats| stats.towards[1].down >= 5);
    assert_eq!(receive_numbers(&two, 100, 0), []);
    lab.set_up(1, true);
    send_numbered(&one, &two, 5, 100);
    assert_eq!(receive_numbers(&two, 100, 5), [0, 1, 2, 3, 4]);
}

#[test]
fn lab__moderated_frames_are_put_out_together() {
    let Some(lab) = lab_or_skip(LabConfig {
        link: LinkConfig {
            rate_bits_per_s: Some(100_000_000),
            ..LinkConfig::default()
        },
        moderation: Some(ms(5)),
        ..LabConfig::default()
    }) else {
        return;
    };
    let (one, two) = (socket(lab.host(0)), socket(lab.host(1)));
    // 16 ms of the link.
    send_numbered(&one, &two, 200, 1000);
    let arrived = receive_numbers(&two, 1000, 200);
    assert_eq!(arrived, (0..200).collect::<Vec<u32>>());
    assert_tcp_carries(&lab, 1 << 20);
    let lateness = lab.stop().expect("it ran").lateness;
    assert!(lateness.median >= ms(1), "{lateness:?}");
}

#[test]
fn start__a_moderation_out_of_range_is_refused() {
    for moderation in [Duration::ZERO, ms(11)] {
        let error = Lab::start(LabConfig {
            moderation: Some(moderation),
            ..LabConfig::default()
        })
        .expect_err("refused");
        assert!(matches!(error, netns::Error::BadModeration(it) if it == moderation));
    }
}

#[test]
fn drop__removes_all_namespaces() {
    let Some(lab) = lab_or_skip(LabConfig {
        hosts: 3,
        ..LabConfig::default()
    }) else {
        return;
    };
    let hub = lab.host(0).name().replace("-h1", "-hub");
    let mut names: Vec<String> = lab.hosts().map(|host| host.name().to_owned()).collect();
    names.push(hub);
    let exists = |name: &String| Path::new("/run/netns").join(name).exists();
    assert!(names.iter().all(exists), "{names:?}");
    drop(lab);
    assert!(!names.iter().any(exists), "{names:?}");
}

#[test]
fn start__too_few_and_too_many_hosts_are_refused() {
    for hosts in [0, 1, netns::MAX_HOSTS + 1, 1000] {
        let error = Lab::start(LabConfig {
            hosts,
            ..LabConfig::default()
        })
        .expect_err("refused");
        assert!(matches!(error, netns::Error::BadHostCount(count) if count == hosts));
    }
}
