//! Waking a driver that another thread has work for.

use crate::Process;
use crate::doorbell::Doorbell;
use crate::poll::Ready;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Ends a wait of the [`Driver`](crate::Driver) it belongs to, or the next one if there is none.
/// It ends no request: while a call waits for the end of one, a wake is kept for the next wait. Several
/// wakes before a wait end one. Costs a syscall only while the driver sleeps. In a child of fork it does nothing: the driver is
/// the parent's.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bell: Doorbell,
    /// Made at the first sleep, for a connection that a worker runs never sleeps. `None` if the system had no
    /// descriptor left; then a sleep ends with its timer.
    event: OnceLock<Option<std::fs::File>>,
    process: Process,
}

/// An eventfd. `None` if the system has no descriptor left.
pub(crate) fn event() -> Option<std::fs::File> {
    // SAFETY: eventfd has no preconditions.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: a descriptor just made, that nothing else owns.
    (fd >= 0).then(|| unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) }.into())
}

/// One that was never used.
impl Default for Waker {
    fn default() -> Waker {
        Waker {
            shared: Arc::new(Shared {
                bell: Doorbell::default(),
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

    /// Whether it was used since the last look.
    pub fn take(&self) -> bool {
        self.shared.bell.take()
    }

    /// Takes the wakes until now, then says whether the driver goes on: not once `ended`, which is set before a wake.
    pub(crate) fn goes_on(&self, ended: &AtomicBool) -> bool {
        self.shared.bell.goes_on(ended)
    }

    /// Runs `sleep`, which must end when its descriptor is readable, and say whether that is so; not if already used.
    /// Whether the socket ended it.
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
        // What is left in the descriptor would end every sleep from then on. A wake that writes only now, after all else of
        // it was seen, ends the next one, and that takes it out: a system call less for all others.
        if ready.waker {
            self.drain();
        }
        Ok(ready.socket)
    }

    /// What is readable once a wake came after [`Waker::arm`]. `None` if the system had no descriptor left.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let event = self.shared.event.get_or_init(event);
        event.as_ref().map(AsFd::as_fd)
    }

    /// From here on a wake makes [`Waker::descriptor`] readable, for a caller that is about to sleep on it in
    /// another's loop. False if a wake came before: it must not sleep.
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
