//! Stands in front of the C library's functions of the same names. Each does what that one does, and keeps `errno`.

use crate::address::{Raw, read};
use crate::handed::{self, hand_over, is_tcp};
use crate::real;
use crate::registered;
use crate::talk::{Talk, errno, runner, set_errno};
use libc::{EINPROGRESS, c_int, epoll_event, sockaddr, socklen_t};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use zerolane_streams::sockets::call::{Answer, Call};

/// How long a program that does not block may be held up until TCP is connected: the round trip of a very long path.
const CONNECT_MILLIS: c_int = 300;
/// The state of a TCP socket that is not connected, in the first byte of TCP_INFO.
const TCP_CLOSE: u8 = 7;

/// As `connect`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's.
    let real = || unsafe { real::connect::call(socket, address, len) };
    let before = errno();
    // SAFETY: the caller vouches for the address.
    let to = unsafe { read(address, len) };
    let asked = to.filter(is_a_host).and_then(|to| ask(socket, to));
    set_errno(before);
    match asked {
        None => real(),
        Some(Asked::Refused) => refuse(libc::ECONNREFUSED),
        Some(Asked::Goes(talk)) => connect_and_give(socket, &talk, real),
    }
}

enum Asked {
    Goes(Talk),
    Refused,
}

/// Tells the runner that `socket` will connect. `None`: it need not know.
fn ask(socket: c_int, to: SocketAddr) -> Option<Asked> {
    let runner = runner()?;
    if !is_tcp(socket) || !is_unconnected(socket) {
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
        None if runner.strict && crate::talk::Talk::begin(runner).is_none() => Some(Asked::Refused),
        asked => asked,
    }
}

/// The port that a socket will connect from: the server must know it before.
fn bound_port(socket: c_int) -> Option<u16> {
    let local = handed::local(socket)?;
    if local.port() != 0 {
        return Some(local.port());
    }
    let (raw, len) = Raw::of(SocketAddr::new(local.ip(), 0), local.is_ipv6());
    // SAFETY: the address outlives the call.
    if unsafe { real::bind::call(socket, raw.pointer(), len) } != 0 {
        return None;
    }
    let port = handed::local(socket)?.port();
    (port != 0).then_some(port)
}

fn is_unconnected(socket: c_int) -> bool {
    let mut state = [0_u8; 1];
    let mut len = 1 as socklen_t;
    // SAFETY: the buffer is writable for `len` bytes; the kernel writes as much as fits.
    let done = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            state.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    done == 0 && state[0] == TCP_CLOSE
}

/// Connects, and gives the connection to the runner if the other end has Zerolane.
fn connect_and_give(socket: c_int, talk: &Talk, real: impl Fn() -> c_int) -> c_int {
    let started = Instant::now();
    let connected = real();
    let error = errno();
    let goes_on = match connected {
        0 => true,
        _ if error == EINPROGRESS => is_connected_soon(socket),
        _ => false,
    };
    let Some(runner) = runner().filter(|_| goes_on) else {
        set_errno(error);
        return connected;
    };
    let micros = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
    match talk.ask(Call::Connected(micros)) {
        Some(Answer::Carried) => {
            hand_over(runner, talk, socket);
        }
        Some(Answer::Refused) => {
            // SAFETY: no pointers.
            unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
            return refuse(libc::ECONNREFUSED);
        }
        _ => {}
    }
    set_errno(error);
    connected
}

/// Waits for a connection that is being made.
fn is_connected_soon(socket: c_int) -> bool {
    let mut look = libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one structure, which outlives the call.
    let ready = unsafe { libc::poll(&raw mut look, 1, CONNECT_MILLIS) };
    ready == 1 && look.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) == 0
}

fn is_a_host(address: &SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let everybody = matches!(ip, IpAddr::V4(it) if it.is_broadcast());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !everybody
}

fn refuse(error: c_int) -> c_int {
    set_errno(error);
    -1
}

/// As `accept`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    accepted(unsafe { real::accept::call(socket, address, len) })
}

/// As `accept4`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's.
    accepted(unsafe { real::accept4::call(socket, address, len, flags) })
}

/// Asks the runner about a connection that was accepted.
fn accepted(socket: c_int) -> c_int {
    let error = errno();
    if socket >= 0
        && let Some(runner) = runner()
        && is_tcp(socket)
        && let (Some(local), Some(peer)) = (handed::local(socket), handed::peer(socket))
    {
        let talk = Talk::begin(runner);
        let answer = talk
            .as_ref()
            .and_then(|it| it.ask(Call::Accepted { local, peer }));
        let refused = match (&talk, answer) {
            (Some(talk), Some(Answer::Carried)) => {
                // The number may have been in a set when another socket had it.
                hand_over(runner, talk, socket);
                false
            }
            (_, Some(Answer::Refused)) => true,
            (None, _) | (_, None) => runner.strict,
            _ => false,
        };
        if refused {
            // SAFETY: the program does not know this descriptor.
            unsafe { libc::close(socket) };
            return refuse(libc::ECONNABORTED);
        }
    }
    set_errno(error);
    socket
}

/// As `listen`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(socket: c_int, backlog: c_int) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { real::listen::call(socket, backlog) };
    let error = errno();
    if done == 0
        && let Some(runner) = runner()
        && is_tcp(socket)
        && let Some(on) = handed::local(socket)
        && let Some(talk) = Talk::begin(runner)
    {
        let only_v6 = handed::option(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1);
        talk.ask(Call::Listen { on, only_v6 });
    }
    set_errno(error);
    done
}

/// As `bind`. The runner answers questions at the UDP ports of the program's TCP ports, and leaves one that the program
/// wants.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(socket: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { real::bind::call(socket, address, len) };
    if done == 0 || errno() != libc::EADDRINUSE {
        return done;
    }
    // SAFETY: the caller vouches for the address.
    let wanted = unsafe { read(address, len) };
    let released = handed::option(socket, libc::SOL_SOCKET, libc::SO_TYPE)
        == Some(libc::SOCK_DGRAM)
        && wanted.is_some_and(|wanted| {
            let talk = runner().and_then(Talk::begin);
            talk.and_then(|it| it.ask(Call::Release(wanted.port())))
                .is_some()
        });
    if released {
        // SAFETY: the caller's.
        return unsafe { real::bind::call(socket, address, len) };
    }
    refuse(libc::EADDRINUSE)
}

/// As `getpeername`: the host at the other end, not the runner.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller vouches for the pointers.
    let room = (!len.is_null()).then(|| unsafe { *len });
    // SAFETY: the caller's.
    let done = unsafe { real::getpeername::call(socket, address, len) };
    if done == 0
        && let Some((_, peer)) = names(socket)
    {
        // SAFETY: the call before has written to both.
        unsafe { rename(socket, peer, address, len, room) };
    }
    done
}

/// As `getsockname`: the address that the other end knows.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    socket: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller vouches for the pointers.
    let room = (!len.is_null()).then(|| unsafe { *len });
    // SAFETY: the caller's.
    let done = unsafe { real::getsockname::call(socket, address, len) };
    if done == 0
        && let Some((local, _)) = names(socket)
    {
        // SAFETY: the call before has written to both.
        unsafe { rename(socket, local, address, len, room) };
    }
    done
}

/// The addresses of a connection that the runner carries.
fn names(socket: c_int) -> Option<(SocketAddr, SocketAddr)> {
    let runner = runner()?;
    let error = errno();
    let names = || {
        let local = handed::local(socket)?;
        let inner = handed::peer(socket)?;
        if !inner.ip().to_canonical().is_loopback()
            || inner.port() != runner.port
            || !is_tcp(socket)
        {
            return None;
        }
        match Talk::begin(runner)?.ask(Call::Names(local.port()))? {
            Answer::Names { local, peer } => Some((local, peer)),
            _ => None,
        }
    };
    let names = names();
    set_errno(error);
    names
}

/// Writes an address for the program.
///
/// # Safety
/// `address` has room for `room` bytes, and `len` is writable.
unsafe fn rename(
    socket: c_int,
    name: SocketAddr,
    address: *mut sockaddr,
    len: *mut socklen_t,
    room: Option<socklen_t>,
) {
    let Some(room) = room else { return };
    let domain = handed::option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN);
    let (raw, own) = Raw::of(name, domain == Some(libc::AF_INET6));
    // SAFETY: the caller's.
    unsafe {
        *len = room;
        raw.write(own, address, len);
    }
}

/// As `epoll_ctl`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    what: c_int,
    socket: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's.
    let done = unsafe { real::epoll_ctl::call(epoll, what, socket, event) };
    if done == 0 && runner().is_some() {
        let error = errno();
        match what {
            libc::EPOLL_CTL_DEL => registered::note(epoll, socket, None),
            // SAFETY: the kernel has just read the event; its structure may be unaligned.
            _ => registered::note(epoll, socket, Some(unsafe { event.read_unaligned() })),
        }
        set_errno(error);
    }
    done
}
