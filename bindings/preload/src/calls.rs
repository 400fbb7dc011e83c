//! Stands in front of the C library's functions of the same names. Each does what that one does, and keeps `errno`.

use crate::handed::{borrowed, hand_over};
use crate::real;
use crate::registered;
use crate::runner::{errno, runner, set_errno};
use libc::{EINPROGRESS, c_int, epoll_event, sockaddr, socklen_t};
use std::net::SocketAddr;
use std::time::Instant;
use zerolane_streams::sockets::call::{Answer, Call};
use zerolane_streams::sockets::program::{
    self, Accepted, Asked, Talk, address::ADDRESS_BYTES, is_connected_soon,
};

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
    let asked = to.zip(runner()).and_then(|(to, runner)| {
        // SAFETY: the program passes an open descriptor, or the kernel refuses each call with it.
        program::ask(runner, unsafe { borrowed(socket)? }, to)
    });
    set_errno(before);
    match asked {
        None => real(),
        Some(Asked::Refused) => refuse(libc::ECONNREFUSED),
        Some(Asked::Goes(talk)) => connect_and_give(socket, &talk, real),
    }
}

/// Reads an address.
///
/// # Safety
/// `address` is null, or points to `len` readable bytes.
unsafe fn read(address: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let len = (len as usize).min(ADDRESS_BYTES);
    // SAFETY: the caller vouches for so many bytes.
    program::address::read(unsafe { std::slice::from_raw_parts(address.cast(), len) })
}

/// Connects, and gives the connection to the runner if the other end has Zerolane.
fn connect_and_give(socket: c_int, talk: &Talk, real: impl Fn() -> c_int) -> c_int {
    let started = Instant::now();
    let connected = real();
    let error = errno();
    let goes_on = match connected {
        0 => true,
        _ if error == EINPROGRESS => {
            // SAFETY: the kernel has just taken it.
            unsafe { borrowed(socket) }.is_some_and(is_connected_soon)
        }
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
    // SAFETY: the kernel has just made it.
    if let (Some(runner), Some(own)) = (runner(), unsafe { borrowed(socket) }) {
        match program::accepted(runner, own) {
            Accepted::Plain => {}
            // The number may have been in a set when another socket had it.
            Accepted::Carried(talk) => {
                hand_over(runner, &talk, socket);
            }
            Accepted::Refused => {
                // SAFETY: the program does not know this descriptor.
                unsafe { libc::close(socket) };
                return refuse(libc::ECONNABORTED);
            }
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
    // SAFETY: the kernel has just taken it.
    if let (0, Some(runner), Some(own)) = (done, runner(), unsafe { borrowed(socket) }) {
        program::listens(runner, own);
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
    // SAFETY: the kernel has just seen it.
    let own = unsafe { borrowed(socket) };
    let released = match (wanted, runner(), own) {
        (Some(wanted), Some(runner), Some(own)) => program::releases(runner, own, wanted.port()),
        _ => false,
    };
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
    let error = errno();
    // SAFETY: the kernel has just taken it.
    let names = runner().and_then(|it| program::names(it, unsafe { borrowed(socket)? }));
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
    // SAFETY: the kernel has just taken it.
    let is_v6 = unsafe { borrowed(socket) }.is_some_and(program::is_v6);
    let (bytes, own) = program::address::write(name, is_v6);
    // SAFETY: the caller's; as much as there is room for, and the whole length.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), own.min(room as usize));
        *len = own as socklen_t;
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
