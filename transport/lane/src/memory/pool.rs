//! Keeps memory for messages that many connections share.
//!
//! A connection takes memory when a message arrives that nothing was posted for, so an idle connection has none. Where
//! there is none left, its peer waits. Two rules make that fair:
//!
//! - Connections that hold none of the pool's memory are served in the order in which they found it empty. A piece of
//!   memory is kept back for each of them.
//! - A connection holds at most as many pieces as are left, for messages that are not complete. So a peer that begins
//!   messages and never ends them has at most half of the pool, two have two thirds, and a third always finds some.

use crate::memory::Region;
use crate::threads::Process;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Called when there may be memory for a connection that waits, from any thread.
pub type MemoryWake = Arc<dyn Fn() + Send + Sync>;

/// Called once there is little memory left.
type Notice = Box<dyn FnOnce() + Send>;

/// Memory for messages, shared by any number of connections. See the crate `zerolane`. Cheap to clone.
#[derive(Clone)]
pub struct ReceivePool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// The process that owns the memory. In a child of fork another thread's lock is never released.
    process: Process,
}

#[derive(Default)]
struct State {
    free: VecDeque<(Region, u64)>,
    /// Connections whose peers wait for memory, in the order in which they came.
    waiting: VecDeque<Waiting>,
    /// How many of them hold none.
    empty_handed: usize,
    closed: bool,
    members: u64,
    /// Called when less than this number is left.
    low: Option<(usize, Notice)>,
}

struct Waiting {
    member: u64,
    held: usize,
    /// It was woken, and did not try since.
    told: bool,
    wake: MemoryWake,
}

impl Default for ReceivePool {
    fn default() -> ReceivePool {
        ReceivePool {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                process: Process::current(),
            }),
        }
    }
}

impl fmt::Debug for ReceivePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivePool").finish_non_exhaustive()
    }
}

/// Clones of one pool are equal.
impl PartialEq for ReceivePool {
    fn eq(&self, other: &ReceivePool) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for ReceivePool {}

impl ReceivePool {
    /// Adds memory for one message, and wakes a connection that waits for it.
    ///
    /// # Errors
    /// The pool is closed, or belongs to the parent of this process. The memory comes back.
    pub fn add(&self, memory: Region, context: u64) -> Result<(), Region> {
        let Some(mut state) = self.enter().filter(|it| !it.closed) else {
            return Err(memory);
        };
        state.free.push_back((memory, context));
        state.leave_and_tell();
        Ok(())
    }

    /// Returns memory that came from the pool, which may be closed by now. In a child of fork it is freed.
    pub fn give_back(&self, memory: Region, context: u64) {
        if let Some(mut state) = self.enter() {
            state.free.push_back((memory, context));
            state.leave_and_tell();
        }
    }

    /// Pieces of memory that no message has taken.
    pub fn len(&self) -> usize {
        self.enter().map_or(0, |state| state.free.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out the first piece that no message has taken, with its context.
    pub fn remove(&self) -> Option<(Region, u64)> {
        self.enter()?.free.pop_front()
    }

    /// Ends the pool: no message takes memory any more. Messages that took some continue.
    pub fn close(&self) {
        if let Some(mut state) = self.enter() {
            state.closed = true;
            state.low = None;
        }
    }

    /// Calls `notice` once, when less than `limit` pieces are left: at once if so now. Replaces an earlier notice. It
    /// runs in the thread that drives a connection, and must not block.
    pub fn notify_below(&self, limit: usize, notice: impl FnOnce() + Send + 'static) {
        let Some(mut state) = self.enter() else {
            return;
        };
        state.low = Some((limit, Box::new(notice)));
        let low = state.take_low();
        drop(state);
        if let Some(notice) = low {
            notice();
        }
    }

    /// `None` in a child of fork.
    fn enter(&self) -> Option<Guard<'_>> {
        let lock = || {
            self.shared
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        self.shared.process.is_current().then(|| Guard(lock()))
    }

    /// A connection that takes memory of this pool.
    pub(crate) fn join(&self, wake: MemoryWake) -> Member {
        let number = self.enter().map_or(0, |mut state| {
            state.members += 1;
            state.members
        });
        Member {
            pool: self.clone(),
            number,
            wake,
            held: 0,
            waits: false,
        }
    }
}

struct Guard<'a>(MutexGuard<'a, State>);

impl std::ops::Deref for Guard<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0
    }
}

impl std::ops::DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Guard<'_> {
    /// Unlocks, then wakes the connections that may take memory now.
    fn leave_and_tell(mut self) {
        let told = self.0.tell();
        drop(self);
        told.iter().for_each(|wake| wake());
    }
}

impl State {
    /// The connections that wait, may take memory, and were not told yet.
    fn tell(&mut self) -> Vec<MemoryWake> {
        let mut told = Vec::new();
        let mut left = if self.closed { 0 } else { self.free.len() };
        for it in &mut self.waiting {
            if left == 0 {
                break;
            }
            if left > it.held && !std::mem::replace(&mut it.told, true) {
                told.push(Arc::clone(&it.wake));
            }
            left -= usize::from(it.held == 0);
        }
        told
    }

    fn place(&self, member: u64) -> Option<usize> {
        self.waiting.iter().position(|it| it.member == member)
    }

    /// Those who wait before `place` and hold none.
    fn ahead_of(&self, place: usize) -> usize {
        let ahead = self.waiting.iter().take(place);
        ahead.filter(|it| it.held == 0).count()
    }

    fn remove(&mut self, place: usize) {
        if let Some(it) = self.waiting.remove(place) {
            self.empty_handed -= usize::from(it.held == 0);
        }
    }

    fn take_low(&mut self) -> Option<Notice> {
        let free = self.free.len();
        self.low.take_if(|it| free < it.0).map(|it| it.1)
    }
}

/// A connection's part in a pool. Dropping it ends its wait.
pub(crate) struct Member {
    pool: ReceivePool,
    number: u64,
    wake: MemoryWake,
    /// Pieces taken for messages that are not over.
    held: usize,
    /// Whether it is among those that wait.
    waits: bool,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("held", &self.held)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}

impl Member {
    pub(crate) fn pool(&self) -> &ReceivePool {
        &self.pool
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Takes memory for a message. `None`: it waits from now on, and is woken when it may try again.
    pub(crate) fn take(&mut self) -> Option<(Region, u64)> {
        let mut state = self.pool.enter()?;
        let place = self.waits.then(|| state.place(self.number)).flatten();
        let ahead = place.map_or(state.empty_handed, |place| state.ahead_of(place));
        let may = !state.closed && state.free.len() > ahead + self.held;
        let taken = may.then(|| state.free.pop_front()).flatten();
        if let Some(place) = place {
            state.remove(place);
        }
        self.waits = taken.is_none();
        if taken.is_some() {
            self.held += 1;
            let low = state.take_low();
            drop(state);
            if let Some(notice) = low {
                notice();
            }
            return taken;
        }
        let waiting = Waiting {
            member: self.number,
            held: self.held,
            told: false,
            wake: Arc::clone(&self.wake),
        };
        let at = place.unwrap_or(state.waiting.len());
        state.waiting.insert(at, waiting);
        state.empty_handed += usize::from(self.held == 0);
        None
    }

    /// Whether it waits, and was told to try again.
    pub(crate) fn may_take(&self) -> bool {
        let state = self.waits.then(|| self.pool.enter()).flatten();
        state.is_some_and(|it| it.place(self.number).is_some_and(|at| it.waiting[at].told))
    }

    /// A message that took memory is over: the memory goes to the program.
    pub(crate) fn on_message_over(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Leaves those that wait: the connection needs no memory.
    pub(crate) fn stop_waiting(&mut self) {
        if !std::mem::take(&mut self.waits) {
            return;
        }
        if let Some(mut state) = self.pool.enter() {
            if let Some(place) = state.place(self.number) {
                state.remove(place);
            }
            // What was kept back for it is for the next.
            state.leave_and_tell();
        }
    }

    /// Calls `wake` from now on.
    pub(crate) fn set_wake(&mut self, wake: MemoryWake) {
        self.wake = wake;
        // What the earlier one was told is lost.
        self.stop_waiting();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
