//! Reads and sets options of sockets by number, for those that the crates of sockets do not name. Nothing here
//! allocates.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads an option into `value`; returns the number of bytes that the kernel has for it.
///
/// # Errors
/// The kernel's: the socket has no such option, or `value` is too short for it.
pub fn socket_option(
    socket: impl AsFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    let place = value.as_mut_ptr().cast();
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the value is writable for at least `len` bytes.
    match unsafe { libc::getsockopt(socket, level, name, place, &raw mut len) } {
        0 => Ok(len as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an option.
///
/// # Errors
/// The kernel's: the socket has no such option, or not this value.
pub fn set_socket_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the value is readable for at least `len` bytes.
    match unsafe { libc::setsockopt(socket, level, name, value.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
