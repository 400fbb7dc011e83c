//! Wakes a sleeping thread from another one, with a system call only if it sleeps.
//!
//! Uses neither descriptors nor `std`'s atomics, so that loom can try every order of its steps (`tests/loom.rs`).

use crate::sync::{AtomicBool, Ordering, fence};

/// Many threads ring it, and one hears it.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    rung: AtomicBool,
    sleeping: AtomicBool,
}

impl Doorbell {
    /// Rings. True if the hearer sleeps or is about to, so that the caller must wake it.
    pub(crate) fn ring(&self) -> bool {
        // The ringer sets `rung`, then checks for a sleeper; the hearer announces its sleep, then checks `rung`. The
        // fences order the two, so that at least one of them sees the other. A swap instead of a store, because a
        // thread that hears two rings at once must see the writes before both.
        self.rung.swap(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Whether it was rung since the last call.
    pub(crate) fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::Acquire)
    }

    /// Takes the rings so far, then says whether the hearer continues: not once `ended`, which is set before a ring. In
    /// the opposite order the ring of an end between the two steps would be taken, and the hearer would sleep through
    /// the end.
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

    /// Announces that the hearer is about to sleep. False if it was rung already: then it must not sleep.
    pub(crate) fn arm(&self) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.rung.load(Ordering::Relaxed)
    }

    /// Announces that the hearer does not sleep any more. True if it was about to.
    pub(crate) fn disarm(&self) -> bool {
        let armed = self.sleeping.load(Ordering::Relaxed);
        self.sleeping.store(false, Ordering::Relaxed);
        armed
    }
}
