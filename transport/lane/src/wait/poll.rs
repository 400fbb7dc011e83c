//! Sleeps until a descriptor is ready or a timeout passes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Which descriptors ended a sleep: none after a timeout or a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The socket is ready as requested, or has an error.
    pub(crate) socket: bool,
    /// The waker's descriptor is readable.
    pub(crate) waker: bool,
}

/// Sleeps until the socket, if any, is readable (or writable, if requested) or has an error, until one of `others` is
/// readable, of which the first is a waker's, or until `timeout`.
pub(crate) fn wait(
    socket: Option<BorrowedFd<'_>>,
    writable: bool,
    others: [Option<BorrowedFd<'_>>; 2],
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
    let [waker, other] = others;
    let asked = [
        (socket, events),
        (waker, libc::POLLIN),
        (other, libc::POLLIN),
    ];
    // The kernel ignores negative descriptors.
    let mut polls = asked.map(|(descriptor, events)| libc::pollfd {
        fd: descriptor.map_or(-1, |it| it.as_raw_fd()),
        events,
        revents: 0,
    });
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: three pollfds and an optional timespec that live across the call; no signal mask.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), 3, timeout, std::ptr::null()) };
    match ready {
        -1 => match io::Error::last_os_error() {
            // A signal: the caller checks its state and sleeps again.
            error if error.kind() == io::ErrorKind::Interrupted => Ok(Ready::default()),
            error => Err(error),
        },
        _ => Ok(Ready {
            socket: polls[0].revents != 0,
            waker: polls[1].revents != 0,
        }),
    }
}
