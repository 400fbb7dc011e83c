//! Wakes a driver from another thread that has work for it.

use crate::threads::Process;
use crate::wait::doorbell::Doorbell;
use crate::wait::poll::Ready;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Ends a wait of its [`Driver`](crate::driver::Driver), or the next one if there is none. It ends no request: a wake while a
/// call waits for the end of a request is kept for the next wait. Several wakes before a wait end only one. Makes a
/// system call only while the driver sleeps. In a child of fork it does nothing: the driver belongs to the parent.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bell: Doorbell,
    /// It rang for the user, not only for the driver.
    used: AtomicBool,
    /// Made at the first sleep, because a connection that a worker runs never sleeps. `None` if the system had no
    /// descriptor left; then only a timer ends a sleep.
    event: OnceLock<Option<std::fs::File>>,
    process: Process,
}

/// An eventfd. `None` if the system has no descriptor left.
pub(crate) fn event() -> Option<std::fs::File> {
    // SAFETY: eventfd has no preconditions.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: a new descriptor that nothing else owns.
    (fd >= 0).then(|| unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) }.into())
}

/// A waker that was never used.
impl Default for Waker {
    fn default() -> Waker {
        Waker {
            shared: Arc::new(Shared {
                bell: Doorbell::default(),
                used: AtomicBool::new(false),
                event: OnceLock::new(),
                process: Process::current(),
            }),
        }
    }
}

/// Wakers of one driver are equal.
impl PartialEq for Waker {
    fn eq(&self, other: &Waker) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Waker {}

impl Waker {
    /// Ends the wait.
    pub fn wake(&self) {
        self.shared.used.store(true, Ordering::Release);
        self.nudge();
    }

    /// Ends the driver's sleep, but not the wait: the driver has something to do.
    pub(crate) fn nudge(&self) {
        if !self.shared.process.is_current() {
            return;
        }
        if self.shared.bell.ring()
            && let Some(Some(mut event)) = self.shared.event.get().map(Option::as_ref)
        {
            // A full counter wakes as well.
            let _ = event.write(&1u64.to_ne_bytes());
        }
    }

    /// Whether it was used since the last call.
    pub fn take(&self) -> bool {
        self.shared.bell.take() && self.shared.used.swap(false, Ordering::Acquire)
    }

    /// Takes the wakes so far, then says whether the driver continues: not once `ended`, which is set before a wake.
    pub(crate) fn goes_on(&self, ended: &AtomicBool) -> bool {
        self.shared.bell.goes_on(ended)
    }

    /// Runs `sleep`, unless a wake came before. `sleep` must end when the waker's descriptor is readable, and report
    /// whether it is. Returns whether the socket ended the sleep.
    ///
    /// # Errors
    /// Those of `sleep`.
    pub(crate) fn sleep(
        &self,
        sleep: impl FnOnce(Option<BorrowedFd<'_>>) -> io::Result<Ready>,
    ) -> io::Result<bool> {
        let event = self.descriptor();
        let slept = self.shared.bell.sleep(|| sleep(event));
        let ready = slept.transpose()?.unwrap_or_default();
        // A value left in the descriptor would end every later sleep. A wake whose write comes only now, after the rest
        // of it was seen, ends the next sleep, which then reads the value: that saves a system call in all other cases.
        if ready.waker {
            self.drain();
        }
        Ok(ready.socket)
    }

    /// Readable once a wake follows [`Waker::arm`]. `None` if the system had no descriptor left.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let event = self.shared.event.get_or_init(event);
        event.as_ref().map(AsFd::as_fd)
    }

    /// Makes later wakes turn [`Waker::descriptor`] readable, for a caller that is about to sleep on it in its own
    /// loop. False if a wake came before: the caller must not sleep.
    pub fn arm(&self) -> bool {
        self.shared.bell.arm()
    }

    /// Ends what [`Waker::arm`] began.
    pub fn disarm(&self) {
        if self.shared.bell.disarm() {
            self.drain();
        }
    }

    fn drain(&self) {
        if let Some(Some(mut event)) = self.shared.event.get().map(Option::as_ref) {
            let _ = event.read(&mut [0; 8]);
        }
    }
}

#[cfg(test)]
#[path = "waker_tests.rs"]
mod tests;
