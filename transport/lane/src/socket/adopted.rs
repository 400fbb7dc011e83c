//! Adopts a listening socket that another program opened and bound, such as a service manager.
//!
//! The socket may belong to another user. The kernel lets sockets of two users share an address only if both have
//! SO_REUSEADDR. A socket with that option lets every user of the host bind beside it and receive unauthenticated
//! peers' datagrams. So both have the option only while a connection's socket is bound.

use super::udp;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Takes `passed` for a listening socket, and sets the options of this crate's own ones. Returns its address as well.
///
/// # Errors
/// It is not a UDP socket that is bound and unconnected, or connections could not share its address.
pub(super) fn adopt(passed: OwnedFd, receive_buffer: usize) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::from(passed);
    let local = check(&socket).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    socket.set_nonblocking(true)?;
    socket.set_cloexec(true)?;
    socket.set_reuse_address(false)?;
    udp::forbid_fragmentation(socket.as_raw_fd(), local);
    udp::prepare(&socket, receive_buffer);
    // Checked now rather than at the first connection.
    bind_beside(&socket, local).map_err(|why| {
        let why = format!(
            "connections cannot share {local} with it: {why} (a port below 1024 needs CAP_NET_BIND_SERVICE)"
        );
        io::Error::new(io::ErrorKind::AddrNotAvailable, why)
    })?;
    Ok((socket, local))
}

/// The address of a socket that can be used for listening, or why it cannot.
fn check(socket: &Socket) -> Result<SocketAddr, String> {
    let fd = socket.as_raw_fd();
    let option = |name| udp::get(fd, libc::SOL_SOCKET, name);
    let family = option(libc::SO_DOMAIN).map_err(|why| format!("not a socket: {why}"))?;
    if !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return Err(
            "not an IPv4 or IPv6 socket: systemd makes one of ListenDatagram=ADDR:PORT".into(),
        );
    }
    let is = |name, value| option(name).is_ok_and(|it| it == value);
    if !is(libc::SO_TYPE, libc::SOCK_DGRAM) || !is(libc::SO_PROTOCOL, libc::IPPROTO_UDP) {
        return Err("not a UDP socket: systemd makes one of ListenDatagram=ADDR:PORT".into());
    }
    if let Some(peer) = socket.peer_addr().ok().and_then(|it| it.as_socket()) {
        return Err(format!("connected to {peer}: pass an unconnected socket"));
    }
    let local = socket.local_addr().ok().and_then(|it| it.as_socket());
    let bound = local.filter(|it| it.port() != 0);
    bound.ok_or_else(|| "not bound to an address and a port".into())
}

/// Binds a socket beside `adopted`, to `local`: its address, or one that its wildcard includes.
///
/// # Errors
/// The kernel refuses.
pub(super) fn bind_beside(adopted: &Socket, local: SocketAddr) -> io::Result<Socket> {
    let socket = udp::unbound(local)?;
    if local.is_ipv6() {
        // Otherwise it could claim an IPv4 address that belongs to another socket.
        socket.set_only_v6(adopted.only_v6()?)?;
    }
    // So that connections can share the address with each other.
    socket.set_reuse_port(true)?;
    socket.set_reuse_address(true)?;
    adopted.set_reuse_address(true)?;
    let bound = socket.bind(&SockAddr::from(local));
    adopted.set_reuse_address(false)?;
    bound?;
    socket.set_reuse_address(false)?;
    Ok(socket)
}

#[cfg(test)]
#[path = "adopted_tests.rs"]
mod tests;
