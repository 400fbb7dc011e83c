//! Shares a ledger among the connections of a test.

use crate::admission::{Admission, Allowance, Demand, FastAnswer, Ledger, Schedule};
use crate::time::Instant;
use std::sync::{Arc, Mutex, MutexGuard};

/// All clones share one ledger.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler(Arc<Mutex<Ledger>>);

impl Scheduler {
    pub(crate) fn new(schedule: Schedule) -> Scheduler {
        Scheduler(Arc::new(Mutex::new(Ledger::new(schedule))))
    }

    pub(crate) fn join(&self) -> Member {
        Member {
            id: self.ledger().join(),
            scheduler: self.clone(),
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap()
    }
}

/// Leaves when it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    id: u64,
    scheduler: Scheduler,
}

impl Admission for Member {
    fn set_weight(&mut self, weight: u32) {
        self.scheduler.ledger().set_weight(self.id, weight);
    }

    fn request_fast(&mut self, now: Instant) -> FastAnswer {
        self.scheduler.ledger().request_fast(self.id, now)
    }

    fn review(&mut self, now: Instant, demand: &Demand) -> Allowance {
        self.scheduler.ledger().review(self.id, now, demand)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.scheduler.ledger().leave(self.id);
    }
}
