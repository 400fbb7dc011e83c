//! Tests that a path's thread seals, opens and obeys orders, with the test as its peer.
#![allow(non_snake_case)]
use super::*;
use crate::memory::registry::EntryKind;
use crate::memory::{Region, Registry};
use crate::seal::{Opener, Sealer, TRAILER_LEN, Trailer};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;
use zeroize::Zeroizing;
use zerolane_core::{DropReason, Span};
use zerolane_handshake::Cipher;

const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: [u8; 32] = [7; 32];
const HEADER: [u8; HEADER_LEN] = [3; HEADER_LEN];
const MEMORY: EntryKind = EntryKind::Posted {
    writable: true,
    file: false,
};

struct Ends {
    thread: PathThread,
    peer: UdpSocket,
    /// Reports not yet checked.
    reports: VecDeque<Report>,
}

fn ends() -> Ends {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("UDP");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    socket.bind(&SockAddr::from(any)).expect("a port");
    let to = peer.local_addr().expect("bound");
    socket.connect(&SockAddr::from(to)).expect("connected");
    let ours = socket.local_addr().expect("bound").as_socket().expect("IP");
    peer.connect(ours).expect("connected");
    let spin = Duration::from_micros(50);
    Ends {
        thread: PathThread::spawn(1, Arc::new(socket), spin).expect("a thread"),
        peer,
        reports: VecDeque::new(),
    }
}

impl Ends {
    fn report(&mut self) -> Report {
        let start = Instant::now();
        loop {
            if let Some(report) = self.reports.pop_front() {
                return report;
            }
            assert!(start.elapsed() < PATIENCE, "nothing is reported");
            self.reports = self.thread.channel().reports();
        }
    }

    fn arrived(&mut self) -> Box<Arrived> {
        match self.report() {
            Report::Arrived(it) => it,
            _ => panic!("no message"),
        }
    }

    fn opened(&mut self) -> Option<bool> {
        match self.report() {
            Report::Opened(it) => it,
            _ => panic!("no train"),
        }
    }
}

fn opener() -> Opener {
    Opener::new(Cipher::Aegis128X2, Zeroizing::new(SECRET)).expect("a key")
}

/// A payload, sealed as by the peer: payload and trailer.
fn sealed(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    let trailer = sealer.seal(&HEADER, &mut bytes).expect("sealed");
    bytes.extend(trailer);
    bytes
}

/// An order to open the bytes of `from`, without its trailer, into `place`.
fn order(opener: &mut Opener, from: Box<Arrived>, memory: &Registry, place: Span) -> Order {
    let bytes = from.bytes();
    let trailer: &Trailer = bytes.last_chunk().expect("a trailer");
    Order::Open(OpenOrder {
        access: memory.delegations.write(place).0,
        header: HEADER,
        payload: 0..bytes.len() - TRAILER_LEN,
        opening: opener.hand_out(trailer).expect("new"),
        place: memory.target(place.part(0, 0)).expect("open"),
        from,
    })
}

#[test]
fn thread__opens_into_the_place_and_nothing_that_was_called_off() {
    let mut ends = ends();
    let region = Region::anonymous(8192).expect("memory");
    let (start, len) = region.raw();
    let mut memory = Registry::default();
    // SAFETY: the region outlives the entry, and is read only when no access is in progress.
    let whole = unsafe { memory.open(start, len, MEMORY) };
    let mut sealer = Sealer::new(Cipher::Aegis128X2, Zeroizing::new(SECRET)).expect("a key");
    let mut opener = opener();
    let payloads = [[1; 1000], [2; 1000], [3; 1000]];
    for payload in payloads {
        ends.peer
            .send(&sealed(&mut sealer, &payload))
            .expect("sent");
    }
    // A forgery.
    let mut forged = sealed(&mut sealer, &[4; 1000]);
    forged[5] ^= 1;
    ends.peer.send(&forged).expect("sent");
    let messages: Vec<_> = (0..4).map(|_| ends.arrived()).collect();
    let mut orders = Vec::new();
    for (at, message) in (0..).zip(messages) {
        orders.push(order(
            &mut opener,
            message,
            &memory,
            whole.part(at * 1000, 1000),
        ));
    }
    // Other bytes take the second one's place before the order.
    assert!(memory.target(whole.part(1500, 1)).is_some());
    for it in orders {
        ends.thread.channel().order(it);
    }
    let opened: Vec<_> = (0..4).map(|_| ends.opened()).collect();
    assert_eq!(opened, [Some(true), None, Some(true), Some(false)]);
    memory.close(whole.region);
    let expected = [[1; 1000], [0; 1000], [3; 1000]].concat();
    assert!(region[..3000] == expected);
    assert_eq!(opener.opened(3, false), Err(DropReason::Forged));
    for number in [0, 2] {
        assert_eq!(opener.opened(number, true), Ok(()));
        assert_eq!(opener.opened(number, true), Err(DropReason::Replayed));
    }
}

#[test]
fn thread__writes_nothing_once_its_memory_is_closed() {
    for round in 0..50 {
        let mut ends = ends();
        let mut region = Region::anonymous(64 << 10).expect("memory");
        let (start, len) = region.raw();
        let mut memory = Registry::default();
        // SAFETY: as above.
        let whole = unsafe { memory.open(start, len, MEMORY) };
        let mut sealer = Sealer::new(Cipher::Aegis128X2, Zeroizing::new(SECRET)).expect("a key");
        let mut opener = opener();
        for _ in 0..8 {
            let datagram = sealed(&mut sealer, &[9; 8000]);
            ends.peer.send(&datagram).expect("sent");
        }
        // All of them first, because reports of orders come in between.
        let messages: Vec<_> = (0..8).map(|_| ends.arrived()).collect();
        for (at, message) in (0..).zip(messages) {
            let order = order(&mut opener, message, &memory, whole.part(at * 8000, 8000));
            ends.thread.channel().order(order);
        }
        for _ in 0..round * 37 {
            std::hint::spin_loop();
        }
        // Somewhere among them.
        memory.close(whole.region);
        region.fill(5);
        let opened: Vec<_> = (0..8).map(|_| ends.opened()).collect();
        assert!(region.iter().all(|&it| it == 5), "{opened:?}");
    }
}

#[test]
fn thread__takes_no_more_than_it_has_buffers_for_and_goes_on() {
    let mut ends = ends();
    for number in 0..2 * BUFFERS as u8 {
        ends.peer.send(&[number; 100]).expect("sent");
    }
    let first: Vec<_> = (0..BUFFERS).map(|_| ends.arrived()).collect();
    std::thread::sleep(Duration::from_millis(20));
    assert!(ends.thread.channel().reports().is_empty(), "no buffer");
    for (number, it) in (0..).zip(first) {
        assert_eq!(it.bytes(), [number; 100]);
        ends.thread.channel().order(Order::Free(it));
    }
    for number in BUFFERS as u8..2 * BUFFERS as u8 {
        assert_eq!(ends.arrived().bytes(), [number; 100]);
    }
}

#[test]
fn thread__ends_when_it_is_dropped_asleep_or_not() {
    for nap in [0, 5] {
        let ends = ends();
        std::thread::sleep(Duration::from_millis(nap));
        let channel = Arc::clone(ends.thread.channel());
        drop(ends);
        let memory = Registry::default();
        let span = Span {
            region: zerolane_core::RegionId {
                index: 0,
                generation: 1,
            },
            offset: 0,
            len: 1,
        };
        let access = memory.delegations.read(span);
        let opening = opener().hand_out(&[0; TRAILER_LEN]).expect("new");
        channel.order(Order::Open(OpenOrder {
            access,
            from: Arrived::empty(),
            header: HEADER,
            payload: 0..0,
            opening,
            place: std::ptr::null_mut(),
        }));
        assert!(memory.delegations.is_idle(), "what is ordered then is over");
    }
}

#[test]
fn thread__that_panics_says_that_it_is_over() {
    let mut ends = ends();
    ends.thread.channel().order(Order::Panic);
    assert!(matches!(ends.report(), Report::Ended));
}
