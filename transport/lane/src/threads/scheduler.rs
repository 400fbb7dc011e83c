//! Shares one scheduler among the connections of a receiver: the core's ledger behind a lock.

use crate::threads::Process;
use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerolane_core::{Admission, Allowance, Demand, FastAnswer, Instant, Ledger, Schedule};

/// Divides one receiver's link among the connections that joined it. Cheap to clone: all clones are the same scheduler.
/// Different threads may drive the connections, but their times must share an epoch.
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

    /// How it divides the link.
    pub fn schedule(&self) -> Schedule {
        self.lock().schedule()
    }

    /// Joins a connection, with weight 1.
    pub(crate) fn join(&self) -> Member {
        Member {
            id: self.lock().join(),
            scheduler: self.clone(),
            process: Process::current(),
        }
    }

    /// Ignores poison: the ledger is a plan that is remade every few milliseconds, so half an update does no harm.
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place in a [`Scheduler`]; its share is freed when this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    id: u64,
    scheduler: Scheduler,
    process: Process,
}

impl Admission for Member {
    fn set_weight(&mut self, weight: u32) {
        self.scheduler.lock().set_weight(self.id, weight);
    }

    fn request_fast(&mut self, now: Instant) -> FastAnswer {
        self.scheduler.lock().request_fast(self.id, now)
    }

    fn review(&mut self, now: Instant, demand: &Demand) -> Allowance {
        self.scheduler.lock().review(self.id, now, demand)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // In a child of fork, a lock that another thread held is never released.
        if self.process.is_current() {
            self.scheduler.lock().leave(self.id);
        }
    }
}
