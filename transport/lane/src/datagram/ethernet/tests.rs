//! Tests that two drivers in one thread, at two hosts joined by veth, exchange payload despite other hosts of the
//! segment.
#![allow(non_snake_case)]

use super::*;
use crate::address::{EthernetAddress, LaneChoice};
use crate::any::AnyLane;
use crate::driver::{Completion, Driver, DriverError, Progress, Report, Step};
use crate::ethernet::AROUND;
use crate::listener::Listener;
use crate::memory::{Memory, Region};
use crate::seal::Security;
use netlab::forge::Forger;
use netlab::netns::{self, Namespace, Topology};
use netsim::Side;
use socket2::{Domain, Protocol, Type};
use std::net::{SocketAddrV6, ToSocketAddrs};
use std::time::Instant;
use zerolane_core::{Delivery, WorkRequest};
use zerolane_wire::encapsulation::{ETHERTYPE, MIN_FRAME, pad_frame};
use zerolane_wire::{HEADER_LEN, Header, Op};

pub(crate) type End = Driver<AnyLane>;

/// Limits how long a failure takes to show.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
pub(super) fn options(security: Security) -> Options {
    Options::default().with(|it| {
        it.lane.choice = LaneChoice::Ethernet;
        it.security = security;
    })
}

pub(crate) fn both() -> [Options; 2] {
    [Security::default(), Security::plain()].map(options)
}

/// Two hosts, or `None` with a message if this process may not make them.
pub(crate) fn hosts(mtu: u32) -> Option<Topology> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces and packet sockets need root");
        return None;
    }
    Some(Topology::pair("ether", mtu).expect("permitted"))
}

pub(crate) fn inside<T: Send>(host: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    host.enter_thread(work).expect("entered")
}

pub(crate) fn own_address(host: &Namespace, port: u16) -> SocketAddr {
    let address = EthernetAddress::new(host.device(), None, port);
    let mut found = inside(host, || address.to_socket_addrs()).expect("an interface");
    found.next().expect("one")
}

/// The address of `to` as seen from the other end of its link.
pub(super) fn seen_from(host: &Namespace, to: SocketAddr) -> SocketAddr {
    let (SocketAddr::V6(own), SocketAddr::V6(to)) = (own_address(host, 0), to) else {
        panic!("no addresses of raw Ethernet");
    };
    SocketAddrV6::new(*to.ip(), to.port(), 0, own.scope_id()).into()
}

pub(crate) fn hardware(address: SocketAddr) -> Hardware {
    let station = Station::of(address).expect("an address of raw Ethernet");
    station.hardware.expect("a host's")
}

pub(crate) fn listen(host: &Namespace, port: u16, options: &Options) -> io::Result<Listener> {
    let address = own_address(host, port);
    inside(host, || Listener::bind(address, options.clone()))
}

/// Listens as [`listen`], on a port of an earlier listener. A child that another test is starting has that listener's
/// sockets until it executes its program.
fn listen_again(host: &Namespace, port: u16, options: &Options) -> Listener {
    let end = Instant::now() + PATIENCE;
    loop {
        match listen(host, port, options) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            listening => return listening.expect("a port"),
        }
    }
}

pub(crate) fn join_at(hosts: &Topology, listener: &mut Listener, options: &Options) -> (End, End) {
    join_between([hosts.a(), hosts.b()], listener, options)
}

/// Connects from the first host to the listener at the second.
pub(super) fn join_between(
    [from, at]: [&Namespace; 2],
    listener: &mut Listener,
    options: &Options,
) -> (End, End) {
    let to = seen_from(from, listener.local_addr());
    let connect = || crate::any::connect(to, options).expect("connecting");
    let mut a = inside(from, connect);
    let end = Instant::now() + PATIENCE;
    let mut b = loop {
        assert!(Instant::now() < end, "{:?}", listener.counters());
        a.turn(Step::Whole).expect("asking");
        let wait = Some(Duration::from_millis(1));
        // A connection's sockets use the interface's index, which belongs to that namespace.
        let accepted = inside(at, || listener.accept(wait));
        if let Some(b) = accepted.expect("accepting") {
            break b;
        }
    };
    drive(&mut a, &mut b, |a, b| a.is_connected() && b.is_connected());
    assert_eq!(b.account().lane, LaneKind::Ethernet);
    (a, b)
}

fn join(hosts: &Topology, options: &Options) -> (End, End) {
    let mut listener = listen(hosts.b(), 0, options).expect("a port");
    join_at(hosts, &mut listener, options)
}

/// Turns both ends until `done`.
pub(crate) fn drive(a: &mut End, b: &mut End, mut done: impl FnMut(&mut End, &mut End) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done(a, b) {
        let turns = [
            a.turn(Step::Whole).expect("a"),
            b.turn(Step::Whole).expect("b"),
        ];
        let moved = turns.contains(&Progress::Moved);
        assert!(moved || Instant::now() < end, "{:#?}", b.account());
    }
}

/// Content that depends on the position.
pub(crate) fn content(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 251 + at * 7 + seed) as u8)
        .collect()
}

pub(crate) fn post(a: &mut End, b: &mut End, bytes: &[u8]) {
    let place = Region::anonymous(bytes.len()).expect("memory");
    b.post_target(WorkRequest::Receive, Report::default(), place)
        .expect("posted");
    let delivery = Delivery::Interrupt;
    let send = WorkRequest::Send { delivery };
    let memory = Region::from_vec(bytes.to_vec());
    a.post_source(send, Report::default(), memory.into())
        .expect("posted");
}

pub(crate) fn verify(received: Option<Completion>, bytes: &[u8]) {
    let received = received.expect("received");
    assert_eq!(received.result, Ok(bytes.len() as u64));
    let Some(Memory::Exclusive(memory)) = received.memory else {
        panic!("an exclusive region was posted");
    };
    assert!(memory[..] == *bytes, "content of {} bytes", bytes.len());
}

/// One Transfer from a to b.
pub(crate) fn transfer(a: &mut End, b: &mut End, len: usize) {
    let bytes = content(len, len);
    post(a, b, &bytes);
    drive(a, b, |a, b| a.has_completion() && b.has_completion());
    a.next_completion().expect("sent").result.expect("sent");
    verify(b.next_completion(), &bytes);
}

/// The id of the XDP program at the interface of `host`.
pub(crate) fn program_at(host: &Namespace) -> Option<u32> {
    let kernel = host.rtnetlink().expect("there");
    kernel.xdp_program(host.device()).expect("an interface")
}

/// A frame of this content.
pub(crate) fn frame(to: Hardware, from: Hardware, payload: &[u8]) -> Vec<u8> {
    [&to, &from, &ETHERTYPE.to_be_bytes()[..], payload].concat()
}

/// A socket that receives all frames of the calling thread's namespace.
pub(crate) fn overhear() -> Socket {
    let ethertype = i32::from(ETHERTYPE.to_be());
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ethertype)));
    let socket = socket.expect("permitted");
    socket.set_nonblocking(true).expect("set");
    socket
}

pub(crate) fn heard(socket: &Socket) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut frame = Vec::with_capacity(70_000);
    while let Ok(len) = socket.recv(frame.spare_capacity_mut()) {
        // SAFETY: the call wrote `len` bytes of the capacity.
        unsafe { frame.set_len(len) };
        frames.push(frame.clone());
        frame.clear();
    }
    frames
}

#[test]
fn transfer__every_length_at_every_mtu() {
    for mtu in [1280, 1500, 9000, 65_535] {
        let Some(hosts) = hosts(mtu) else {
            return;
        };
        for options in both() {
            let (mut a, mut b) = join(&hosts, &options);
            transfer(&mut a, &mut b, 1 << 20);
            let stu = b.account().stu as usize;
            let whole = stu + HEADER_LEN + options.security.seal_len();
            let most = zerolane_core::Config::default().max_stu as usize + HEADER_LEN;
            // Payload has whole words.
            assert!(whole + 8 > most.min(mtu as usize), "{whole} of {mtu}");
            let edges = [stu - 1, stu, stu + 1, 3 * stu + 5, 64 * stu + 1];
            for len in (0..10).chain(39..48).chain(edges) {
                transfer(&mut a, &mut b, len);
            }
            for end in [&a, &b] {
                assert_eq!(end.account().dropped_foreign, 0);
            }
            assert!(!a.account().gso && !a.account().gro);
        }
    }
}

/// The driver of a real interface pads shorter frames, and the length would be lost.
#[test]
fn frames__are_never_shorter_than_ethernet_has_them() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let ear = inside(hosts.b(), overhear);
        let (mut a, mut b) = join(&hosts, &options);
        for len in 0..10 {
            transfer(&mut a, &mut b, len);
        }
        let frames = heard(&ear);
        assert!(frames.len() > 10);
        for frame in frames {
            assert!(frame.len() >= AROUND + MIN_FRAME, "{} bytes", frame.len());
        }
    }
}

/// In place, although the frame of the last STU has padding after it.
#[test]
fn strict__permits_a_last_stu_of_three_bytes() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let strict = options(Security::plain()).with(|it| it.strict = true);
    let (mut a, mut b) = join(&hosts, &strict);
    transfer(&mut a, &mut b, 1 << 20);
    let stu = b.account().stu as usize;
    let before = b.account().bytes_placed;
    transfer(&mut a, &mut b, 40 * stu + 3);
    assert_eq!(b.account().bytes_placed - before, 40 * stu as u64 + 3);
}

/// Frames that any host of the segment can send if it knows a connection's key.
#[test]
fn forged__frames_are_counted_and_change_nothing() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let (mut a, mut b) = join(&hosts, &options);
        transfer(&mut a, &mut b, 1 << 20);
        let (to, from) = (
            hardware(b.lane().local_addr().expect("one")),
            hardware(b.lane().peer_addr()),
        );
        let header = Header {
            d_key: b.lane().key(),
            ..Header::new(Op::Data)
        };
        let datagram = [&header.emit()[..], &[7; 100]].concat();
        let mut badly_padded = pad_frame(&datagram[..HEADER_LEN]).expect("short");
        badly_padded[MIN_FRAME + 1] = 200;
        let other = [0x02, 9, 9, 9, 9, 9];
        let tagged = |number: u16| {
            let mut tagged = frame(to, from, &datagram);
            let [high, low] = number.to_be_bytes();
            tagged.splice(12..12, [0x81, 0x00, high, low]);
            tagged
        };
        let foreign = [
            frame(to, other, &datagram),
            frame(other, from, &datagram),
            frame([0xff; 6], from, &datagram),
            tagged(5),
        ];
        let broken = [
            frame(to, from, &datagram[..12]),
            frame(to, from, &datagram[..HEADER_LEN - 1]),
            frame(to, from, &datagram),
            frame(to, from, &badly_padded),
            // Longer than the MTU, by as much as a device permits for a tag.
            frame(to, from, &[&datagram[..HEADER_LEN], &[7; 1464]].concat()),
            // Its number is 0, which counts as untagged.
            tagged(0),
        ];
        let not_shown = [frame(to, from, &datagram[..11]), frame(to, from, &[0; 100])];
        hosts.set_mtu_at(Side::A, 1504).expect("set");
        let before = b.account();
        inside(hosts.a(), || {
            let forger = Forger::open(hosts.a().device()).expect("permitted");
            for frame in foreign.iter().chain(&broken).chain(&not_shown) {
                assert_eq!(forger.send(&[frame]), 0, "the kernel took it");
            }
        });
        let dropped = |end: &End| end.account().protocol.dropped_total();
        let dropped_before = before.protocol.dropped_total();
        drive(&mut a, &mut b, |_, b| {
            dropped(b) - dropped_before >= broken.len() as u64
                && b.account().dropped_foreign >= foreign.len() as u64
        });
        transfer(&mut a, &mut b, 1 << 20);
        assert_eq!(b.account().dropped_foreign, foreign.len() as u64);
        assert_eq!(dropped(&b) - dropped_before, broken.len() as u64);
    }
}

#[test]
fn listeners__of_one_interface_have_ports() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let mut first = listen_again(hosts.b(), 7411, &options);
        let mut second = listen(hosts.b(), 0, &options).expect("another");
        assert_ne!(first.local_addr().port(), second.local_addr().port());
        let taken = listen(hosts.b(), 7411, &options).expect_err("taken");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let mut pairs = [
            join_at(&hosts, &mut first, &options),
            join_at(&hosts, &mut first, &options),
            join_at(&hosts, &mut second, &options),
        ];
        for (a, b) in &mut pairs {
            transfer(a, b, 300_000);
        }
        // The connections continue without the listener, and its port can be used again.
        drop(first);
        let mut first = listen_again(hosts.b(), 7411, &options);
        let (mut a, mut b) = join_at(&hosts, &mut first, &options);
        transfer(&mut a, &mut b, 300_000);
        for (a, b) in &mut pairs {
            transfer(a, b, 300_000);
        }
    }
}

/// As if the answer was lost.
#[test]
fn repeated__requests_reach_the_connection_that_they_led_to() {
    let Some(hosts) = hosts(1500) else {
        return;
    };
    for options in both() {
        let ear = inside(hosts.b(), overhear);
        let mut listener = listen(hosts.b(), 0, &options).expect("a port");
        let (mut a, mut b) = join_at(&hosts, &mut listener, &options);
        let to_listener = |frame: &Vec<u8>| {
            let code = frame[AROUND] >> 3;
            code == Op::RequestConnection as u8 || code == zerolane_wire::handshake::HANDSHAKE_CODE
        };
        let asked: Vec<_> = heard(&ear).into_iter().filter(to_listener).collect();
        assert!(!asked.is_empty());
        let mut elsewhere = asked[asked.len() - 1].clone();
        elsewhere[6 + 5] ^= 1;
        let before = b.account();
        inside(hosts.a(), || {
            let forger = Forger::open(hosts.a().device()).expect("permitted");
            for frame in asked.iter().chain([&elsewhere]) {
                assert_eq!(forger.send(&[frame]), 0, "the kernel took it");
            }
        });
        drive(&mut a, &mut b, |_, b| {
            b.account().datagrams_received - before.datagrams_received >= asked.len() as u64
        });
        assert_eq!(b.account().dropped_foreign, before.dropped_foreign);
        let accept = || listener.accept(Some(Duration::from_millis(20)));
        let second = inside(hosts.b(), accept).expect("accepting");
        // In plain mode, a request from another address gets a connection.
        let is_plain = options.security.mode == crate::seal::Mode::Plain;
        assert_eq!(second.is_some(), is_plain);
        transfer(&mut a, &mut b, 300_000);
    }
}

#[test]
fn interface__down_renamed_or_narrower_in_the_middle_loses_nothing() {
    let Some(hosts) = hosts(9000) else {
        return;
    };
    for (round, options) in both().into_iter().enumerate() {
        let (mut a, mut b) = join(&hosts, &options);
        transfer(&mut a, &mut b, 1 << 20);
        let bytes = content(32 << 20, 1);
        post(&mut a, &mut b, &bytes);
        let received = |b: &End| b.account().protocol.bytes_received;
        let start = received(&b);
        let until = |a: &mut End, b: &mut End, part: u64| {
            drive(a, b, |_, b| received(b) - start > part << 20);
        };
        until(&mut a, &mut b, 2);
        hosts.set_link_up(Side::B, false).expect("set");
        for _ in 0..100 {
            for end in [&mut a, &mut b] {
                end.turn(Step::Whole).expect("goes on");
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let other = format!("other{round}");
        let [at_a, at_b] = [hosts.a(), hosts.b()].map(|it| it.rtnetlink().expect("there"));
        let [near, far] = Side::BOTH.map(|it| hosts.device(it));
        at_b.rename(far, &other).expect("down");
        at_b.set_up(&other, true).expect("up");
        until(&mut a, &mut b, 8);
        at_a.set_mtu(near, 1500).expect("smaller");
        at_b.set_mtu(&other, 1500).expect("smaller");
        drive(&mut a, &mut b, |a, b| {
            a.has_completion() && b.has_completion()
        });
        a.next_completion().expect("sent").result.expect("sent");
        verify(b.next_completion(), &bytes);
        let stu = a.account().stu;
        assert!(stu < 1500, "{stu}");
        at_b.set_up(&other, false).expect("down");
        at_b.rename(&other, far).expect("its own");
        at_b.set_mtu(far, 9000).expect("as before");
        at_b.set_up(far, true).expect("up");
        at_a.set_mtu(near, 9000).expect("as before");
    }
}

/// The error at an end that sends, or only receives.
#[test]
fn interface__gone_is_an_error_that_says_so() {
    for sends in [true, false] {
        let Some(hosts) = hosts(1500) else {
            return;
        };
        let options = options(Security::default());
        let mut listener = listen(hosts.b(), 0, &options).expect("a port");
        let (mut a, mut b) = join_at(&hosts, &mut listener, &options);
        transfer(&mut a, &mut b, 300_000);
        delete_interface(&hosts, &mut a, &mut b, sends);
        let error = inside(hosts.b(), || listener.accept(Some(PATIENCE)));
        let error = DriverError::Io(error.expect_err("nothing to listen on"));
        assert!(is_gone(&error), "{error}");
    }
}

/// Removes the interface of both ends, while a sends or not; both ends report it.
pub(super) fn delete_interface(hosts: &Topology, a: &mut End, b: &mut End, sends: bool) {
    hosts.a().delete(0).expect("there");
    if sends {
        post(a, b, &content(300_000, 3));
    }
    let end = Instant::now() + PATIENCE;
    for it in [a, b] {
        let error = loop {
            assert!(Instant::now() < end, "no error");
            match it.turn(Step::Whole) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(is_gone(&error), "{error}");
    }
}

fn is_gone(error: &DriverError) -> bool {
    let DriverError::Io(error) = error else {
        return false;
    };
    let why = error.get_ref().and_then(|it| it.downcast_ref());
    why == Some(&NoEthernet::Gone) && error.kind() == io::ErrorKind::NetworkDown
}

#[test]
fn address__that_cannot_be_is_an_error_that_says_why() {
    let options = options(Security::default());
    let no_address = NoEthernet::NoAddress.to_string();
    for address in [
        "127.0.0.1:7411",
        "[fe80::1%1]:7411",
        "[fe80::ff:fe00:1%1]:0",
    ] {
        let address = address.parse().expect("an address");
        let error = crate::any::connect(address, &options).expect_err("no address of a host");
        assert_eq!(error.to_string(), no_address, "{address}");
    }
    let any: SocketAddr = "127.0.0.1:7411".parse().expect("an address");
    let error = Listener::bind(any, options.clone()).expect_err("no interface");
    assert_eq!(error.to_string(), no_address);
    // The loopback interface exists, and is not Ethernet.
    let loopback: SocketAddr = "[fe80::ff:fe00:1%1]:7411".parse().expect("an address");
    let error = crate::any::connect(loopback, &options).expect_err("not permitted, or no Ethernet");
    let why = error
        .get_ref()
        .and_then(|it| it.downcast_ref::<NoEthernet>());
    match why {
        Some(NoEthernet::OtherKind(name)) => assert_eq!(name, "lo"),
        Some(NoEthernet::NotPermitted) => {
            assert!(
                error.to_string().contains("setcap cap_net_raw+ep"),
                "{error}"
            );
        }
        _ => panic!("{error}"),
    }
    let Some(hosts) = hosts(1500) else {
        return;
    };
    let mut none = Station::of(own_address(hosts.b(), 9)).expect("one");
    none.interface = 12_345;
    let bind = |it: Station| inside(hosts.b(), || Listener::bind(it.address(), options.clone()));
    let error = bind(none).expect_err("no such interface");
    assert!(
        error.to_string().contains("no interface number 12345"),
        "{error}"
    );
    let mut other = Station::of(own_address(hosts.b(), 9)).expect("one");
    other.hardware = Some([2, 1, 1, 1, 1, 1]);
    let error = bind(other).expect_err("another's");
    assert_eq!(error.to_string(), NoEthernet::OtherHost.to_string());
}
