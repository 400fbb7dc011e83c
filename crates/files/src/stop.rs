//! Asking a server or a copy to end.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop, shared between the thread that makes it and those that heed it within a
/// fraction of a second. Setting it is async-signal-safe.
///
/// ```
/// let stop = zerolane_files::Stop::default();
/// let heard = stop.clone();
/// stop.request();
/// assert!(heard.requested());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.requested() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}
