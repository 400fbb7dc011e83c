//! Drives a connection inside its callers' calls.

use crate::errors;
use crate::patience::Patience;
use crate::shared::Shared;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerolane::failure::CloseReason;
use zerolane::{Completion, Error, RequestId, Waited};

/// The state that one thread at a time uses.
pub(crate) struct State {
    /// `None` once closed.
    connection: Option<zerolane::Connection>,
    /// Requests for which a blocking call waits, with the completion if another thread received it.
    claimed: HashMap<RequestId, Option<Completion>>,
    /// Completions of other requests and immediates that a blocking call received. They count as unread.
    kept: VecDeque<Completion>,
}

/// How much of a request has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// This many bytes, more than before.
    More(u64),
    NotYet,
    /// The request is over; its completion has the result.
    Over,
}

impl State {
    pub(crate) fn connection(&mut self) -> zerolane::Result<&mut zerolane::Connection> {
        self.connection
            .as_mut()
            .ok_or(Error::Closed(CloseReason::Local))
    }

    /// Takes the connection away from Python, and drops completions that were not taken.
    pub(crate) fn give_up(&mut self) -> Option<zerolane::Connection> {
        self.kept.clear();
        self.tell_kept();
        self.connection.take()
    }

    /// Whether no call waits, and all received completions were taken.
    pub(crate) fn is_settled(&self) -> bool {
        self.kept.is_empty() && self.claimed.is_empty()
    }

    /// Stores a completion for the call that takes it.
    fn sort(&mut self, completion: Completion) {
        match self.claimed.get_mut(&completion.id) {
            Some(place) => *place = Some(completion),
            None => {
                self.kept.push_back(completion);
                self.tell_kept();
            }
        }
    }

    /// Makes the peer wait while many completions are kept.
    fn tell_kept(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.set_unprocessed(self.kept.len());
        }
    }

    /// The next completion that no call claims, if there is one or it comes in time. May return early without one.
    pub(crate) fn take(&mut self, time: Duration) -> zerolane::Result<Option<Completion>> {
        if self.kept.is_empty()
            && let Waited::Got(completion) = self.connection()?.wait(Some(time))?
        {
            self.sort(completion);
        }
        let first = self.kept.pop_front();
        self.tell_kept();
        Ok(first)
    }

    /// Up to `max` completions that are there and that no call claims, after one round of progress.
    pub(crate) fn take_ready(&mut self, max: usize) -> zerolane::Result<Vec<Completion>> {
        let mut ready = Vec::new();
        while self.kept.len() < max {
            let missing = max - self.kept.len();
            let polled = self.connection()?.poll_batch(&mut ready, missing);
            let before = self.kept.len();
            let found = ready.len();
            ready.drain(..).for_each(|it| self.sort(it));
            if self.kept.is_empty() {
                polled?;
            }
            // There may be more only if calls claim some of them.
            if self.kept.len() - before == found {
                break;
            }
        }
        ready.extend(self.kept.drain(..max.min(self.kept.len())));
        self.tell_kept();
        Ok(ready)
    }

    /// The completion of request `id`, if there is one or it comes in time. May return early. `Got(None)`: there is no
    /// such request, its completion was taken, or a blocking call has posted it.
    pub(crate) fn take_of(
        &mut self,
        id: RequestId,
        time: Duration,
    ) -> zerolane::Result<Waited<Option<Completion>>> {
        if let Some(at) = self.kept.iter().position(|it| it.id == id) {
            let kept = self.kept.remove(at);
            self.tell_kept();
            return Ok(Waited::Got(kept));
        }
        if self.claimed.contains_key(&id) {
            return Ok(Waited::Got(None));
        }
        self.connection()?.wait_for(id, Some(time))
    }

    /// Waits until more than `beyond` bytes of request `id` have arrived. May return early.
    pub(crate) fn wait_arrived(
        &mut self,
        id: RequestId,
        beyond: u64,
        time: Duration,
    ) -> zerolane::Result<Arrived> {
        let connection = self.connection()?;
        match connection.wait_arrived(id, beyond, Some(time))? {
            Waited::Got(Some(arrived)) => Ok(Arrived::More(arrived)),
            Waited::Got(None) => Ok(Arrived::Over),
            Waited::TimedOut | Waited::Woken => Ok(Arrived::NotYet),
        }
    }

    /// The completion of the claimed request `id`, if there is one or it comes in time. May return early without one.
    fn take_claimed(
        &mut self,
        id: RequestId,
        time: Duration,
    ) -> zerolane::Result<Option<Completion>> {
        if let Some(Some(_)) = self.claimed.get(&id) {
            return Ok(self.claimed.remove(&id).flatten());
        }
        if let Waited::Got(completion) = self.connection()?.wait(Some(time))? {
            self.sort(completion);
        }
        match self.claimed.get(&id) {
            Some(Some(_)) => Ok(self.claimed.remove(&id).flatten()),
            _ => Ok(None),
        }
    }

    /// Gives up the claimed request `id`. Returns its completion if it had come.
    fn forget(&mut self, id: RequestId) -> Option<Completion> {
        let connection = self.connection.as_mut()?;
        let over = !connection.cancel(id);
        // A failure is the connection's, and another call reports it.
        while let Some(Ok(Some(completion))) = self.connection.as_mut().map(|it| it.poll()) {
            self.sort(completion);
        }
        let end = self.claimed.remove(&id).flatten();
        end.filter(|_| over)
    }
}

/// A connection that Python's threads share.
pub(crate) struct Driven {
    shared: Shared<State>,
    /// Whether `wake` was called.
    woken: AtomicBool,
    /// Whether completions go to a queue.
    queued: AtomicBool,
    /// How long a blocking call may take.
    timeout: Mutex<Option<Duration>>,
}

impl Driven {
    pub(crate) fn new(connection: zerolane::Connection) -> Driven {
        let waker = connection.waker();
        let state = State {
            connection: Some(connection),
            claimed: HashMap::new(),
            kept: VecDeque::new(),
        };
        Driven {
            shared: Shared::new(state, waker),
            woken: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            timeout: Mutex::new(None),
        }
    }

    /// Whether this process made it; otherwise it belongs to the parent.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.shared.check_process().is_ok()
    }

    /// Whether this process made it, and neither closed it nor gave it up.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.shared.peek();
        state.is_some_and(|it| it.connection.is_some())
    }

    pub(crate) fn enter(&self) -> zerolane::Result<MutexGuard<'_, State>> {
        self.shared.enter()
    }

    pub(crate) fn enter_to_wait(&self) -> zerolane::Result<MutexGuard<'_, State>> {
        self.shared.enter_to_wait()
    }

    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.shared.wake();
    }

    /// Whether `wake` was called since the last check.
    pub(crate) fn take_wake(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn set_queued(&self) {
        self.queued.store(true, Ordering::SeqCst);
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// Runs a short call.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut State) -> zerolane::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| body(&mut *self.enter()?))
            .map_err(|error| errors::of(py, error))
    }

    /// As for [`State::forget`].
    fn forget(&self, id: RequestId) -> Option<Completion> {
        self.enter().ok()?.forget(id)
    }

    /// Posts a request and waits for it, within the timeout. An exception meanwhile (Ctrl-C) cancels it, so that its
    /// memory is free in any case.
    ///
    /// # Errors
    /// Those of the request too.
    pub(crate) fn complete<E: Into<Error>>(
        &self,
        py: Python<'_>,
        post: impl FnOnce(&mut zerolane::Connection) -> Result<RequestId, E> + Send,
    ) -> PyResult<Completion> {
        if self.queued.load(Ordering::SeqCst) {
            return Err(PyRuntimeError::new_err(
                "completions go to a queue: post the request instead",
            ));
        }
        let id = self.with(py, |state| {
            let connection = state.connection()?;
            let id = post(connection).map_err(Into::into)?;
            // Ends the wait in any delivery mode.
            connection.notify(id);
            state.claimed.insert(id, None);
            Ok(id)
        })?;
        let timeout = self.timeout();
        let end = Patience::of(timeout)
            .wait(py, |time| self.enter_to_wait()?.take_claimed(id, time))
            .inspect_err(|_| {
                py.detach(|| drop(self.forget(id)));
            })?;
        let end = end.or_else(|| py.detach(|| self.forget(id)));
        let Some(completion) = end else {
            let error = Error::TimedOut(timeout.unwrap_or_default());
            return Err(errors::of(py, error));
        };
        match completion.result {
            Ok(_) => Ok(completion),
            Err(error) => Err(errors::of_request(py, error)),
        }
    }
}
