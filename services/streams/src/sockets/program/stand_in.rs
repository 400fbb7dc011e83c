//! Makes a socket that is connected to a pump and stands in the place of a TCP connection.

use super::local;
use crate::sockets::call::Runner;
use rustix::fs::{fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use zerolane::trap::{set_socket_option, socket_option};

/// Options that a program may have set on its own socket, or on the listener that the socket comes from.
const OPTIONS: [(i32, i32); 13] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
];

/// Room for any of these.
const OPTION_BYTES: usize = 16;

/// A new socket that is connected to the pump over loopback, of the family, with the options and the flags of `socket`;
/// and its port, by which the pump knows it.
pub fn stand_in(runner: &Runner, socket: impl AsFd) -> Option<(OwnedFd, u16)> {
    let socket = socket.as_fd();
    let own = connected_to(runner, sockopt::socket_domain(socket).ok()?)?;
    let port = local(&own)?.port();
    for (level, name) in OPTIONS {
        let mut value = [0; OPTION_BYTES];
        if let Ok(len) = socket_option(socket, level, name, &mut value) {
            // An option that cannot be set stays at its default.
            let _ = set_socket_option(&own, level, name, &value[..len.min(OPTION_BYTES)]);
        }
    }
    fcntl_setfl(&own, fcntl_getfl(socket).ok()?).ok()?;
    Some((own, port))
}

fn connected_to(runner: &Runner, family: AddressFamily) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let own = socket_with(family, SocketType::STREAM, flags, None).ok()?;
    // What never leaves the machine needs no pacing.
    let _ = sockopt::set_tcp_congestion(&own, "reno");
    let here = Ipv4Addr::LOCALHOST;
    if family == AddressFamily::INET6 {
        let _ = sockopt::set_ipv6_v6only(&own, false);
        let mapped = here.to_ipv6_mapped();
        connect(&own, &SocketAddr::new(mapped.into(), runner.port)).ok()?;
    } else {
        connect(&own, &SocketAddr::new(here.into(), runner.port)).ok()?;
    }
    Some(own)
}
