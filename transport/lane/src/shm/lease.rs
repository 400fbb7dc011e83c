//! Leases memory to a peer that maps it. The owner publishes whether each lease stands; the peer publishes when it
//! begins and ends an access, and checks the lease in between. So the owner knows when no access is in progress, as
//! with a grace period (`grace`), but the peer is another process, which may be stopped in the middle of an access, or
//! may not follow these rules.
//!
//! Each end keeps its own count: what the other end writes into the memory harms only that end's accesses. Uses neither
//! memory nor descriptors, so that loom can try every order of the steps (`tests/loom.rs`).

use crate::sync::{AtomicU64, Ordering, fence};

/// Most leases that stand at a time, in one direction.
pub(crate) const LEASES: usize = 64;

/// Added to the number of a lease that the owner ends.
const ENDED: u64 = 1;
/// Added to the number of a lease that the owner ends without knowing whether an access is in progress.
const ABANDONED: u64 = 2;
/// Distance of the numbers of consecutive leases of one place.
const STEP: u64 = 4;

/// How often an end began and ended an access to the peer's memory: odd within an access. In a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Accesses {
    count: AtomicU64,
}

impl Accesses {
    /// The access in progress, if any. Call it after [`Lease::end`].
    pub(crate) fn current(&self) -> Option<u64> {
        let count = self.count.load(Ordering::Acquire);
        (count % 2 == 1).then_some(count)
    }
}

/// Values that tests publish and no honest end would.
#[cfg(test)]
impl Accesses {
    pub(crate) fn pretend(&self, count: u64) {
        self.count.store(count, Ordering::SeqCst);
    }
}

/// The owner's state of one lease: its number, and whether it stands. 0: no lease yet.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    state: AtomicU64,
}

impl Lease {
    /// Grants the lease whose number follows `last`, that of the previous lease of this place. Returns its number.
    pub(crate) fn grant(&self, last: u64) -> u64 {
        let number = last.wrapping_add(STEP);
        self.state.store(number, Ordering::Release);
        number
    }

    /// Ends the lease: no more access begins under it.
    pub(crate) fn end(&self, number: u64) {
        self.state
            .store(number.wrapping_add(ENDED), Ordering::Relaxed);
        // The owner ends the lease, then checks for an access; the peer announces an access, then checks the lease. The
        // fences order the two, so that at least one of them sees the other.
        fence(Ordering::SeqCst);
    }

    /// Invalidates an access in progress. Its later writes may be lost, and the peer learns that.
    pub(crate) fn abandon(&self, number: u64) {
        self.state
            .store(number.wrapping_add(ABANDONED), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether accesses may begin under it.
    pub(crate) fn stands(&self, number: u64) -> bool {
        self.state.load(Ordering::Acquire) == number
    }

    /// Whether an access that began under it is valid. The peer may pass any number.
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
    /// Performs `access` to the memory of lease `number`. `None`: the lease does not stand, and nothing was done.
    /// `Some(None)`: it was abandoned meanwhile, and the access is invalid.
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
            // The writes come before the following check; with the owner's fence, one of the two sees the other.
            fence(Ordering::SeqCst);
            lease.counts(number).then_some(done)
        });
        self.count = self.count.wrapping_add(2);
        accesses.count.store(self.count, Ordering::Release);
        done
    }
}
