//! Sleeping on descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sleeps until the socket is readable (or writable, if asked), an error is pending, `wake` is
/// readable, or `timeout`. True if the socket woke us.
pub(crate) fn wait(
    socket: BorrowedFd<'_>,
    writable: bool,
    wake: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
    // The kernel passes over negative descriptors.
    let wake = wake.map_or(-1, |wake| wake.as_raw_fd());
    let mut polls = [
        libc::pollfd {
            fd: socket.as_raw_fd(),
            events,
            revents: 0,
        },
        libc::pollfd {
            fd: wake,
            events: libc::POLLIN,
            revents: 0,
        },
    ];
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: two pollfds and an optional timespec that live across the call; no signal mask.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), 2, timeout, std::ptr::null()) };
    match ready {
        -1 => match io::Error::last_os_error() {
            // A signal: the caller looks around and comes back.
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
        _ => Ok(polls[0].revents != 0),
    }
}
