//! Waits for answers of a worker in a thread of its own.

use crate::dropped;
use crate::errors;
use crate::patience::Patience;
use pyo3::exceptions::{PyTimeoutError, PyTypeError};
use pyo3::prelude::*;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerolane::RequestId;
use zerolane::worker::Outcome;
use zerolane::{Completion, Error, Process};

/// An answer, to convert for Python.
type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Converts a `T` for Python.
type Make<T> = fn(Python<'_>, T) -> PyResult<Py<PyAny>>;

/// A pending answer of any type.
trait Awaited: Send {
    fn wait_for(&mut self, time: Duration) -> Option<Answer>;
    /// Makes `set` have `token` once the answer is there.
    fn add_to(&mut self, set: &zerolane::worker::PendingSet, token: u64) -> zerolane::Result<()>;
    /// Lets the request continue without a waiter.
    fn detach(self: Box<Self>);
}

struct Of<T> {
    pending: zerolane::worker::Pending<T>,
    make: Make<T>,
}

impl<T: Send + 'static> Of<T> {
    fn answer(&self, outcome: Outcome<T>) -> Answer {
        let make = self.make;
        Box::new(move |py| match outcome {
            Ok(value) => make(py, value),
            Err(refused) => Err(errors::of(py, refused.error)),
        })
    }
}

impl<T: Send + 'static> Awaited for Of<T> {
    fn wait_for(&mut self, time: Duration) -> Option<Answer> {
        let outcome = self.pending.wait_for(time)?;
        Some(self.answer(outcome))
    }

    fn add_to(&mut self, set: &zerolane::worker::PendingSet, token: u64) -> zerolane::Result<()> {
        set.add(&mut self.pending, token)
    }

    fn detach(self: Box<Self>) {
        self.pending.detach();
    }
}

enum State {
    Waiting(Box<dyn Awaited>),
    /// The answer came, and was not converted yet.
    Came(Answer),
    Over(PyResult<Py<PyAny>>),
    /// It was given up: nothing waits for it.
    GivenUp,
}

impl State {
    /// Checks for the answer with `step`. True if there is nothing left to wait for.
    fn advance(&mut self, step: impl FnOnce(&mut dyn Awaited) -> Option<Answer>) -> bool {
        if let State::Waiting(awaited) = self
            && let Some(answer) = step(&mut **awaited)
        {
            *self = State::Came(answer);
        }
        !matches!(self, State::Waiting(_))
    }

    fn detach(&mut self) {
        match std::mem::replace(self, State::GivenUp) {
            State::Waiting(awaited) => awaited.detach(),
            before => *self = before,
        }
    }
}

/// What happens to a request when the last reference to its Pending is gone before its end is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dropped {
    /// It continues: a program that ignores the result of a send has still sent.
    GoesOn,
    /// It is cancelled: without a Pending, nothing can take its result.
    Cancels,
}

/// A request to a worker's thread: wait for it in any thread, or `await` it in an event loop.
///
/// It is cancel-safe. Cancelling it before its end cancels the request; a message or connection that has come by then
/// is not lost, but goes to the next request. `detach` lets it continue without a waiter.
///
/// If its last reference is gone before the program has seen its end, there is a ResourceWarning. A send, a put, an
/// atomic operation, an export, a revoke, a finish or a close then continues, and any other request is cancelled.
#[pyclass(frozen, generic, weakref, module = "zerolane")]
pub(crate) struct Pending {
    state: Mutex<State>,
    /// The identifier of a request on a connection.
    id: Option<RequestId>,
    dropped: Dropped,
    process: Process,
}

impl Pending {
    pub(crate) fn new<T: Send + 'static>(
        pending: zerolane::worker::Pending<T>,
        make: Make<T>,
    ) -> Pending {
        Pending {
            state: Mutex::new(State::Waiting(Box::new(Of { pending, make }))),
            id: None,
            dropped: Dropped::Cancels,
            process: Process::current(),
        }
    }

    /// Lets the request continue when this is dropped.
    pub(crate) fn that_goes_on(mut self) -> Pending {
        self.dropped = Dropped::GoesOn;
        self
    }

    /// A request on a connection that sends, puts, or changes the peer's memory.
    pub(crate) fn outgoing(
        pending: zerolane::worker::Pending<Completion>,
        make: Make<Completion>,
    ) -> Pending {
        Pending::of_request(pending, make).that_goes_on()
    }

    /// A request on a connection that fills a buffer.
    pub(crate) fn incoming(
        pending: zerolane::worker::Pending<Completion>,
        make: Make<Completion>,
    ) -> Pending {
        Pending::of_request(pending, make)
    }

    fn of_request(
        pending: zerolane::worker::Pending<Completion>,
        make: Make<Completion>,
    ) -> Pending {
        let (id, mut made) = (pending.id(), Pending::new(pending, make));
        made.id = Some(id);
        made
    }

    /// The request's identifier.
    pub(crate) fn id(&self) -> PyResult<RequestId> {
        let none = || PyTypeError::new_err("not a request on a connection");
        self.id.ok_or_else(none)
    }

    /// To be called without the interpreter: another thread may hold the lock while it waits.
    ///
    /// # Errors
    /// This process is a child of the one that made the request, and does not have that thread.
    fn enter(&self) -> zerolane::Result<MutexGuard<'_, State>> {
        match self.process.is_current() {
            true => Ok(self.lock()),
            false => Err(Error::Forked),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks for the answer with `step`. True if there is nothing left to wait for, as in a child of fork.
    fn is_over(&self, step: impl FnOnce(&mut dyn Awaited) -> Option<Answer>) -> bool {
        self.enter().map_or(true, |mut state| state.advance(step))
    }

    /// The answer, once it is over.
    fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let before = py.detach(|| std::mem::replace(&mut *self.lock(), State::GivenUp));
        let outcome = match before {
            State::Over(outcome) => outcome,
            State::Came(answer) => answer(py),
            State::Waiting(_) | State::GivenUp => {
                Err(errors::exception(py, "Cancelled", "cancelled".to_owned()))
            }
        };
        let kept = match &outcome {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(error) => Err(error.clone_ref(py)),
        };
        py.detach(|| *self.lock() = State::Over(kept));
        outcome
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !matches!(state, State::Waiting(_)) || !self.process.is_current() {
            return;
        }
        match self.dropped {
            Dropped::GoesOn => {
                state.detach();
                dropped::warn(
                    "a Pending was dropped before its end was seen: the request continues, and its result is lost. \
                     Keep it and wait for it, or detach() it",
                );
            }
            Dropped::Cancels => dropped::warn(
                "a Pending was dropped before its end was seen: the request is cancelled. Keep it and wait for it, or \
                 detach() it",
            ),
        }
    }
}

#[pymethods]
impl Pending {
    /// Waits for the end and returns the result. Raises TimeoutError if it is not over within `timeout` seconds; it
    /// then continues, and may be waited for again.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let over = Patience::new(timeout)?.wait(py, |time| {
            let over = self.enter()?.advance(|it| it.wait_for(time));
            Ok(over.then_some(()))
        })?;
        match over {
            Some(()) => self.outcome(py),
            None => Err(PyTimeoutError::new_err(
                "not complete in time: the request continues",
            )),
        }
    }

    /// Whether it is over, or cancelled.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.is_over(|it| it.wait_for(Duration::ZERO)))
    }

    /// Cancels it, if it is not over: waiters get Cancelled.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| {
            if let Ok(mut state) = self.enter()
                && let State::Waiting(_) = &*state
            {
                *state = State::GivenUp;
            }
        });
    }

    /// Lets it continue without a waiter; its result is dropped.
    fn detach(&self, py: Python<'_>) {
        py.detach(|| {
            if let Ok(mut state) = self.enter() {
                state.detach();
            }
        });
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("zerolane._pending")?;
        module
            .getattr("waited")?
            .call1((slf,))?
            .call_method0("__await__")
    }
}

/// Tells which of any number of Pending requests have their result, for an event loop of the program's own: `fileno()`
/// is readable while the set has tokens. The set does not own the requests: keep them, and call `wait` of the one whose
/// token has come. After a fork it belongs to the parent.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct PendingSet(zerolane::worker::PendingSet);

impl PendingSet {
    pub(crate) fn inner(&self) -> &zerolane::worker::PendingSet {
        &self.0
    }
}

#[pymethods]
impl PendingSet {
    #[new]
    fn new(py: Python<'_>) -> PyResult<PendingSet> {
        let set = zerolane::worker::PendingSet::new();
        set.map(PendingSet).map_err(|error| errors::of(py, error))
    }

    /// Puts `token`, a number from 0 to 2**64 - 1, into the set when `pending` is over; now if it is. A request is in
    /// one set: adding it again, or awaiting it, replaces its token.
    fn add(&self, py: Python<'_>, pending: &Bound<'_, Pending>, token: u64) -> PyResult<()> {
        let pending = pending.get();
        let added = py.detach(|| match &mut *pending.enter()? {
            State::Waiting(awaited) => awaited.add_to(&self.0, token),
            State::Came(_) | State::Over(_) | State::GivenUp => {
                self.0.signal(token);
                Ok(())
            }
        });
        added.map_err(|error| errors::of(py, error))
    }

    /// Puts `token` into the set now, without a request: ends another thread's `wait`.
    fn signal(&self, py: Python<'_>, token: u64) {
        py.detach(|| self.0.signal(token));
    }

    /// Removes and returns up to `max` tokens, the oldest first.
    #[pyo3(signature = (max=256))]
    fn poll_batch(&self, py: Python<'_>, max: usize) -> PyResult<Vec<u64>> {
        let taken = py.detach(|| {
            self.0.check_process()?;
            let mut tokens = Vec::new();
            self.0.poll_batch(&mut tokens, max);
            Ok(tokens)
        });
        taken.map_err(|error| errors::of(py, error))
    }

    /// Waits for a token, removes it and returns it, the oldest first; None if none comes within `timeout` seconds. A
    /// timeout of 0 polls.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        Patience::new(timeout)?.wait(py, |time| self.0.wait(Some(time)))
    }

    /// A descriptor that is readable while the set has tokens. Do not read it.
    fn fileno(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }
}
