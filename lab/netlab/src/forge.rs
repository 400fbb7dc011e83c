//! Reads frames and sends forged ones with any source address, as an attacker on the wire can.
//!
//! For tests of programs under attack, inside namespaces made for them: the device belongs to a
//! [`Topology`](crate::netns::Topology), which no frame leaves.

use crate::checksum;
use crate::lab::port::address_of;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind, recv, sendmmsg,
    setsockopt, socket,
};
use nix::{setsockopt_impl, sockopt_impl};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Ethernet, IPv4 without options, UDP: bytes.
const HEADERS: usize = ETHERNET + IPV4 + UDP;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_UDP: u8 = 17;

/// A UDP datagram over IPv4 in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Destination hardware address.
    pub to_hardware: [u8; 6],
    /// Source hardware address that it claims.
    pub from_hardware: [u8; 6],
    /// Its destination.
    pub to: SocketAddrV4,
    /// The source that it claims.
    pub from: SocketAddrV4,
    /// What is behind the UDP header.
    pub payload: Vec<u8>,
}

impl Datagram {
    /// Takes a frame apart: `None` if it is not UDP over plain IPv4. A frame that an interface would
    /// have segmented may hold more, or less, than its headers say: its payload is what is there.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Datagram> {
        let (headers, payload) = frame.split_first_chunk::<HEADERS>()?;
        let (ethernet, ip) = headers.split_first_chunk::<ETHERNET>()?;
        let is_udp = ethernet[12..] == ETHERTYPE_IPV4 && ip[0] == 0x45 && ip[9] == PROTOCOL_UDP;
        let address = |at: usize, port: usize| {
            let ip_address = Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            SocketAddrV4::new(ip_address, u16::from_be_bytes([ip[port], ip[port + 1]]))
        };
        is_udp.then(|| Datagram {
            to_hardware: std::array::from_fn(|at| ethernet[at]),
            from_hardware: std::array::from_fn(|at| ethernet[6 + at]),
            from: address(12, IPV4),
            to: address(16, IPV4 + 2),
            payload: payload.to_vec(),
        })
    }

    /// The frame, with the IPv4 checksum and without UDP's, which is optional.
    ///
    /// # Panics
    /// If the payload is longer than IPv4 carries.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let udp = u16::try_from(UDP + self.payload.len()).expect("a datagram");
        let total = udp.checked_add(IPV4 as u16).expect("a datagram");
        let mut ip = [0; IPV4];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        // Do not fragment; 64 hops.
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = PROTOCOL_UDP;
        ip[12..16].copy_from_slice(&self.from.ip().octets());
        ip[16..20].copy_from_slice(&self.to.ip().octets());
        let sum = !checksum::sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = Vec::with_capacity(HEADERS + self.payload.len());
        frame.extend_from_slice(&self.to_hardware);
        frame.extend_from_slice(&self.from_hardware);
        frame.extend_from_slice(&ETHERTYPE_IPV4);
        frame.extend_from_slice(&ip);
        frame.extend_from_slice(&self.from.port().to_be_bytes());
        frame.extend_from_slice(&self.to.port().to_be_bytes());
        frame.extend_from_slice(&udp.to_be_bytes());
        frame.extend_from_slice(&[0; 2]);
        frame.extend_from_slice(&self.payload);
        frame
    }
}

impl Datagram {
    /// The frame with UDP's checksum as well: kernels merge only such with what they follow (GRO).
    ///
    /// # Panics
    /// As [`Datagram::frame`].
    #[must_use]
    pub fn frame_with_checksum(&self) -> Vec<u8> {
        let mut frame = self.frame();
        let udp = ETHERNET + IPV4;
        let mut covered = vec![0, PROTOCOL_UDP];
        covered.extend_from_slice(&((frame.len() - udp) as u16).to_be_bytes());
        // From the addresses on.
        covered.extend_from_slice(&frame[udp - 8..]);
        // No checksum is written as 0.
        let sum = match !checksum::sum(&covered) {
            0 => 0xffff,
            sum => sum,
        };
        frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

/// `PACKET_QDISC_BYPASS` of linux/if_packet.h.
const PACKET_QDISC_BYPASS: libc::c_int = 20;

sockopt_impl!(
    /// Frames go straight to the device.
    QdiscBypass,
    SetOnly,
    libc::SOL_PACKET,
    PACKET_QDISC_BYPASS,
    bool
);

/// Sends frames on a device of the calling thread's namespace. It receives nothing.
#[derive(Debug)]
pub struct Forger(OwnedFd);

impl Forger {
    /// Opens the device.
    ///
    /// # Errors
    /// There is no such device, or the right to packet sockets is missing.
    pub fn open(device: &str) -> io::Result<Forger> {
        let socket = open(device, None)?;
        setsockopt(&socket, QdiscBypass, &true)?;
        Ok(Forger(socket))
    }

    /// Sends frames; returns how many of them the kernel did not take.
    #[must_use]
    pub fn send(&self, frames: &[&[u8]]) -> u64 {
        let (mut refused, mut rest) = (0, frames);
        while !rest.is_empty() {
            let sent = self.send_some(rest).unwrap_or(0);
            if sent == 0 {
                // The kernel did not take the first.
                refused += 1;
            }
            rest = &rest[sent.clamp(1, rest.len())..];
        }
        refused
    }

    fn send_some(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let slices: Vec<_> = frames.iter().map(|it| [IoSlice::new(it)]).collect();
        let mut headers = MultiHeaders::<()>::preallocate(slices.len(), None);
        let connected: Vec<Option<()>> = vec![None; slices.len()];
        let (socket, flags) = (self.0.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let results = sendmmsg(socket, &mut headers, slices.iter(), connected, [], flags)?;
        Ok(results.count())
    }
}

/// A packet socket on a device of the calling thread's namespace.
fn open(device: &str, protocol: impl Into<Option<SockProtocol>>) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, protocol)?;
    bind(socket.as_raw_fd(), &address_of(device)?)?;
    Ok(socket)
}

/// The datagrams that pass a device of the calling thread's namespace, either way, within `time`, at
/// most `count`; of each as much as an MTU of `mtu` bytes holds.
///
/// # Errors
/// As [`Forger::open`].
pub fn overhear(device: &str, mtu: u32, count: usize, time: Duration) -> io::Result<Vec<Datagram>> {
    let socket = open(device, SockProtocol::EthAll)?;
    let end = Instant::now() + time;
    let (mut frame, mut heard) = (vec![0; ETHERNET + mtu as usize], Vec::new());
    while heard.len() < count && Instant::now() < end {
        match recv(socket.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(len) => heard.extend(Datagram::parse(&frame[..len])),
            Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_micros(100)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::netns::{self, Topology};
    use std::net::UdpSocket;

    #[test]
    fn frame__is_parsed_as_what_it_was_made_of() {
        let datagram = Datagram {
            to_hardware: [1, 2, 3, 4, 5, 6],
            from_hardware: [7, 8, 9, 10, 11, 12],
            to: "10.77.0.2:9".parse().unwrap(),
            from: "10.78.3.4:5678".parse().unwrap(),
            payload: b"hello".to_vec(),
        };
        let frame = datagram.frame();
        assert_eq!(Datagram::parse(&frame), Some(datagram));
        assert_eq!(checksum::sum(&frame[ETHERNET..ETHERNET + IPV4]), 0xffff);
        assert_eq!(Datagram::parse(&frame[..HEADERS - 1]), None);
    }

    #[test]
    fn frame_with_checksum__is_right() {
        for payload in [&b"hello"[..], b"even", b""] {
            let datagram = Datagram {
                to_hardware: [1; 6],
                from_hardware: [2; 6],
                to: "10.77.0.2:9".parse().unwrap(),
                from: "10.78.3.4:5678".parse().unwrap(),
                payload: payload.to_vec(),
            };
            let frame = datagram.frame_with_checksum();
            assert_eq!(Datagram::parse(&frame).as_ref(), Some(&datagram));
            // RFC 768: addresses, protocol and length in front of it.
            let mut pseudo = frame[ETHERNET + 12..ETHERNET + IPV4].to_vec();
            pseudo.extend_from_slice(&[0, PROTOCOL_UDP, 0, (UDP + payload.len()) as u8]);
            pseudo.extend_from_slice(&frame[ETHERNET + IPV4..]);
            assert_eq!(checksum::sum(&pseudo), 0xffff, "{payload:?}");
        }
    }

    #[test]
    fn send__in_the_name_of_another() {
        if !netns::is_permitted() {
            eprintln!("skipped: needs root");
            return;
        }
        let hosts = Topology::pair("forge", 1500).unwrap();
        let (a, b) = (hosts.a(), hosts.b());
        let server = b.enter_thread(|| UdpSocket::bind((b.ipv4(), 9)).unwrap());
        let server = server.unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let heard = a.enter_thread(|| {
            let sender = UdpSocket::bind((a.ipv4(), 0)).unwrap();
            std::thread::scope(|scope| {
                let hearing = scope.spawn(|| {
                    a.enter().unwrap();
                    overhear(a.device(), 1500, 1, Duration::from_secs(10))
                });
                while !hearing.is_finished() {
                    sender.send_to(b"real", (b.ipv4(), 9)).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
                hearing.join().unwrap().unwrap()
            })
        });
        // On a busy machine they fill the buffer, and the forged one would find no room.
        let mut buffer = [0; 16];
        server.set_nonblocking(true).unwrap();
        while server.recv_from(&mut buffer).is_ok() {}
        server.set_nonblocking(false).unwrap();
        let mut forged = heard.unwrap().remove(0);
        assert_eq!(forged.payload, b"real");
        forged.from = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 99), 7);
        forged.payload = b"false".to_vec();
        let frame = forged.frame();
        let refused = a.enter_thread(|| Forger::open(a.device()).unwrap().send(&[&frame]));
        assert_eq!(refused.unwrap(), 0);
        let forger = loop {
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            if &buffer[..len] == b"false" {
                break from;
            }
        };
        assert_eq!(forger, forged.from.into());
    }
}
