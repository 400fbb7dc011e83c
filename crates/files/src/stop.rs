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
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requested: AtomicBool,
    /// A request made there is one made here, too.
    above: Option<Stop>,
}

impl Stop {
    /// Asks.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn requested(&self) -> bool {
        self.requested_here() || self.0.above.as_ref().is_some_and(Stop::requested)
    }

    /// A stop for a part of what this one stops.
    pub fn of_part(&self) -> Stop {
        Stop(Arc::new(State {
            requested: AtomicBool::new(false),
            above: Some(self.clone()),
        }))
    }

    /// Whether this part alone was asked to stop.
    pub(crate) fn requested_here(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.requested() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}
