//! Lets a program sleep until a queue has something: by a descriptor, or in a call.

use crate::engine::Engine;
use crate::errno::{Errno, Outcome};
use crate::libfabric::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a call that waits polls before it sleeps.
const SPIN: Duration = Duration::from_micros(30);

/// A descriptor that is readable when the worker has something to do, or when another thread put something into the
/// queue.
#[derive(Debug)]
pub(crate) struct Wait {
    set: OwnedFd,
    event: OwnedFd,
    /// The event is set.
    signalled: AtomicBool,
}

impl Wait {
    /// The wait object that the program asks for; none for `FI_WAIT_NONE`.
    ///
    /// # Errors
    /// Another kind than a descriptor; or the system has no descriptor left.
    pub(crate) fn of(object: fi_wait_obj, engine: &Engine) -> Outcome<Option<Wait>> {
        match object {
            FI_WAIT_NONE => Ok(None),
            FI_WAIT_UNSPEC | FI_WAIT_FD => Wait::new(engine).map(Some),
            _ => Err(Errno::NO_SYSTEM),
        }
    }

    fn new(engine: &Engine) -> Outcome<Wait> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let input = epoll::EventFlags::IN;
        epoll::add(&set, &event, epoll::EventData::new_u64(0), input)?;
        engine.watch(&set)?;
        Ok(Wait {
            set,
            event,
            signalled: AtomicBool::new(false),
        })
    }

    /// Wakes who sleeps on it.
    pub(crate) fn signal(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // Fails only if the counter is full, and then it is readable.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Forgets earlier signals. The caller then looks at the queue.
    pub(crate) fn forget(&self) {
        if self.signalled.swap(false, Ordering::AcqRel) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }

    /// Answers FI_GETWAIT.
    ///
    /// # Safety
    /// `into` is null or has room for a descriptor.
    pub(crate) unsafe fn tell(&self, into: *mut c_void) -> Outcome {
        let into = crate::object::place(into.cast::<c_int>())?;
        // SAFETY: the caller's promise.
        unsafe { into.write(self.set.as_raw_fd()) };
        Ok(())
    }

    /// Sleeps until it is readable or the time is over.
    fn sleep(&self, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|it| Timespec::try_from(it).ok());
        let mut fds = [PollFd::new(&self.set, PollFlags::IN)];
        // A signal interrupts it: the caller looks again.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

/// The time that a call gives in milliseconds; none is without limit.
pub(crate) fn limit(milliseconds: c_int) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// Drives the worker until `ready` gives something, or the time is over: `None`.
///
/// # Errors
/// The worker failed.
pub(crate) fn until<T>(
    engine: &Engine,
    wait: &Wait,
    timeout: Option<Duration>,
    mut ready: impl FnMut() -> Option<T>,
) -> Outcome<Option<T>> {
    let started = Instant::now();
    loop {
        engine.enter()?.advance()?;
        if let Some(got) = ready() {
            return Ok(Some(got));
        }
        let waited = started.elapsed();
        let left = match timeout.map(|it| it.saturating_sub(waited)) {
            Some(Duration::ZERO) => return Ok(None),
            left => left,
        };
        if waited < SPIN {
            std::hint::spin_loop();
            continue;
        }
        wait.forget();
        let may_sleep = engine.arm()?;
        if let Some(got) = ready() {
            return Ok(Some(got));
        }
        if may_sleep {
            wait.sleep(left);
        }
    }
}
