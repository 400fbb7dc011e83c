//! Guards state that Python's threads use one at a time.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use zerolane::{Error, Process, Result, Waker};

/// A worker; `None` once it is over.
pub(crate) type Loop = Shared<Option<zerolane::worker::Worker>>;

/// State that one thread at a time uses and waits in.
pub(crate) struct Shared<T> {
    state: Mutex<T>,
    /// Held while waiting for `state`, so that a waiting thread gets it before its last holder.
    turn: Mutex<()>,
    /// Ends the wait of the thread that holds `state`.
    waker: Waker,
    process: Process,
}

impl<T> Shared<T> {
    pub(crate) fn new(state: T, waker: Waker) -> Shared<T> {
        Shared {
            state: Mutex::new(state),
            turn: Mutex::new(()),
            waker,
            process: Process::current(),
        }
    }

    /// # Errors
    /// This process is a child, by fork, of the owner: the thread that had the lock is not there to release it.
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }

    /// For short calls: ends the wait of another thread. To be called without the interpreter, which that thread may
    /// need before it releases the lock.
    ///
    /// # Errors
    /// As for [`Shared::check_process`].
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, T>> {
        self.check_process()?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waker.wake();
                self.state.lock().unwrap_or_else(PoisonError::into_inner)
            }
        })
    }

    /// For waits: while another thread waits, it advances this one's requests too, and releases the lock when one of
    /// them ends. To be called without the interpreter.
    ///
    /// # Errors
    /// As for [`Shared::check_process`].
    pub(crate) fn enter_to_wait(&self) -> Result<MutexGuard<'_, T>> {
        self.check_process()?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state, unless another thread uses it or this process is a child, by fork, of the owner.
    pub(crate) fn peek(&self) -> Option<MutexGuard<'_, T>> {
        self.check_process().ok()?;
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends the wait of the thread that holds the state, or the next one.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}
