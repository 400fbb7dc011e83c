//! Grace periods, as read-copy-update has them: one thread takes turns, others take away what the turns
//! use, and wait until no turn that may have seen it is in progress.
//!
//! Uses what its parent calls `sync`, so that loom can try every order of its steps
//! (`tests/loom.rs`).

use super::sync::{AtomicBool, AtomicUsize, Ordering, fence, yield_now};

/// What a thread that takes turns shares with others.
#[derive(Debug, Default)]
pub(crate) struct GracePeriods {
    /// Starts and ends of turns: odd within one.
    turns: AtomicUsize,
    /// Something was taken away.
    news: AtomicBool,
}

impl GracePeriods {
    /// Begins a turn, of the one thread that takes them. True if something was taken away since a
    /// turn was told so: it must not be used.
    pub(crate) fn enter(&self) -> bool {
        // In a turn, then look; what is taken away is told, then looked for a turn. The fences put
        // the two in one order, so that one of them sees the other.
        self.count();
        fence(Ordering::SeqCst);
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::Acquire)
    }

    /// Ends the turn: what was done in it is seen by threads that waited for it.
    pub(crate) fn leave(&self) {
        self.count();
    }

    /// No other thread writes it: a store will do, which no other core has to agree to. Who sees it sees what the
    /// turns before did, that of the start of a turn included: that may be all that is seen of the end before.
    fn count(&self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns.wrapping_add(1), Ordering::Release);
    }

    /// Turns that begin from here on are told that something was taken away before.
    pub(crate) fn tell(&self) {
        // A swap, and no store, for a turn that is told of two at once is to see what came before either.
        self.news.swap(true, Ordering::Release);
    }

    /// Returns when every turn in progress was told, or is over. No turn may last for long.
    pub(crate) fn wait(&self) {
        fence(Ordering::SeqCst);
        let turn = self.turns.load(Ordering::Acquire);
        if turn.is_multiple_of(2) {
            return;
        }
        while self.turns.load(Ordering::Acquire) == turn {
            yield_now();
        }
    }
}
