//! Builds kernel filters for raw sockets, each of which would otherwise receive all packets of the protocol on this
//! host.

use crate::socket::filter::{ALL, Program};
use socket2::SockFilter;
use std::net::SocketAddr;

/// For sockets of `like`'s family: IPv4 sockets receive the IP header as well.
fn program(like: SocketAddr) -> Program {
    match like {
        SocketAddr::V4(_) => Program::of_packets(),
        SocketAddr::V6(_) => Program::of_datagrams(),
    }
}

/// Accepts nothing.
pub(crate) fn of_nobody() -> Vec<SockFilter> {
    Program::of_datagrams().show(0).take()
}

/// Accepts requests to the listener at `local`.
pub(crate) fn of_listener(local: SocketAddr) -> Vec<SockFilter> {
    let mut program = program(local);
    let asked = program.expect_unauthenticated(local.port(), 1);
    asked.show(ALL).show(0).take()
}

/// Accepts datagrams with the `key` of a connection with `peer`. If a listener made the connection, also accepts
/// requests that its peer repeats, by its port and the listener's. The connected socket checks the peer's address.
pub(crate) fn of_connection(
    peer: SocketAddr,
    key: u32,
    asked: Option<(u16, u16)>,
) -> Vec<SockFilter> {
    let mut program = program(peer);
    program.expect_key(key, 1).show(ALL);
    if let Some(ports) = asked {
        program.expect_asked(ports, 1).show(ALL);
    }
    program.show(0).take()
}
