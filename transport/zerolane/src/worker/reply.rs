//! An answer that another thread, or another task, waits for.
//!
//! A channel for one value whose receiving half may be given up at any moment: then the value goes back to the
//! sending side, and none is lost. No library has that.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

#[derive(Debug)]
enum State<T> {
    /// Nothing yet; the task that waits.
    Empty(Option<Waker>),
    Ready(T),
    /// It was taken.
    Taken,
    /// The receiving half is gone.
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

/// Gives the answer.
#[derive(Debug)]
pub(super) struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Gets it.
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
    /// Gives `value` back if it is not waited for any more.
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

    /// Whether the receiving half is there.
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

    /// The value, within `timeout`.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Option<T> {
        // A time beyond what the clock counts to is no limit.
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

    /// The value if it is there, without waiting for the lock, which a thread may hold that is not in this process.
    pub(super) fn try_take(&self) -> Option<T> {
        Self::take(&mut *self.shared.state.try_lock().ok()?)
    }

    /// Waits no more. What came and was not taken is given back.
    pub(super) fn abandon(&self) -> Option<T> {
        match std::mem::replace(&mut *self.shared.state(), State::Abandoned) {
            State::Ready(value) => Some(value),
            _ => None,
        }
    }

    /// Whether it was taken.
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
