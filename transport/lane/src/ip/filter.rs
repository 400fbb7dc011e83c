//! What the kernel shows a raw socket: each has only what is for it, although all of the host see what is of the
//! protocol.

use crate::filter::{ALL, Program};
use socket2::SockFilter;
use std::net::SocketAddr;

/// For sockets of the family of `like`: those of IPv4 are shown the IP header as well.
fn program(like: SocketAddr) -> Program {
    match like {
        SocketAddr::V4(_) => Program::of_packets(),
        SocketAddr::V6(_) => Program::of_datagrams(),
    }
}

/// Nothing.
pub(super) fn of_nobody() -> Vec<SockFilter> {
    Program::of_datagrams().show(0).take()
}

/// What the listener at `local` is asked.
pub(super) fn of_listener(local: SocketAddr) -> Vec<SockFilter> {
    let mut program = program(local);
    let asked = program.expect_stranger(local.port(), 1);
    asked.show(ALL).show(0).take()
}

/// What has the `key` of a connection with `peer`; and where a listener made it, what its peer repeats of what it asked
/// there, by its port and the listener's. That it is the peer's address is the connected socket's to see.
pub(super) fn of_connection(
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
