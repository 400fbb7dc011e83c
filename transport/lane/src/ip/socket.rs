//! Raw sockets: everything that has to do with the kernel's IP and nothing with the protocol.

use super::{NoIp118, filter};
use crate::udp::{self, Envelope};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use zerolane_wire::encapsulation::IP_PROTOCOL;

/// What a socket of the family of `like` shows around a datagram.
pub(super) fn envelope(like: SocketAddr) -> Envelope {
    match like {
        SocketAddr::V4(_) => Envelope::Ipv4,
        SocketAddr::V6(_) => Envelope::Ipv6,
    }
}

/// `address` as one of the family that carries it: an IPv4 address is no IPv6 address to raw sockets.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    let mapped = match address {
        SocketAddr::V4(_) => None,
        SocketAddr::V6(it) => it.ip().to_ipv4_mapped(),
    };
    match mapped {
        Some(ip) => SocketAddrV4::new(ip, address.port()).into(),
        None => address,
    }
}

/// `address`, at another port.
pub(super) fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    match address {
        SocketAddr::V4(it) => SocketAddrV4::new(*it.ip(), port).into(),
        SocketAddr::V6(it) => SocketAddrV6::new(*it.ip(), port, 0, it.scope_id()).into(),
    }
}

/// The address that `socket` speaks from, with this port of the protocol's header.
pub(super) fn local(socket: &Socket, port: u16) -> io::Result<SocketAddr> {
    let local = socket.local_addr()?.as_socket();
    let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(with_port(local, port))
}

/// What the kernel is told: raw sockets have no ports, and IPv6's take one for the protocol.
pub(super) fn bare(address: SocketAddr) -> SockAddr {
    with_port(address, 0).into()
}

/// A raw socket at `local`, connected to `peer`, which is shown what passes `filter`.
///
/// # Errors
/// There is no way to the peer; [`NoIp118`]; or the system has no more of what a socket needs.
pub(super) fn connected(
    local: Option<SocketAddr>,
    peer: SocketAddr,
    filter: &[SockFilter],
) -> io::Result<Socket> {
    let socket = silent(peer)?;
    if let Some(local) = local {
        socket.bind(&bare(local))?;
    }
    socket.connect(&bare(peer))?;
    hear(&socket, filter)?;
    Ok(socket)
}

/// A raw socket at `local`, which is shown what passes `filter`, whoever it is from.
///
/// # Errors
/// The address is not ours; [`NoIp118`]; or the system has no more of what a socket needs.
pub(super) fn bound(local: SocketAddr, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = silent(local)?;
    socket.bind(&bare(local))?;
    hear(&socket, filter)?;
    Ok(socket)
}

/// A raw socket of the family of `like` that is shown nothing more.
fn silent(like: SocketAddr) -> io::Result<Socket> {
    let protocol = Protocol::from(i32::from(IP_PROTOCOL));
    let socket = Socket::new(Domain::for_address(like), Type::RAW, Some(protocol));
    let socket = socket.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => NoIp118::NotPermitted.into(),
        _ => error,
    })?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(&filter::of_nobody())?;
    udp::forbid_fragmentation(socket.as_raw_fd(), like);
    Ok(socket)
}

/// Has a socket that is shown nothing be shown what passes `filter`, without what came before it was silent.
fn hear(socket: &Socket, filter: &[SockFilter]) -> io::Result<()> {
    while socket.recv(&mut [MaybeUninit::uninit()]).is_ok() {}
    socket.attach_filter(filter)
}
