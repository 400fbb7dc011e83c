//! Guards a handle, which one thread of one process uses at a time.

use crate::status::{Failure, refused, zl_status};
use std::sync::{Mutex, MutexGuard};
use zerolane::{Error, Process};

/// The content of a handle. In a child of fork the copy's lock may never be released.
pub(crate) struct Owned<T> {
    value: Mutex<T>,
    process: Process,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Owned<T> {
        Owned {
            value: Mutex::new(value),
            process: Process::current(),
        }
    }

    /// # Errors
    /// This process is a child of the handle's owner.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        match self.process.is_current() {
            true => Ok(()),
            false => Err(Error::Forked.into()),
        }
    }

    /// Tries the lock.
    ///
    /// # Errors
    /// Another thread is in a call, or a call panicked; or as for [`Owned::check_process`].
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, T>, Failure> {
        self.check_process()?;
        self.value.try_lock().map_err(refused)
    }

    /// # Errors
    /// A call panicked; or as for [`Owned::check_process`].
    pub(crate) fn into_inner(self) -> Result<T, Failure> {
        self.check_process()?;
        let panicked = |_| Failure::new(zl_status::ZL_ERROR_INTERNAL, "an earlier call panicked");
        self.value.into_inner().map_err(panicked)
    }
}
