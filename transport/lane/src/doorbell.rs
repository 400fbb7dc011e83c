//! How one thread ends another's sleep without a system call unless it sleeps.
//!
//! Kept apart from descriptors and from `std`'s atomics, so that loom can try every order of its
//! steps (`tests/loom.rs`).

use super::sync::{AtomicBool, Ordering, fence};

/// Rung by many, heard by one.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    rung: AtomicBool,
    sleeping: AtomicBool,
}

impl Doorbell {
    /// Rings. True if the hearer sleeps, or is about to, so that it has to be woken.
    pub(crate) fn ring(&self) -> bool {
        // Rung, then look; the hearer says that it sleeps, then looks whether it was rung. The fences
        // put the two in one order, so that one of them sees the other.
        // A swap, and no store, for a thread that hears two rings at once is to see what came before either.
        self.rung.swap(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Whether it was rung since the last look.
    pub(crate) fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::Acquire)
    }

    /// Takes the rings until now, then says whether the hearer goes on: not once `ended`, which is set before a ring. The
    /// other way round the ring of an end that comes between the two would be taken, and the end slept through.
    pub(crate) fn goes_on(&self, ended: &AtomicBool) -> bool {
        self.take();
        !ended.load(Ordering::Acquire)
    }

    /// Runs `sleep`, which must end when the hearer is woken; `None` if it was rung already.
    pub(crate) fn sleep<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        let slept = self.arm().then(sleep);
        self.disarm();
        slept
    }

    /// The hearer is about to sleep. False if it was rung already: it must not.
    pub(crate) fn arm(&self) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.rung.load(Ordering::Relaxed)
    }

    /// The hearer does not sleep any more. Whether it was about to.
    pub(crate) fn disarm(&self) -> bool {
        let armed = self.sleeping.load(Ordering::Relaxed);
        self.sleeping.store(false, Ordering::Relaxed);
        armed
    }
}
