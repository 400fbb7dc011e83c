//! Runs a thread that works on shared state until it is told to stop.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// The running thread. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Worker<S> {
    shared: Arc<Shared<S>>,
    /// `None` once it was joined.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<S: Send + 'static> Worker<S> {
    /// Makes the worker with `make` and starts it in a thread of that name.
    ///
    /// # Errors
    /// The system's error if the thread or its descriptor cannot be made, or that of `make`.
    pub(crate) fn start<R>(
        name: &str,
        state: S,
        make: impl FnOnce(Arc<Shared<S>>) -> io::Result<R>,
    ) -> io::Result<Self>
    where
        R: FnOnce() -> io::Result<()> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            stopping: AtomicBool::new(false),
            failed: OnceLock::new(),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        });
        let run = make(Arc::clone(&shared))?;
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let outcome = run();
            if let Err(error) = &outcome {
                // Nothing else sets it.
                let _ = own.failed.set(error.to_string());
            }
            outcome
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl<S> Worker<S> {
    /// What the thread works on.
    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.shared.state()
    }

    /// Whether the thread goes on.
    ///
    /// # Errors
    /// What ended it.
    pub(crate) fn check(&self) -> io::Result<()> {
        let why = match (self.shared.failed.get(), &self.thread) {
            (Some(why), _) => why.as_str(),
            (None, Some(thread)) if thread.is_finished() => "it panicked",
            (None, _) => return Ok(()),
        };
        Err(io::Error::other(format!(
            "the network's thread ended: {why}"
        )))
    }

    /// Ends the thread. Ending it again does nothing.
    ///
    /// # Errors
    /// The system's error if one had ended it before.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.write(1)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the network's thread panicked")))
    }
}

impl<S> Drop for Worker<S> {
    fn drop(&mut self) {
        // A caller that wants the outcome calls `end`.
        let _ = self.end();
    }
}

/// What the thread and its owner have in common.
#[derive(Debug)]
pub(crate) struct Shared<S> {
    state: Mutex<S>,
    stopping: AtomicBool,
    /// Why the thread ended before it was told to.
    failed: OnceLock<String>,
    /// Ends the thread's wait.
    wake: EventFd,
}

impl<S> Shared<S> {
    /// The state, which stays right even if another thread panicked holding it.
    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Becomes readable when the thread must check for a stop request.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes the descriptor unreadable again.
    pub(crate) fn woken(&self) {
        // Nothing to read is no harm.
        let _ = self.wake.read();
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;
    use std::time::Duration;

    #[test]
    fn check__tells_what_ended_the_thread() {
        let (end, told) = std::sync::mpsc::channel::<()>();
        let worker = Worker::start("test", (), |_| {
            Ok(move || {
                let _ = told.recv();
                Err(io::Error::other("its socket is gone"))
            })
        });
        let worker = worker.expect("a thread");
        worker.check().expect("it waits");
        drop(end);
        let error = loop {
            match worker.check() {
                Ok(()) => thread::sleep(Duration::from_millis(1)),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.ends_with("its socket is gone"), "{error}");
    }
}
