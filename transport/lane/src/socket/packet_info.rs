//! Receives and sends datagrams of an unconnected socket, with the addresses of both ends.
//!
//! A host may have several addresses. A peer that called one of them accepts datagrams from that one only, so answers
//! must come from it, not from the address that the system would choose.

use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use socket2::Socket;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

/// The addresses of a received datagram, for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketAddresses {
    pub(crate) peer: SocketAddr,
    /// This end's address that the peer called, if the kernel reports it.
    pub(crate) here: Option<IpAddr>,
}

impl PacketAddresses {
    /// `local`, with the address that the peer called.
    pub(crate) fn called(&self, local: SocketAddr) -> Option<SocketAddr> {
        let port = local.port();
        Some(match self.here? {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope()).into(),
        })
    }

    /// The interface of a link-local address.
    fn scope(&self) -> u32 {
        match self.peer {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(peer) => peer.scope_id(),
        }
    }
}

/// Makes `socket`, bound to `local`, report which of this end's addresses a peer called. If the kernel cannot, it
/// chooses the source address of answers.
pub(crate) fn show_called(socket: &Socket, local: SocketAddr) {
    let _ = match local {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4PacketInfo, &true),
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true),
    };
}

/// The next datagram at `socket`; `buffer` takes its start. `None` if there is none.
///
/// # Errors
/// Errors of the socket, including those of datagrams sent earlier.
pub(crate) fn receive(
    socket: &Socket,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, PacketAddresses)>> {
    let mut control = nix::cmsg_space!(in6_pktinfo);
    let mut pieces = [IoSliceMut::new(buffer)];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
    let received = recvmsg::<SockaddrStorage>(fd, &mut pieces, Some(&mut control), flags);
    let message = match received.map_err(io::Error::from) {
        Ok(message) => message,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(peer) = message.address.as_ref().and_then(address) else {
        return Ok(None);
    };
    let here = message.cmsgs().ok().and_then(|mut it| it.find_map(called));
    Ok(Some((message.bytes, PacketAddresses { peer, here })))
}

fn address(of: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = of.as_sockaddr_in().map(|it| SocketAddr::V4((*it).into()));
    v4.or_else(|| of.as_sockaddr_in6().map(|it| SocketAddr::V6((*it).into())))
}

/// This end's address that the peer called, if answers can come from it.
fn called(said: ControlMessageOwned) -> Option<IpAddr> {
    match said {
        // For a broadcast, the address of the receiving device.
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
            // It is unspecified if the datagram arrived before the option was set.
            (!ip.is_unspecified()).then_some(ip.into())
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            (!ip.is_multicast()).then_some(ip.into())
        }
        _ => None,
    }
}

/// Sends `bytes` back by `addresses`.
///
/// # Errors
/// Those of the socket.
pub(crate) fn send(socket: &Socket, bytes: &[u8], addresses: PacketAddresses) -> io::Result<usize> {
    let (v4, v6);
    let control = match addresses.here {
        None => None,
        Some(IpAddr::V4(ip)) => {
            v4 = in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: in_addr {
                    s_addr: u32::from_ne_bytes(ip.octets()),
                },
                ipi_addr: in_addr { s_addr: 0 },
            };
            Some(ControlMessage::Ipv4PacketInfo(&v4))
        }
        Some(IpAddr::V6(ip)) => {
            v6 = in6_pktinfo {
                ipi6_addr: in6_addr {
                    s6_addr: ip.octets(),
                },
                ipi6_ifindex: addresses.scope(),
            };
            Some(ControlMessage::Ipv6PacketInfo(&v6))
        }
    };
    let to = SockaddrStorage::from(addresses.peer);
    let pieces = [IoSlice::new(bytes)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let sent = sendmsg(
        socket.as_raw_fd(),
        &pieces,
        control.as_slice(),
        flags,
        Some(&to),
    );
    Ok(sent?)
}

/// Answers an unauthenticated peer from the address that it called.
pub(crate) fn answer(socket: &Socket, bytes: &[u8], addresses: PacketAddresses) {
    // If it cannot be sent, it counts as lost.
    let _ = send(socket, bytes, addresses);
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::socket::{Share, udp};
    use std::net::UdpSocket;

    /// The addresses that a socket on `wildcard` sees of a peer that calls `called`, and the address that the peer
    /// sees.
    fn exchange(wildcard: &str, called: &str) -> (PacketAddresses, SocketAddr) {
        let wildcard = wildcard.parse().expect("an address");
        let here = udp::open(wildcard, Share::WithJoining).expect("bound");
        show_called(&here, wildcard);
        let local = here.local_addr().expect("bound").as_socket().expect("IP");
        let called = SocketAddr::new(called.parse().expect("an address"), local.port());
        let any = if called.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        };
        let peer = UdpSocket::bind(any).expect("bound");
        peer.send_to(&[1, 2, 3], called).expect("sent");
        let mut bytes = [0; 8];
        assert!(
            crate::wait::poll::wait(
                Some(std::os::fd::AsFd::as_fd(&here)),
                false,
                [None; 2],
                None
            )
            .expect("a poll")
            .socket
        );
        let (len, addresses) = receive(&here, &mut bytes).expect("read").expect("sent");
        assert_eq!(bytes[..len], [1, 2, 3]);
        assert_eq!(receive(&here, &mut bytes).expect("read"), None);
        assert_eq!(
            addresses.peer.port(),
            peer.local_addr().expect("bound").port()
        );
        assert_eq!(send(&here, &[4, 5], addresses).expect("sent"), 2);
        let (len, from) = peer.recv_from(&mut bytes).expect("answered");
        assert_eq!(bytes[..len], [4, 5]);
        (addresses, from)
    }

    #[test]
    fn send__answers_from_the_address_that_was_called() {
        for (wildcard, called, here) in [
            ("0.0.0.0:0", "127.0.0.9", "127.0.0.9"),
            ("0.0.0.0:0", "127.0.0.1", "127.0.0.1"),
            ("[::]:0", "::1", "::1"),
            ("[::]:0", "127.0.0.9", "::ffff:127.0.0.9"),
        ] {
            let (addresses, from) = exchange(wildcard, called);
            assert_eq!(addresses.here, Some(here.parse().expect("an address")));
            assert_eq!(from.ip(), called.parse::<IpAddr>().expect("an address"));
        }
    }
}
