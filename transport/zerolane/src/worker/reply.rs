//! Passes one value to a waiting thread or task.
//!
//! A channel for one value whose receiver may give up at any moment: the value then returns to the sender instead of
//! being lost. No library offers this.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

#[derive(Debug)]
enum State<T> {
    /// No value yet; the waker of the waiting task.
    Empty(Option<Waker>),
    Ready(T),
    /// The value was taken.
    Taken,
    /// The receiver is gone.
    Abandoned,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    /// No code under the lock leaves the state half changed.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

pub(super) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State::Empty(None)),
        changed: Condvar::new(),
    });
    let sender = Sender {
        shared: Arc::clone(&shared),
    };
    (sender, Receiver { shared })
}

impl<T> Sender<T> {
    /// # Errors
    /// Returns `value` if the receiver is gone.
    pub(super) fn send(self, value: T) -> Result<(), T> {
        let mut state = self.shared.state();
        let State::Empty(waker) = &mut *state else {
            return Err(value);
        };
        let waker = waker.take();
        *state = State::Ready(value);
        drop(state);
        self.shared.changed.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Whether the receiver still exists.
    pub(super) fn is_awaited(&self) -> bool {
        !matches!(*self.shared.state(), State::Abandoned)
    }
}

impl<T> Receiver<T> {
    fn take(state: &mut State<T>) -> Option<T> {
        match std::mem::replace(state, State::Taken) {
            State::Ready(value) => Some(value),
            before => {
                *state = before;
                None
            }
        }
    }

    /// Waits for the value, for at most `timeout`.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Option<T> {
        // A deadline that overflows the clock counts as no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.shared.state();
        loop {
            if let Some(value) = Self::take(&mut state) {
                return Some(value);
            }
            let waited = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.shared.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.shared.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
            state = waited;
        }
    }

    pub(super) fn poll(&self, waker: &Waker) -> Poll<T> {
        let mut state = self.shared.state();
        if let Some(value) = Self::take(&mut state) {
            return Poll::Ready(value);
        }
        if let State::Empty(waiting) = &mut *state {
            *waiting = Some(waker.clone());
        }
        Poll::Pending
    }

    /// Calls `waker` once the value is there; now if it is, or was taken.
    pub(super) fn watch(&self, waker: Waker) {
        if let State::Empty(waiting) = &mut *self.shared.state() {
            *waiting = Some(waker);
            return;
        }
        // Without the lock.
        waker.wake();
    }

    /// Calls no waker any more. The value is still taken from the sender.
    pub(super) fn unwatch(&self) {
        if let State::Empty(waiting) = &mut *self.shared.state() {
            *waiting = None;
        }
    }

    /// The value if it is there, without waiting for the lock: after a fork its holder may be a thread of the parent.
    pub(super) fn try_take(&self) -> Option<T> {
        Self::take(&mut *self.shared.state.try_lock().ok()?)
    }

    /// Gives up waiting. Returns a value that came and was not taken.
    pub(super) fn abandon(&self) -> Option<T> {
        match std::mem::replace(&mut *self.shared.state(), State::Abandoned) {
            State::Ready(value) => Some(value),
            _ => None,
        }
    }

    /// Whether the value was taken.
    pub(super) fn is_taken(&self) -> bool {
        matches!(*self.shared.state(), State::Taken)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn abandon__and_send_leave_the_value_to_one_of_them() {
        for _ in 0..2000 {
            let (sender, receiver) = channel();
            let sending = std::thread::spawn(move || sender.send(7).is_err());
            let back = receiver.abandon().is_some();
            let refused = sending.join().expect("no panic");
            assert!(back != refused, "lost, or there twice");
        }
    }

    #[test]
    fn wait__gets_what_another_thread_sends_and_times_out() {
        let (sender, receiver) = channel();
        assert_eq!(receiver.wait(Some(Duration::from_millis(1))), None);
        let sending = std::thread::spawn(move || sender.send(7));
        assert_eq!(receiver.wait(None), Some(7));
        assert!(receiver.is_taken());
        sending.join().expect("no panic").expect("waited for");
    }
}
