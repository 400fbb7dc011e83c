//! Requests a server or a copy to stop.

use crate::error::Error;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A request to stop, shared between the thread that makes it and those that obey it within a fraction of a second.
/// Requesting it is async-signal-safe.
///
/// ```
/// let stop = zerolane_files::Stop::default();
/// let heard = stop.clone();
/// stop.request();
/// assert!(heard.requested());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug)]
struct State {
    requested: AtomicBool,
    /// Readable from the request on. `None`: the system had no descriptor left, so that waits must poll.
    event: Option<OwnedFd>,
    /// A request made there also counts here.
    above: Option<Stop>,
}

impl Default for State {
    fn default() -> State {
        State::of(None)
    }
}

impl State {
    fn of(above: Option<Stop>) -> State {
        State {
            requested: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok(),
            above,
        }
    }
}

impl Stop {
    /// Requests the stop.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::Release);
        if let Some(event) = &self.0.event {
            // A full counter is readable, too.
            let _ = write(event, &1u64.to_ne_bytes());
        }
    }

    /// Whether a stop was requested.
    pub fn requested(&self) -> bool {
        self.requested_here() || self.0.above.as_ref().is_some_and(Stop::requested)
    }

    /// Readable once a stop was requested here, for poll and epoll.
    ///
    /// # Errors
    /// The system had no descriptor left.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let event = self.0.event.as_ref();
        Ok(event.ok_or(Errno::MFILE)?.as_fd())
    }

    /// A stop for a part of the work that this one stops.
    pub fn of_part(&self) -> Stop {
        Stop(Arc::new(State::of(Some(self.clone()))))
    }

    /// Whether this part alone was asked to stop.
    pub(crate) fn requested_here(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.requested() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }

    /// Waits until `other` is readable or a stop is requested, at most for `longest`, less than a second. Returns
    /// whether one of them happened.
    pub(crate) fn wait_beside(&self, other: BorrowedFd<'_>, longest: Duration) -> bool {
        let readable = |it| PollFd::from_borrowed_fd(it, PollFlags::IN);
        let mut ready = vec![readable(other)];
        let mut next = Some(self);
        while let Some(Stop(state)) = next {
            ready.extend(state.event.as_ref().map(|it| readable(it.as_fd())));
            next = state.above.as_ref();
        }
        let longest = Timespec {
            tv_sec: 0,
            tv_nsec: longest.subsec_nanos().into(),
        };
        poll(&mut ready, Some(&longest)).is_ok_and(|count| count > 0)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wait_beside__ends_at_a_request_here_or_above_or_with_what_is_waited_for() {
        let waited_for = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let wait = |stop: &Stop, milliseconds| {
            stop.wait_beside(waited_for.as_fd(), Duration::from_millis(milliseconds))
        };
        let above = Stop::default();
        let [stop, other] = [above.of_part(), above.of_part()];
        assert!(!wait(&stop, 1));
        stop.request();
        assert!(wait(&stop, 999) && wait(&stop, 999));
        assert!(!wait(&other, 1) && !wait(&above, 1));
        above.request();
        assert!(wait(&other, 999) && wait(&above, 999));
        let here = waited_for.local_addr().unwrap();
        waited_for.send_to(b"x", here).unwrap();
        assert!(wait(&Stop::default(), 999));
    }

    #[test]
    fn descriptor__is_readable_from_a_request_on() {
        let stop = Stop::default();
        let is_readable = || {
            let descriptor = stop.descriptor().unwrap();
            let mut ready = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            poll(&mut ready, Some(&Timespec::default())) == Ok(1)
        };
        assert!(!is_readable());
        stop.request();
        assert!(is_readable() && is_readable());
    }
}
