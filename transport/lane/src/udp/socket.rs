//! The socket and its options: everything that has to do with the kernel's UDP and nothing with
//! the protocol.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use zerolane_wire::encapsulation::{Encapsulation, IP_PROTOCOL};

/// UDP sockets count their buffers in what the kernel allocates, not in payload. A 1500-byte
/// datagram may hold a page and its descriptor: three times its payload at worst.
const BUFFER_OVERHEAD: usize = 3;

/// Send buffer to ask for, bytes: a few bursts.
const SEND_BUFFER: usize = 2 << 20;

/// What carries the datagrams that `socket`, a UDP or a raw one, sends to `peer`.
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

/// Whether others may be bound to the same address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Those of [`Share::Joins`] may: a listener's, and an Initiator's. No other socket is bound to the address
    /// when it is taken, a listener of the same user included, with which the kernel would divide strangers
    /// (and whose port it would give out when any port is asked for).
    WithJoining,
    /// It joins one of those: the connected sockets of accepted connections do, which the kernel prefers,
    /// and those that hear peers that the connected ones do not.
    Joins,
}

/// A socket with the options that those at `local` have before they are bound.
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

/// As [`open`], with a receive buffer of so many bytes, if the system gives it.
pub(crate) fn bind(local: SocketAddr, share: Share, receive_buffer: usize) -> io::Result<Socket> {
    let socket = open(local, share)?;
    prepare(&socket, receive_buffer);
    Ok(socket)
}

/// Gives `socket` its buffers.
pub(crate) fn prepare(socket: &Socket, receive_buffer: usize) {
    let fd = socket.as_raw_fd();
    raise_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_buffer);
    raise_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER);
    // Counting drops is a courtesy of the kernel; without it we count none.
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
}

/// Asks for `bytes` of buffer, beyond the system's limit if we may.
fn raise_buffer(fd: RawFd, force: i32, plain: i32, bytes: usize) {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    if set(fd, libc::SOL_SOCKET, force, bytes).is_err() {
        let _ = set(fd, libc::SOL_SOCKET, plain, bytes);
    }
}

/// Sets DF and leaves path MTU discovery to the protocol, which does not trust ICMP.
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

/// Has routers take apart what is sent from here on where it is longer than they carry, or forbids it again. Over IPv6 they
/// do not, and no path is so narrow.
pub(super) fn permit_fragmentation(socket: &Socket, permit: bool) {
    let value = match permit {
        true => libc::IP_PMTUDISC_DONT,
        false => libc::IP_PMTUDISC_PROBE,
    };
    let fd = socket.as_raw_fd();
    // An option of IPv4 alone; a socket of IPv6 that reaches IPv4 has it as well.
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value);
}

/// Bytes of receive buffer the kernel granted, in its own counting.
pub(crate) fn receive_buffer(socket: &Socket) -> usize {
    get(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).map_or(0, |bytes| bytes as usize)
}

/// Payload granted at a time on a short path, bytes, however large the buffer: more gains nothing
/// there and leaves the caches.
const WINDOW: u32 = 2 << 20;

/// Payload that fits the receive buffer whatever the datagrams look like, `most` at most.
pub(super) fn window(socket: &Socket, most: u32) -> u32 {
    let fits = receive_buffer(socket) / BUFFER_OVERHEAD;
    WINDOW
        .min(most)
        .min(u32::try_from(fits).unwrap_or(u32::MAX))
        .max(4096)
}

/// Longest datagram that the route to the connected peer carries.
pub(crate) fn path_datagram(socket: &Socket, peer: SocketAddr) -> Option<usize> {
    let fd = socket.as_raw_fd();
    let mtu = match peer {
        SocketAddr::V4(_) => get(fd, libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => get(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mtu = usize::try_from(mtu.ok()?).ok()?;
    Some(encapsulation(socket, peer).max_stu(mtu) + zerolane_wire::HEADER_LEN)
}

/// Connects `socket` anew if the system would choose another source address for `peer` at present; the
/// port stays if it can. True if our address is another now.
pub(super) fn renew_source(socket: &Socket, peer: SocketAddr) -> io::Result<bool> {
    let before = socket.local_addr()?.as_socket();
    // Asked of another socket first: an unconnected socket receives from every address.
    let chosen = open(any_address(peer, 0), Share::WithJoining)?;
    chosen.connect(&SockAddr::from(peer))?;
    let chosen = chosen.local_addr()?.as_socket();
    if chosen.map(|it| it.ip()) == before.map(|it| it.ip()) {
        return Ok(false);
    }
    let port = before.map_or(0, |address| address.port());
    disconnect(socket)?;
    // Refused where it is still bound, or was taken: then there is another.
    let _ = socket.bind(&SockAddr::from(any_address(peer, port)));
    // Without a way to the peer it stays unconnected until the next try.
    socket.connect(&SockAddr::from(peer))?;
    Ok(socket.local_addr()?.as_socket() != before)
}

/// No address in particular, of the family of `like`.
pub(crate) fn any_address(like: SocketAddr, port: u16) -> SocketAddr {
    let any: IpAddr = match like {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, port)
}

/// Lets go of the peer's address, and so of our own.
fn disconnect(socket: &Socket) -> io::Result<()> {
    // SAFETY: all fields of sockaddr are integers, for which zero is a value.
    let mut nothing: libc::sockaddr = unsafe { std::mem::zeroed() };
    nothing.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: an address of that length that lives across the call; fd is an open socket.
    match unsafe { libc::connect(socket.as_raw_fd(), &raw const nothing, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As [`path_datagram`], of the peer that the socket is connected to.
pub(super) fn path_datagram_now(socket: &Socket) -> Option<usize> {
    path_datagram(socket, socket.peer_addr().ok()?.as_socket()?)
}

/// Whether the kernel knows UDP segmentation offload on this socket.
pub(super) fn has_gso(socket: &Socket) -> bool {
    get(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}

/// Has the socket cut what is longer after every `segment` bytes, where a send does not say so itself; 0: nothing.
pub(super) fn set_segment(socket: &Socket, segment: usize) -> io::Result<()> {
    set(
        socket.as_raw_fd(),
        libc::SOL_UDP,
        libc::UDP_SEGMENT,
        segment as i32,
    )
}

/// Permits sends without a copy, if the kernel has them.
pub(super) fn enable_zerocopy(socket: &Socket) -> bool {
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).is_ok()
}

/// ECN-capable: the path may mark it instead of dropping it (ECT(0), RFC 3168).
const ECT_0: i32 = 0b10;

/// Has the socket say of each datagram what its ECN field was. GRO merges none that differ in it.
pub(super) fn show_ecn(socket: &Socket) {
    let fd = socket.as_raw_fd();
    // Where the kernel has one of them only, the other address family is not in use.
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
}

/// Sends ECN-capable datagrams to `peer`, or such as cannot be marked. Where the kernel refuses, no marks
/// come back, and the core finds out.
pub(super) fn send_ect(socket: &Socket, peer: SocketAddr, ect: bool) {
    let fd = socket.as_raw_fd();
    let field = if ect { ECT_0 } else { 0 };
    let _ = match peer {
        SocketAddr::V4(_) => set(fd, libc::IPPROTO_IP, libc::IP_TOS, field),
        SocketAddr::V6(_) => set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, field),
    };
}

/// Has the socket say of each datagram when it arrived, by the system's clock.
pub(super) fn show_arrival_times(socket: &Socket) {
    // Without, what is read counts as just arrived.
    let _ = set(
        socket.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPNS,
        1,
    );
}

/// Whether it does.
#[cfg(test)]
pub(super) fn tells_arrival_times(socket: &Socket) -> bool {
    get(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS).is_ok_and(|set| set == 1)
}

/// Turns receive offload on, if the kernel has it.
pub(super) fn enable_gro(socket: &Socket) -> bool {
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

/// Whether the kernel has something of this socket that has not left.
pub(super) fn has_unsent(socket: &Socket) -> bool {
    let mut unsent = 0i32;
    // SAFETY: the request writes one int, which lives across the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
    done == 0 && unsent > 0
}
