//! Leases of memory that the peer has mapped. The owner says of each whether it stands; the peer says when it begins an
//! access and when it is done, and looks at the lease in between. So the owner knows that no access is in progress, as
//! with a grace period (`grace`), but of another process, which may be stopped in the middle of one, or not keep to
//! this.
//!
//! Each end keeps its own count: what the other one writes into the memory harms nothing but that one's accesses. Kept
//! apart from memory and descriptors, so that loom can try every order of the steps (`tests/loom.rs`).

use super::sync::{AtomicU64, Ordering, fence};

/// Leases that stand at a time, in one direction.
pub(crate) const LEASES: usize = 64;

/// What is added to the number of a lease that the owner ends.
const ENDED: u64 = 1;
/// What is added to that of one that the owner ended without knowing whether an access is in progress.
const ABANDONED: u64 = 2;
/// Between the numbers of two leases of one place.
const STEP: u64 = 4;

/// How often an end began and ended an access to the peer's memory: odd within one. In a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Accesses {
    count: AtomicU64,
}

impl Accesses {
    /// The access in progress: to be asked after [`Lease::end`].
    pub(crate) fn current(&self) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        (count % 2 == 1).then_some(count)
    }
}

/// What tests say that no honest end would.
#[cfg(test)]
impl Accesses {
    pub(crate) fn pretend(&self, count: u64) {
        self.count.store(count, Ordering::SeqCst);
    }
}

/// What an owner says of one lease: its number, and whether it stands. 0: there was none.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    state: AtomicU64,
}

impl Lease {
    /// Grants the lease with the number that follows `last`, that of the lease before in this place. Returns the
    /// number.
    pub(crate) fn grant(&self, last: u64) -> u64 {
        let number = last.wrapping_add(STEP);
        self.state.store(number, Ordering::Release);
        number
    }

    /// No access begins by it any more.
    pub(crate) fn end(&self, number: u64) {
        self.state
            .store(number.wrapping_add(ENDED), Ordering::Relaxed);
        // Ended, then looked for an access; an access begun, then looked at the lease. The fences put the two in one
        // order, so that one of them sees the other.
        fence(Ordering::SeqCst);
    }

    /// An access in progress does not count any more. What it writes after this may be lost, and it finds that out.
    pub(crate) fn abandon(&self, number: u64) {
        self.state
            .store(number.wrapping_add(ABANDONED), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether accesses may begin by it.
    pub(crate) fn stands(&self, number: u64) -> bool {
        self.state.load(Ordering::Acquire) == number
    }

    /// Whether an access that began by it counts. The number may be any that the peer says.
    fn counts(&self, number: u64) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state == number || state == number.wrapping_add(ENDED)
    }
}

/// An end's own count of its accesses.
#[derive(Debug, Default)]
pub(crate) struct Accessor {
    count: u64,
}

impl Accessor {
    /// Does `access` to the memory of lease `number`. `None`: it does not stand, and nothing was done. `Some(None)`: it
    /// was abandoned meanwhile, and what was done does not count.
    pub(crate) fn access<T>(
        &mut self,
        accesses: &Accesses,
        (lease, number): (&Lease, u64),
        access: impl FnOnce() -> T,
    ) -> Option<Option<T>> {
        accesses.count.store(self.count + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let done = lease.stands(number).then(access);
        let done = done.map(|done| {
            // What was written is before what is looked at now; with the owner's fence one of the two sees the other.
            fence(Ordering::SeqCst);
            lease.counts(number).then_some(done)
        });
        self.count = self.count.wrapping_add(2);
        accesses.count.store(self.count, Ordering::Release);
        done
    }
}
