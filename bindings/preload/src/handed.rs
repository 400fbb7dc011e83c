//! Puts a socket that is connected to the runner in the place of a TCP connection.

use crate::address::{self, Raw};
use crate::real;
use crate::registered::{self, Where};
use crate::talk::Talk;
use libc::{c_int, c_void, socklen_t};
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddr};
use zerolane_streams::sockets::call::{Answer, Call, Runner};

/// Options that a program may have set on its own socket, or on the listener that the socket comes from.
const OPTIONS: [(c_int, c_int); 13] = [
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

/// A descriptor that is closed unless it is used.
struct Held(c_int);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { libc::close(self.0) };
    }
}

/// Gives the runner the connection of `socket`, and makes `socket` a connection to the runner. False: it is unchanged.
pub(crate) fn hand_over(runner: &Runner, talk: &Talk, socket: c_int) -> bool {
    let found = registered::find(socket);
    if matches!(found, Where::Unclear) {
        return false;
    }
    let Some(own) = connected_to(runner, socket) else {
        return false;
    };
    let Some(port) = local(own.0).map(|it| it.port()) else {
        return false;
    };
    copy_options(socket, own.0);
    // SAFETY: descriptors and flags only.
    let (flags, descriptor_flags) = unsafe {
        (
            libc::fcntl(socket, libc::F_GETFL),
            libc::fcntl(socket, libc::F_GETFD),
        )
    };
    // SAFETY: as before.
    if flags < 0 || descriptor_flags < 0 || unsafe { libc::fcntl(own.0, libc::F_SETFL, flags) } < 0
    {
        return false;
    }
    if talk.give(Call::Take(port), socket) != Some(Answer::Go) {
        return false;
    }
    let close_on_exec = match descriptor_flags & libc::FD_CLOEXEC {
        0 => 0,
        _ => libc::O_CLOEXEC,
    };
    // SAFETY: descriptors only. It cannot fail: both are open, and differ.
    unsafe { libc::dup3(own.0, socket, close_on_exec) };
    if let Where::In(set, mut event) = found {
        // SAFETY: the event outlives the call.
        unsafe { real::epoll_ctl::call(set, libc::EPOLL_CTL_ADD, socket, &raw mut event) };
    }
    true
}

/// A new socket of the same family, connected to the runner over loopback.
fn connected_to(runner: &Runner, socket: c_int) -> Option<Held> {
    let is_v6 = option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)? == libc::AF_INET6;
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let own = unsafe { libc::socket(family, kind, 0) };
    if own < 0 {
        return None;
    }
    let own = Held(own);
    if is_v6 {
        let off: c_int = 0;
        set_option(
            own.0,
            libc::IPPROTO_IPV6,
            libc::IPV6_V6ONLY,
            &off.to_ne_bytes(),
        );
    }
    // What never leaves the machine needs no pacing.
    set_option(own.0, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno");
    let inner = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), runner.port);
    let (raw, len) = Raw::of(inner, is_v6);
    // SAFETY: the address outlives the call.
    let connected = unsafe { real::connect::call(own.0, raw.pointer(), len) };
    (connected == 0).then_some(own)
}

fn copy_options(from: c_int, to: c_int) {
    for (level, name) in OPTIONS {
        let mut value = [0_u8; OPTION_BYTES];
        let mut len = OPTION_BYTES as socklen_t;
        let place = value.as_mut_ptr().cast::<c_void>();
        // SAFETY: the value is writable for `len` bytes.
        if unsafe { libc::getsockopt(from, level, name, place, &raw mut len) } == 0 {
            set_option(to, level, name, &value[..len as usize]);
        }
    }
}

fn set_option(socket: c_int, level: c_int, name: c_int, value: &[u8]) {
    // An option that cannot be set stays at its default.
    // SAFETY: the value outlives the call and has the length given.
    unsafe {
        libc::setsockopt(
            socket,
            level,
            name,
            value.as_ptr().cast::<c_void>(),
            value.len() as socklen_t,
        );
    }
}

/// An option that is a number.
pub(crate) fn option(socket: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: the value is writable for `len` bytes.
    let done = unsafe { libc::getsockopt(socket, level, name, place, &raw mut len) };
    (done == 0).then_some(value)
}

/// Whether it is a TCP socket.
pub(crate) fn is_tcp(socket: c_int) -> bool {
    let stream = option(socket, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_STREAM);
    stream && option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// The kernel's own address of a socket.
pub(crate) fn local(socket: c_int) -> Option<SocketAddr> {
    // SAFETY: `ask` passes memory for an address and its length.
    address::ask(|address, len| unsafe { real::getsockname::call(socket, address, len) })
}

/// The kernel's address of its peer.
pub(crate) fn peer(socket: c_int) -> Option<SocketAddr> {
    // SAFETY: `ask` passes memory for an address and its length.
    address::ask(|address, len| unsafe { real::getpeername::call(socket, address, len) })
}
