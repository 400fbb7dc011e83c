//! The scheduler that the connections of one receiver share: the core's ledger, behind a lock.

use crate::Process;
use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerolane_core::{Admission, Allowance, Demand, FastAnswer, Instant, Ledger, Schedule};

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
    pub(crate) fn join(&self) -> Member {
        Member {
            id: self.lock().join(),
            scheduler: self.clone(),
            process: Process::current(),
        }
    }

    /// The ledger is a plan that is made anew every few milliseconds: half an update does no harm.
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place in a [`Scheduler`]; what it held is free when this is dropped.
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
        // In a child of fork another thread's lock is never let go.
        if self.process.is_current() {
            self.scheduler.lock().leave(self.id);
        }
    }
}
