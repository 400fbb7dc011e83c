//! Connections, shared by Python's threads.

use crate::account::Account;
use crate::address::{Address, pair};
use crate::completion::{Completion, read_delivery};
use crate::errors;
use crate::options::{self, Options};
use crate::patience::Patience;
use crate::pinned::{Use, pin};
use crate::queue::CompletionQueue;
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use zerolane::failure::CloseReason;
use zerolane::{Error, TransferId, Waker};

/// The state that one thread at a time uses.
pub(crate) struct State {
    /// None when closed.
    connection: Option<zerolane::Connection>,
    /// Requests whose end a blocking call waits for, with the end if another thread received it.
    claimed: HashMap<TransferId, Option<zerolane::Completion>>,
    /// Ends of other requests, which a blocking call received.
    kept: VecDeque<zerolane::Completion>,
}

impl State {
    pub(crate) fn connection(&mut self) -> zerolane::Result<&mut zerolane::Connection> {
        self.connection
            .as_mut()
            .ok_or(Error::Closed(CloseReason::Local))
    }

    /// Puts a completion where its taker looks.
    fn sort(&mut self, completion: zerolane::Completion) {
        match self.claimed.get_mut(&completion.id) {
            Some(place) => *place = Some(completion),
            None => self.kept.push_back(completion),
        }
    }

    /// The next completion that no call claims, if it is there or comes in time. May return earlier
    /// without.
    fn take(&mut self, time: Duration) -> zerolane::Result<Option<zerolane::Completion>> {
        if self.kept.is_empty()
            && let Some(completion) = self.connection()?.wait(Some(time))?
        {
            self.sort(completion);
        }
        Ok(self.kept.pop_front())
    }

    /// The next completion that no call claims, if it is there.
    fn take_ready(&mut self) -> zerolane::Result<Option<zerolane::Completion>> {
        while self.kept.is_empty() {
            match self.connection()?.poll()? {
                Some(completion) => self.sort(completion),
                None => break,
            }
        }
        Ok(self.kept.pop_front())
    }

    /// The end of the claimed request `id`, if it is there or comes in time. May return earlier
    /// without.
    fn take_claimed(
        &mut self,
        id: TransferId,
        time: Duration,
    ) -> zerolane::Result<Option<zerolane::Completion>> {
        if let Some(Some(_)) = self.claimed.get(&id) {
            return Ok(self.claimed.remove(&id).flatten());
        }
        if let Some(completion) = self.connection()?.wait(Some(time))? {
            self.sort(completion);
        }
        match self.claimed.get(&id) {
            Some(Some(_)) => Ok(self.claimed.remove(&id).flatten()),
            _ => Ok(None),
        }
    }

    /// Ends the claimed request `id`, for whose end no call waits any more.
    fn forget(&mut self, id: TransferId) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        connection.cancel(id);
        // A failure is the connection's, and was told or will be.
        while let Some(Ok(Some(completion))) = self.connection.as_mut().map(|it| it.poll()) {
            self.sort(completion);
        }
        self.claimed.remove(&id);
    }
}

/// A connection, made by `connect` or `Endpoint.accept`. A context manager: leaving it closes it, at
/// once if an exception is on its way.
///
/// It makes progress only inside its methods, and a peer that calls none for the idle timeout counts
/// as dead. Methods may be called from several threads: one at a time enters, and ends the wait of
/// another for that.
#[pyclass(frozen, module = "zerolane")]
pub(crate) struct Connection {
    peer: SocketAddr,
    peer_key: Option<zerolane::security::PublicKey>,
    state: Mutex<State>,
    /// Held while waiting for `state`, so that a waiting thread gets it before the one that had it last.
    turn: Mutex<()>,
    waker: Waker,
    /// `wake` was called.
    woken: AtomicBool,
    /// Completions go to a queue.
    queued: AtomicBool,
}

impl Connection {
    pub(crate) fn new(connection: zerolane::Connection) -> Connection {
        Connection {
            peer: connection.peer_addr(),
            peer_key: connection.peer_key(),
            waker: connection.waker(),
            state: Mutex::new(State {
                connection: Some(connection),
                claimed: HashMap::new(),
                kept: VecDeque::new(),
            }),
            turn: Mutex::new(()),
            woken: AtomicBool::new(false),
            queued: AtomicBool::new(false),
        }
    }

    /// For short calls: ends the wait of another thread. To be called without the interpreter, which
    /// that thread may need before it releases the lock.
    fn enter(&self) -> MutexGuard<'_, State> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waker.wake();
                self.state.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    /// For waits: while another thread waits, it moves this one's requests too, and releases the lock
    /// when one of them ends. To be called without the interpreter.
    fn enter_to_wait(&self) -> MutexGuard<'_, State> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a short call.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut State) -> zerolane::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| body(&mut self.enter()))
            .map_err(|error| errors::of(py, error))
    }

    /// Posts a request. Its buffers are the caller's again if it is refused.
    pub(crate) fn post<E: Into<Error>>(
        &self,
        py: Python<'_>,
        post: impl FnOnce(&mut zerolane::Connection) -> Result<TransferId, E> + Send,
    ) -> PyResult<TransferId> {
        self.with(py, |state| post(state.connection()?).map_err(Into::into))
    }

    /// Posts a request and waits for its end. An exception meanwhile (Ctrl-C) cancels it, so that its
    /// memory is free in any case.
    ///
    /// # Errors
    /// Those of the request too.
    pub(crate) fn finish<E: Into<Error>>(
        &self,
        py: Python<'_>,
        post: impl FnOnce(&mut zerolane::Connection) -> Result<TransferId, E> + Send,
    ) -> PyResult<zerolane::Completion> {
        if self.queued.load(Ordering::SeqCst) {
            return Err(PyRuntimeError::new_err(
                "completions go to a queue: post the request instead",
            ));
        }
        let id = self.with(py, |state| {
            let connection = state.connection()?;
            let id = post(connection).map_err(Into::into)?;
            // However its sender wants it delivered.
            connection.notify(id);
            state.claimed.insert(id, None);
            Ok(id)
        })?;
        let completion = Patience::UNBOUNDED
            .wait(py, |time| self.enter_to_wait().take_claimed(id, time))
            .and_then(|end| {
                end.ok_or_else(|| PyTimeoutError::new_err("a wait without a limit timed out"))
            })
            .inspect_err(|_| py.detach(|| self.enter().forget(id)))?;
        match completion.result {
            Ok(_) => Ok(completion),
            Err(error) => Err(errors::of_request(py, error)),
        }
    }
}

/// Connects to `address`, "host:port" or a tuple of both.
#[pyfunction]
#[pyo3(signature = (address, options=None))]
pub(crate) fn connect(
    py: Python<'_>,
    address: Address,
    options: Option<&Bound<'_, Options>>,
) -> PyResult<Connection> {
    let options = options::read(options);
    py.detach(|| zerolane::Connection::connect(&address.resolve()?[..], &options))
        .map(Connection::new)
        .map_err(|error| errors::of(py, error))
}

#[pymethods]
impl Connection {
    /// The peer's address: host and port.
    #[getter]
    fn peer_address(&self) -> (String, u16) {
        pair(self.peer)
    }

    /// The key that the peer proved to own; None if the connection is plain.
    #[getter]
    fn peer_key(&self) -> Option<String> {
        self.peer_key.map(|key| key.to_string())
    }

    /// Requests posted and not done.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> usize {
        py.detach(|| {
            let state = self.enter();
            state.connection.as_ref().map_or(0, |it| it.in_flight())
        })
    }

    /// Sends the bytes of `buffer` as one message; returns when the peer has all of them. `delivery` says
    /// how the peer's receive is delivered there: "interrupt" wakes a peer that waits, "polled" is found by
    /// one that polls, "silent" comes with the next that is not silent.
    #[pyo3(signature = (buffer, *, delivery="interrupt"))]
    fn send(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, delivery: &str) -> PyResult<()> {
        let delivery = read_delivery(delivery)?;
        let region = pin(buffer, Use::Read)?.share();
        self.finish(py, |connection| connection.post_send_with(region, delivery))?;
        Ok(())
    }

    /// Receives the next message into `buffer`; returns its length in bytes. Raises MessageTooLarge,
    /// here and at the peer, if it does not fit; the next can be received then.
    fn receive_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let region = pin(buffer, Use::Write)?;
        let completion = self.finish(py, |connection| connection.post_recv(region))?;
        Ok(completion.result.unwrap_or(0))
    }

    /// Waits until the peer announces a message that no posted receive takes, and returns its length
    /// in bytes; None if none comes within `timeout` seconds. The length is the peer's word: bound it
    /// before allocating that much.
    #[pyo3(signature = (timeout=None))]
    fn announced(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        Patience::new(timeout)?.wait(py, |time| {
            self.enter_to_wait().connection()?.announced(Some(time))
        })
    }

    /// Posts the send of `buffer`; returns the request's number. The buffer must not be changed, and
    /// cannot be resized, until the request is done. `delivery`: see `send`.
    #[pyo3(signature = (buffer, *, delivery="interrupt"))]
    fn post_send(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        delivery: &str,
    ) -> PyResult<u32> {
        let delivery = read_delivery(delivery)?;
        let region = pin(buffer, Use::Read)?.share();
        self.post(py, |connection| connection.post_send_with(region, delivery))
    }

    /// Posts a receive into `buffer`: the n-th posted gets the n-th message the peer sends, if it
    /// fits. Returns the request's number. The buffer's content is undefined, and it cannot be
    /// resized, until the request is done.
    fn post_receive(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<u32> {
        let region = pin(buffer, Use::Write)?;
        self.post(py, |connection| connection.post_recv(region))
    }

    /// Asks to be told of the end of request `id`, however its sender wants it delivered: `wait` returns it,
    /// also if it is over and held back. False if there is no such request, or its completion was taken.
    fn notify(&self, py: Python<'_>, id: u32) -> PyResult<bool> {
        self.with(py, |state| Ok(state.connection()?.notify(id)))
    }

    /// Makes progress without waiting; returns a completion if there is one, also one of
    /// "polled" delivery.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Completion>> {
        let completion = self.with(py, State::take_ready)?;
        Ok(completion.map(|it| Completion::new(py, it)))
    }

    /// Waits for the next completion that wakes, or returns one that came before it; None if none comes within
    /// `timeout` seconds, or if `wake` was called. A timeout of 0 polls.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Completion>> {
        let outcome = Patience::new(timeout)?.wait(py, |time| {
            let completion = self.enter_to_wait().take(time)?;
            let woken = completion.is_none() && self.woken.swap(false, Ordering::SeqCst);
            Ok((completion.is_some() || woken).then_some(completion))
        })?;
        Ok(outcome.flatten().map(|it| Completion::new(py, it)))
    }

    /// Ends a `wait` of another thread, or the next one if none is in progress.
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Sends completions to `queue` from now on, with `tag`. The program still has to drive the
    /// connection with `wait`: with a timeout of 0 when `fileno` is readable (or writable,
    /// if `wants_write`) or `next_timeout` is over, or without a limit in a thread. Calls that wait for their own end are refused from then on.
    #[pyo3(signature = (queue, tag=0))]
    fn set_completion_queue(
        &self,
        py: Python<'_>,
        queue: &Bound<'_, CompletionQueue>,
        tag: u64,
    ) -> PyResult<()> {
        let queue = queue.get().inner();
        self.with(py, |state| {
            state.connection()?.set_completion_queue(queue, tag);
            Ok(())
        })?;
        self.queued.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// The socket's descriptor, for event loops: when it is readable, `wait` with a timeout of 0. Do not
    /// read it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |state| Ok(state.connection()?.as_fd().as_raw_fd()))
    }

    /// Whether `wait` also has something to do when the socket is writable: its send buffer was full.
    #[getter]
    fn wants_write(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| Ok(state.connection()?.wants_write()))
    }

    /// Seconds until the connection has something to do although nothing came: then `wait` with a timeout
    /// of 0. None if there is no such time.
    #[getter]
    fn next_timeout(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |state| {
            let next = state.connection()?.next_timeout();
            Ok(next.map(|it| it.as_secs_f64()))
        })
    }

    /// Cancels a request, whose completion then has the error Cancelled. False if it is over already.
    fn cancel(&self, py: Python<'_>, id: u32) -> PyResult<bool> {
        self.with(py, |state| Ok(state.connection()?.cancel(id)))
    }

    /// What the connection did so far.
    fn account(&self, py: Python<'_>) -> PyResult<Account> {
        self.with(py, |state| Ok(state.connection()?.account().into()))
    }

    /// Waits until the peer has all that was sent, then disconnects. Requests that are not done end;
    /// their buffers are free. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |state| {
            state.kept.clear();
            state.connection.take().map_or(Ok(()), |it| it.close())
        })
    }

    /// Disconnects at once. Requests that are not done end; their buffers are free.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |state| {
            state.kept.clear();
            drop(state.connection.take());
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if class.is_none() {
            self.close(py)
        } else {
            self.abort(py)
        }
    }

    fn __repr__(&self) -> String {
        format!("Connection('{}')", self.peer)
    }
}
