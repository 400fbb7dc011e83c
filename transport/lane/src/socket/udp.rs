//! Opens UDP sockets and sets their options: everything about the kernel's UDP and nothing about the protocol.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use zerolane_wire::encapsulation::{Encapsulation, IP_PROTOCOL};

/// The kernel accounts UDP buffers by its allocations, not by payload. A 1500-byte datagram may hold a page and its
/// descriptor: three times its payload at worst.
const BUFFER_OVERHEAD: usize = 3;

/// Send buffer to request, in bytes: a few bursts.
const SEND_BUFFER: usize = 2 << 20;

/// The encapsulation of datagrams that `socket`, a UDP or a raw one, sends to `peer`.
pub(crate) fn encapsulation(socket: &Socket, peer: SocketAddr) -> Encapsulation {
    let protocol = get(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PROTOCOL);
    match (
        protocol.is_ok_and(|it| it == IP_PROTOCOL.into()),
        peer.is_ipv4(),
    ) {
        (false, true) => Encapsulation::UdpV4,
        (false, false) => Encapsulation::UdpV6,
        (true, true) => Encapsulation::IpV4,
        (true, false) => Encapsulation::IpV6,
    }
}

/// Whether other sockets may be bound to the same address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Only sockets with [`Share::Joins`] may join it: for the sockets of listeners and of Initiators. When the address
    /// is bound, no other socket has it, not even a listener of the same user; the kernel would divide unauthenticated
    /// peers among the two (and would assign that port to a socket that asks for any).
    WithJoining,
    /// It joins such a socket. The connected sockets of accepted connections do, which the kernel prefers, and the
    /// sockets that receive from peers at new addresses.
    Joins,
}

/// A socket with the options that sockets at `local` have before bind.
pub(super) fn unbound(local: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    forbid_fragmentation(socket.as_raw_fd(), local);
    Ok(socket)
}

/// A socket bound to `local`.
pub(super) fn open(local: SocketAddr, share: Share) -> io::Result<Socket> {
    let socket = unbound(local)?;
    if share == Share::Joins {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&SockAddr::from(local))?;
    if share == Share::WithJoining {
        socket.set_reuse_port(true)?;
    }
    Ok(socket)
}

/// As [`open`], with this receive buffer in bytes, if the system permits.
pub(crate) fn bind(local: SocketAddr, share: Share, receive_buffer: usize) -> io::Result<Socket> {
    let socket = open(local, share)?;
    prepare(&socket, receive_buffer);
    Ok(socket)
}

/// Sets the buffer sizes of `socket`.
pub(crate) fn prepare(socket: &Socket, receive_buffer: usize) {
    let fd = socket.as_raw_fd();
    raise_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_buffer);
    raise_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER);
    // If the kernel cannot count drops, none are counted.
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
}

/// Requests `bytes` of buffer, beyond the system's limit if permitted.
fn raise_buffer(fd: RawFd, force: i32, plain: i32, bytes: usize) {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    if set(fd, libc::SOL_SOCKET, force, bytes).is_err() {
        let _ = set(fd, libc::SOL_SOCKET, plain, bytes);
    }
}

/// Sets DF. The protocol does its own path MTU discovery and does not trust ICMP.
pub(crate) fn forbid_fragmentation(fd: RawFd, local: SocketAddr) {
    let _ = match local {
        SocketAddr::V4(_) => set(
            fd,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        SocketAddr::V6(_) => set(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
    };
}

/// Permits or forbids routers to fragment datagrams sent from now on that exceed their MTU. IPv6 routers never
/// fragment, and no IPv6 path has so small an MTU.
pub(crate) fn permit_fragmentation(socket: &Socket, permit: bool) {
    let value = match permit {
        true => libc::IP_PMTUDISC_DONT,
        false => libc::IP_PMTUDISC_PROBE,
    };
    let fd = socket.as_raw_fd();
    // An option of IPv4 only; an IPv6 socket that reaches IPv4 has it as well.
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value);
}

/// Receive buffer that the kernel granted, in bytes of its own accounting.
pub(crate) fn receive_buffer(socket: &Socket) -> usize {
    get(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).map_or(0, |bytes| bytes as usize)
}

/// Most payload granted at a time on a short path, in bytes, however large the buffer: more gains nothing there and
/// exceeds the caches.
const WINDOW: u32 = 2 << 20;

/// Payload that fits the receive buffer for datagrams of any size, at most `most`.
pub(crate) fn window(socket: &Socket, most: u32) -> u32 {
    let fits = receive_buffer(socket) / BUFFER_OVERHEAD;
    WINDOW
        .min(most)
        .min(u32::try_from(fits).unwrap_or(u32::MAX))
        .max(4096)
}

/// Longest datagram for the route to the connected peer.
pub(crate) fn path_datagram(socket: &Socket, peer: SocketAddr) -> Option<usize> {
    let mtu = route_mtu(socket, peer).or_else(|| {
        // An IPv6 socket that reaches IPv4 loses its route when that changes, and finds it again only by a connect.
        socket.connect(&socket.peer_addr().ok()?).ok()?;
        route_mtu(socket, peer)
    })?;
    Some(encapsulation(socket, peer).max_stu(mtu) + zerolane_wire::HEADER_LEN)
}

fn route_mtu(socket: &Socket, peer: SocketAddr) -> Option<usize> {
    let fd = socket.as_raw_fd();
    let mtu = match peer {
        SocketAddr::V4(_) => get(fd, libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => get(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    usize::try_from(mtu.ok()?).ok()
}

/// Reconnects `socket` if the system would now choose another source address for `peer`; keeps the port if possible.
/// True if this end's address changed.
pub(crate) fn renew_source(socket: &Socket, peer: SocketAddr) -> io::Result<bool> {
    let before = socket.local_addr()?.as_socket();
    // A second socket finds it out, because an unconnected socket receives from every address.
    let chosen = open(any_address(peer, 0), Share::WithJoining)?;
    chosen.connect(&SockAddr::from(peer))?;
    let chosen = chosen.local_addr()?.as_socket();
    if chosen.map(|it| it.ip()) == before.map(|it| it.ip()) {
        return Ok(false);
    }
    let port = before.map_or(0, |address| address.port());
    disconnect(socket)?;
    // Refused if the port is still bound or was taken; then the system assigns another.
    let _ = socket.bind(&SockAddr::from(any_address(peer, port)));
    // Without a route to the peer it stays unconnected until the next attempt.
    socket.connect(&SockAddr::from(peer))?;
    Ok(socket.local_addr()?.as_socket() != before)
}

/// The wildcard address of `like`'s family.
pub(crate) fn any_address(like: SocketAddr, port: u16) -> SocketAddr {
    let any: IpAddr = match like {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, port)
}

/// Releases the peer's address, and with it this end's own.
fn disconnect(socket: &Socket) -> io::Result<()> {
    // SAFETY: all fields of sockaddr are integers, for which zero is a value.
    let mut nothing: libc::sockaddr = unsafe { std::mem::zeroed() };
    nothing.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: an address of that length lives across the call; fd is an open socket.
    match unsafe { libc::connect(socket.as_raw_fd(), &raw const nothing, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As [`path_datagram`], for the peer that the socket is connected to.
pub(crate) fn path_datagram_now(socket: &Socket) -> Option<usize> {
    path_datagram(socket, socket.peer_addr().ok()?.as_socket()?)
}

/// Whether the kernel supports UDP segmentation offload on this socket.
pub(crate) fn has_gso(socket: &Socket) -> bool {
    get(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}

/// Makes the socket segment longer data every `segment` bytes, unless a send says otherwise; 0: not at all.
pub(crate) fn set_segment(socket: &Socket, segment: usize) -> io::Result<()> {
    set(
        socket.as_raw_fd(),
        libc::SOL_UDP,
        libc::UDP_SEGMENT,
        segment as i32,
    )
}

/// Permits sends without a copy, if the kernel supports them.
pub(crate) fn enable_zerocopy(socket: &Socket) -> bool {
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).is_ok()
}

/// ECN-capable: routers may mark the datagram instead of dropping it (ECT(0), RFC 3168).
const ECT_0: u8 = 0b10;

/// What routers do with a datagram: the IPv4 header's former type of service, and the traffic class of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrafficClass {
    /// It is ECN-capable.
    pub(crate) ect: bool,
    /// RFC 2474, 0 to 63.
    pub(crate) dscp: u8,
}

/// Makes the socket report each datagram's ECN field. GRO does not merge datagrams whose fields differ.
pub(crate) fn show_ecn(socket: &Socket) {
    let fd = socket.as_raw_fd();
    // If the kernel has only one of the two, the other address family is not in use.
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
}

/// Gives datagrams to `peer` this class from now on. If the kernel refuses, no marks come back, and the core detects that.
pub(crate) fn send_class(socket: &Socket, peer: SocketAddr, class: TrafficClass) {
    let fd = socket.as_raw_fd();
    let field = class.dscp << 2 | if class.ect { ECT_0 } else { 0 };
    let _ = match peer {
        SocketAddr::V4(_) => set(fd, libc::IPPROTO_IP, libc::IP_TOS, field.into()),
        SocketAddr::V6(_) => set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, field.into()),
    };
}

/// Makes the socket report when each datagram arrived, by the system's clock.
pub(crate) fn show_arrival_times(socket: &Socket) {
    // If the kernel refuses, datagrams count as just arrived.
    let _ = set(
        socket.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPNS,
        1,
    );
}

/// Whether the socket reports arrival times.
#[cfg(test)]
pub(crate) fn tells_arrival_times(socket: &Socket) -> bool {
    get(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS).is_ok_and(|set| set == 1)
}

/// Turns receive offload on, if the kernel supports it.
pub(crate) fn enable_gro(socket: &Socket) -> bool {
    set(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
}

fn set(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option value is an int that lives across the call; fd is an open socket.
    let done = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(super) fn get(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: value and len live across the call and len says how large value is.
    let done = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    if done == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether the kernel holds data of this socket that has not left.
pub(crate) fn has_unsent(socket: &Socket) -> bool {
    let mut unsent = 0i32;
    // SAFETY: the request writes one int, which lives across the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
    done == 0 && unsent > 0
}
