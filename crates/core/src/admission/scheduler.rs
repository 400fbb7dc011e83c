//! The scheduler that the connections of one receiver share.

use super::fast::FastAnswer;
use super::ledger::Ledger;
use super::{Allowance, Demand, Schedule};
use crate::Instant;
use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Divides one receiver's link among the connections that joined it. Cheap to clone: all clones are
/// the same scheduler. Connections may be driven by different threads, but their times must share an
/// epoch.
#[derive(Clone)]
pub struct Scheduler {
    ledger: Arc<Mutex<Ledger>>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ledger = self.lock();
        f.debug_struct("Scheduler")
            .field("schedule", &ledger.schedule())
            .field("streams", &ledger.streams())
            .finish_non_exhaustive()
    }
}

/// [`Schedule::Automatic`].
impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler::new(Schedule::default())
    }
}

impl Scheduler {
    /// A scheduler without connections.
    pub fn new(schedule: Schedule) -> Scheduler {
        Scheduler {
            ledger: Arc::new(Mutex::new(Ledger::new(schedule))),
        }
    }

    /// How it divides.
    pub fn schedule(&self) -> Schedule {
        self.lock().schedule()
    }

    /// A place for one connection, of weight 1.
    pub fn join(&self) -> Member {
        Member {
            id: self.lock().join(),
            scheduler: self.clone(),
        }
    }

    /// The ledger is a plan that is made anew every few milliseconds: half an update does no harm.
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place in a [`Scheduler`]; what it held is free when this is dropped.
#[derive(Debug)]
pub struct Member {
    id: u64,
    scheduler: Scheduler,
}

impl Member {
    /// Sets the stream's part of the link relative to others', 1 unless set. 0 counts as 1.
    pub fn set_weight(&self, weight: u32) {
        self.scheduler.lock().set_weight(self.id, weight.max(1));
    }

    /// Asks that this stream be fast (P2.4).
    pub(crate) fn request_fast(&self, now: Instant) -> FastAnswer {
        self.scheduler.lock().request_fast(self.id, now)
    }

    /// Tells what the connection has and wants, and asks what it may have granted.
    pub(crate) fn review(&self, now: Instant, demand: &Demand) -> Allowance {
        self.scheduler.lock().review(self.id, now, demand)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.scheduler.lock().leave(self.id);
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
