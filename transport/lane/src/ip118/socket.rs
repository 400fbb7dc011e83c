//! Opens raw sockets: everything about the kernel's IP and nothing about the protocol.

use super::filter;
use crate::socket;
use crate::unavailable::NoIp118;
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use zerolane_wire::encapsulation::IP_PROTOCOL;

/// `address` in the family that carries it: raw sockets do not take an IPv4 address as an IPv6 one.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    let mapped = match address {
        SocketAddr::V4(_) => None,
        SocketAddr::V6(it) => it.ip().to_ipv4_mapped(),
    };
    match mapped {
        Some(ip) => SocketAddrV4::new(ip, address.port()).into(),
        None => address,
    }
}

/// `address`, with another port.
pub(crate) fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    match address {
        SocketAddr::V4(it) => SocketAddrV4::new(*it.ip(), port).into(),
        SocketAddr::V6(it) => SocketAddrV6::new(*it.ip(), port, 0, it.scope_id()).into(),
    }
}

/// The address from which `socket` sends, with this port of the protocol's header.
pub(crate) fn local(socket: &Socket, port: u16) -> io::Result<SocketAddr> {
    let local = socket.local_addr()?.as_socket();
    let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(with_port(local, port))
}

/// The address for the kernel, without a port: raw sockets have none, and IPv6 ones would take it for the protocol.
pub(crate) fn bare(address: SocketAddr) -> SockAddr {
    with_port(address, 0).into()
}

/// A raw socket at `local`, connected to `peer`, which receives datagrams that pass `filter`.
///
/// # Errors
/// There is no route to the peer; [`NoIp118`]; or the system has no resources for a socket.
pub(crate) fn connected(
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

/// A raw socket at `local`, which receives datagrams that pass `filter`, from any host.
///
/// # Errors
/// The address does not belong to this host; [`NoIp118`]; or the system has no resources for a socket.
pub(crate) fn bound(local: SocketAddr, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = silent(local)?;
    socket.bind(&bare(local))?;
    hear(&socket, filter)?;
    Ok(socket)
}

/// A raw socket of `like`'s family that receives nothing yet.
fn silent(like: SocketAddr) -> io::Result<Socket> {
    let protocol = Protocol::from(i32::from(IP_PROTOCOL));
    let socket = Socket::new(Domain::for_address(like), Type::RAW, Some(protocol));
    let socket = socket.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => NoIp118::NotPermitted.into(),
        _ => error,
    })?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(&filter::of_nobody())?;
    socket::forbid_fragmentation(socket.as_raw_fd(), like);
    Ok(socket)
}

/// Makes such a socket receive datagrams that pass `filter`, without those that arrived before it was silent.
fn hear(socket: &Socket, filter: &[SockFilter]) -> io::Result<()> {
    while socket.recv(&mut [MaybeUninit::uninit()]).is_ok() {}
    socket.attach_filter(filter)
}
