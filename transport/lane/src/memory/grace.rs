//! Provides grace periods as in read-copy-update: one thread takes turns; others remove what turns use, and wait until
//! no turn that may have seen it is in progress.
//!
//! Uses its parent's `sync` module, so that loom can try every order of its steps (`tests/loom.rs`).

use crate::sync::{AtomicBool, AtomicUsize, Ordering, fence, yield_now};

/// State that the thread that takes turns shares with others.
#[derive(Debug, Default)]
pub(crate) struct GracePeriods {
    /// Number of starts and ends of turns: odd within a turn.
    turns: AtomicUsize,
    /// Set after a removal.
    news: AtomicBool,
}

impl GracePeriods {
    /// Begins a turn of the one thread that takes turns. True if something was removed since the last turn that
    /// returned true: the turn must not use it.
    pub(crate) fn enter(&self) -> bool {
        // The turn announces itself, then checks for removals; a remover announces the removal, then checks for a turn.
        // The fences order the two, so that at least one of them sees the other.
        self.count();
        fence(Ordering::SeqCst);
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::Acquire)
    }

    /// Ends the turn. Threads that waited for it see all that it did.
    pub(crate) fn leave(&self) {
        self.count();
    }

    /// No other thread writes the count, so a store suffices, which needs no agreement with other cores. A thread that
    /// sees the store of a turn's start also sees all that earlier turns did, even if it never sees the store of their
    /// end.
    fn count(&self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns.wrapping_add(1), Ordering::Release);
    }

    /// Announces a removal to turns that begin from now on.
    pub(crate) fn announce(&self) {
        // A swap instead of a store, because a turn that learns of two removals at once must see the writes before
        // both.
        self.news.swap(true, Ordering::Release);
    }

    /// Returns when each turn in progress has learnt of the removal or has ended. No turn may last long.
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
