//! Makes AF_XDP sockets and sets their options.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An AF_XDP socket.
///
/// # Errors
/// The kernel has no AF_XDP, or not for this process.
pub(super) fn socket() -> io::Result<OwnedFd> {
    #[cfg(test)]
    seam::refused()?;
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call made it, and nothing else owns it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Sets an option of AF_XDP.
///
/// # Errors
/// The kernel's.
pub(super) fn set<T: Copy>(socket: BorrowedFd<'_>, option: i32, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_XDP, option, value)
}

/// Sets an option of `level`.
///
/// # Errors
/// The kernel's.
pub(super) fn set_at<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the kernel reads `len` bytes of the value, which lives across the call.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option of AF_XDP, for which `zero` is a valid value.
///
/// # Errors
/// The kernel's; or its structure is shorter.
pub(super) fn get<T: Copy>(socket: BorrowedFd<'_>, option: i32, zero: T) -> io::Result<T> {
    let mut value = zero;
    let mut len = size_of::<T>() as libc::socklen_t;
    let into = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the kernel writes at most `len` bytes of the value, which consists of integers.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            into,
            &raw mut len,
        )
    };
    match got {
        0 if len as usize == size_of::<T>() => Ok(value),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Binds `socket` to a queue of an interface; `shares`: another socket, whose memory and two rings it uses.
///
/// # Errors
/// The kernel's.
pub(super) fn bind(
    socket: BorrowedFd<'_>,
    (interface, queue): (u32, u32),
    flags: u16,
    shares: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let name = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shares.map_or(0, |it| it.as_raw_fd().cast_unsigned()),
    };
    let len = size_of_val(&name) as libc::socklen_t;
    // SAFETY: the kernel reads the address, which lives across the call.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the kernel send a part of the ring of `socket`.
///
/// # Errors
/// EAGAIN: there is more; or the error of the interface.
pub(super) fn send(socket: BorrowedFd<'_>) -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: the call reads only the descriptor.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            none,
            0,
            libc::MSG_DONTWAIT,
            none.cast(),
            0,
        )
    };
    match sent {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the kernel poll for arrivals.
pub(super) fn look(socket: BorrowedFd<'_>) {
    let none = std::ptr::null_mut();
    // A later send reports the error.
    // SAFETY: nothing is written, because there is no buffer.
    let _ = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            none,
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}

/// Sockets that tests make the kernel refuse to this thread.
#[cfg(test)]
pub(crate) mod seam {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static REFUSED: Cell<u32> = const { Cell::new(0) };
    }

    /// Refuses the next `sockets` sockets.
    pub(crate) fn refuse(sockets: u32) {
        REFUSED.set(sockets);
    }

    pub(super) fn refused() -> io::Result<()> {
        match REFUSED.get() {
            0 => Ok(()),
            left => {
                REFUSED.set(left - 1);
                Err(io::Error::from_raw_os_error(libc::EMFILE))
            }
        }
    }
}
