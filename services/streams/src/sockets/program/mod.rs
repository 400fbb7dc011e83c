//! Asks a pump about a program's sockets when the program uses them: called by the preloaded library and by the trap.
//!
//! Nothing here allocates or waits for a lock: the library may run in a signal handler, or between `vfork` and `exec`.
//! Where anything fails, the program's connection stays the kernel's.

pub mod address;
mod stand_in;
mod talk;

pub use stand_in::stand_in;
pub use talk::Talk;

use super::call::{Answer, Call, Runner};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, Protocol, SocketType, bind, getpeername, getsockname, ipproto, sockopt,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use zerolane::trap::socket_option;

/// How long a program that does not block may be held up until TCP is connected: the round trip of a very long path.
const CONNECT_WITHIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};
/// The state of a TCP socket that is not connected, in the first byte of TCP_INFO.
const TCP_CLOSE: u8 = 7;

/// What the pump says about a connection that a program makes.
#[derive(Debug)]
pub enum Asked {
    /// Connect, then say so in this conversation.
    Goes(Talk),
    /// It must fail.
    Refused,
}

/// What the pump says about a connection that a program has accepted.
#[derive(Debug)]
pub enum Accepted {
    /// It stays what it is.
    Plain,
    /// Give it to the pump in this conversation.
    Carried(Talk),
    /// It must fail.
    Refused,
}

/// Tells the pump that `socket` will connect. `None`: it need not know.
pub fn ask(runner: &Runner, socket: impl AsFd, to: SocketAddr) -> Option<Asked> {
    let socket = socket.as_fd();
    if !is_a_host(&to) || !is_tcp(socket) || !is_unconnected(socket) {
        return None;
    }
    let asked = || {
        let talk = Talk::begin(runner)?;
        match talk.ask(Call::Connect(to))? {
            Answer::Go => {}
            Answer::Refused => return Some(Asked::Refused),
            _ => return None,
        }
        let port = bound_port(socket)?;
        match talk.ask(Call::From(port))? {
            Answer::Go => Some(Asked::Goes(talk)),
            Answer::Refused => Some(Asked::Refused),
            _ => None,
        }
    };
    match asked() {
        None if runner.strict && Talk::begin(runner).is_none() => Some(Asked::Refused),
        asked => asked,
    }
}

/// The port that a socket will connect from: the server must know it before.
fn bound_port(socket: impl AsFd) -> Option<u16> {
    let socket = socket.as_fd();
    let own = local(socket)?;
    if own.port() != 0 {
        return Some(own.port());
    }
    bind(socket, &SocketAddr::new(own.ip(), 0)).ok()?;
    let port = local(socket)?.port();
    (port != 0).then_some(port)
}

/// Whether a socket that does not block is connected before its program may be held up no longer.
pub fn is_connected_soon(socket: impl AsFd) -> bool {
    let mut look = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
    let ready = poll(&mut look, Some(&CONNECT_WITHIN)) == Ok(1);
    let failed = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    ready && !look[0].revents().intersects(failed)
}

/// Asks the pump about a connection that was accepted.
pub fn accepted(runner: &Runner, socket: impl AsFd) -> Accepted {
    let socket = socket.as_fd();
    let (true, Some(local), Some(peer)) = (is_tcp(socket), local(socket), peer(socket)) else {
        return Accepted::Plain;
    };
    let talk = Talk::begin(runner);
    let answer = talk
        .as_ref()
        .and_then(|it| it.ask(Call::Accepted { local, peer }));
    match (talk, answer) {
        (Some(talk), Some(Answer::Carried)) => Accepted::Carried(talk),
        (_, Some(Answer::Refused)) => Accepted::Refused,
        (_, None) if runner.strict => Accepted::Refused,
        _ => Accepted::Plain,
    }
}

/// Tells the pump that `socket` listens.
pub fn listens(runner: &Runner, socket: impl AsFd) {
    let socket = socket.as_fd();
    if takes_tcp(socket)
        && let Some(on) = local(socket)
        && let Some(talk) = Talk::begin(runner)
    {
        let only_v6 = sockopt::ipv6_v6only(socket) == Ok(true);
        talk.ask(Call::Listen { on, only_v6 });
    }
}

/// Takes a UDP port from the pump that `socket` wants. False: the pump is gone, or it is no UDP socket.
pub fn releases(runner: &Runner, socket: impl AsFd, port: u16) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::DGRAM)
        && Talk::begin(runner).is_some_and(|it| it.ask(Call::Release(port)).is_some())
}

/// The addresses of a connection that the pump carries: the own one and the peer's.
pub fn names(runner: &Runner, socket: impl AsFd) -> Option<(SocketAddr, SocketAddr)> {
    let socket = socket.as_fd();
    if !is_stand_in(runner, socket) {
        return None;
    }
    match Talk::begin(runner)?.ask(Call::Names(local(socket)?.port()))? {
        Answer::Names { local, peer } => Some((local, peer)),
        _ => None,
    }
}

/// Whether it is connected to the pump.
pub fn is_stand_in(runner: &Runner, socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    let to_it = |it: SocketAddr| it.ip().to_canonical().is_loopback() && it.port() == runner.port;
    peer(socket).is_some_and(to_it) && is_tcp(socket)
}

/// Whether its addresses are those of IPv6.
pub fn is_v6(socket: impl AsFd) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::INET6)
}

/// Whether it is a TCP socket.
pub fn is_tcp(socket: impl AsFd) -> bool {
    protocol(socket) == Some(ipproto::TCP)
}

/// Whether it takes TCP connections if it listens. A socket of Multipath TCP does, and what comes by plain TCP is a TCP
/// socket then: so listen programs in Go.
pub fn takes_tcp(socket: impl AsFd) -> bool {
    matches!(protocol(socket), Some(ipproto::TCP | ipproto::MPTCP))
}

fn protocol(socket: impl AsFd) -> Option<Protocol> {
    let socket = socket.as_fd();
    let stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    stream.then(|| sockopt::socket_protocol(socket).ok().flatten())?
}

/// The kernel's own address of a socket.
pub fn local(socket: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getsockname(socket).ok()?).ok()
}

/// The kernel's address of its peer.
pub fn peer(socket: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getpeername(socket).ok()??).ok()
}

fn is_unconnected(socket: impl AsFd) -> bool {
    let mut state = [0];
    socket_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state).is_ok()
        && state[0] == TCP_CLOSE
}

fn is_a_host(address: &SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let everybody = matches!(ip, IpAddr::V4(it) if it.is_broadcast());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !everybody
}
