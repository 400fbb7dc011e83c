//! Ends the sleep of threads, and of programs that watch a descriptor.

use crate::error::Result;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A descriptor that is readable while it rings.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// Makes one that is silent.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new() -> Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell(eventfd(0, flags).map_err(io::Error::from)?))
    }

    pub(crate) fn ring(&self) {
        // A full counter is readable as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Calls `next` until it has something, and sleeps in between until the bell rings or a signal comes. `None` on
    /// timeout. A timeout of zero calls it once, and one that overflows the clock, such as [`Duration::MAX`], is no
    /// limit.
    ///
    /// # Errors
    /// `next` failed, or the system refused to wait.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut next: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(found) = next()? {
                return Ok(Some(found));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
