//! Implements connections that their callers drive.

use crate::address::Address;
use crate::aside::aside;
use crate::closing;
use crate::completion::{Completion, read_delivery};
use crate::driven::{Arrived, Driven};
use crate::dropped;
use crate::options::{self, Options, seconds};
use crate::patience::Patience;
use crate::pinned::{Use, pin, pin_source};
use crate::pool::ReceivePool;
use crate::queue::CompletionQueue;
use crate::requests::Requests;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use zerolane::request::Transfer;
use zerolane::{RequestId, Waited};

/// A connection, from `connect` or `Endpoint.accept`. As a context manager it closes on exit, at once on an exception.
///
/// It makes progress only inside its methods. A peer that makes no calls for the idle timeout counts as dead: a
/// `Worker` can drive connections in the background. One that is dropped unclosed disconnects at once, with a
/// ResourceWarning. Several threads may call methods; one at a time enters, and interrupts the wait of another to do
/// so. After a fork it belongs to the parent: in the child methods raise Closed, and `abort` does nothing.
#[pyclass(frozen, extends = Requests, module = "zerolane")]
pub(crate) struct Connection {
    pub(crate) driven: Arc<Driven>,
    peer: SocketAddr,
}

impl Connection {
    /// Makes Python's object for `connection`.
    pub(crate) fn object(
        py: Python<'_>,
        connection: zerolane::Connection,
    ) -> PyResult<Py<Connection>> {
        let peer = connection.peer_addr();
        let (requests, driven) = Requests::own(connection);
        let connection = Connection { driven, peer };
        let object = PyClassInitializer::from(requests).add_subclass(connection);
        Py::new(py, object)
    }

    /// Gives the connection to a worker.
    ///
    /// # Errors
    /// ValueError if completions were not taken, or a call waits; Closed if it is closed.
    pub(crate) fn give_up(&self, py: Python<'_>) -> PyResult<zerolane::Connection> {
        let given = self.driven.with(py, |state| {
            state.connection()?;
            Ok(state
                .is_settled()
                .then(|| state.give_up())
                .flatten()
                .map(Box::new))
        })?;
        given.map(|it| *it).ok_or_else(|| {
            PyValueError::new_err("a call waits, or completions are left: take those first")
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.driven.is_open() {
            dropped::warn(&format!(
                "unclosed Connection to {}: it disconnects at once, and what was not received yet is lost. Close it, \
                 or use it in a with statement",
                self.peer
            ));
        }
    }
}

/// Connects to `address`, "host:port" or a tuple of Python's sockets. A link-local address includes its interface, by
/// name or number: "[fe80::1%eth0]:9181". Ctrl-C ends the wait and closes a connection that is established later.
#[pyfunction]
#[pyo3(signature = (address, options=None))]
pub(crate) fn connect(
    py: Python<'_>,
    address: Address,
    options: Option<&Bound<'_, Options>>,
) -> PyResult<Py<Connection>> {
    let options = options::read(options);
    let connected = aside(py, move || {
        let to = address.resolve(options.lane.choice)?;
        zerolane::Connection::connect(&to[..], &options).map(Box::new)
    })?;
    Connection::object(py, *connected)
}

#[pymethods]
impl Connection {
    /// Seconds that a call may wait for its request; None, the default, is no limit. A request that takes longer is
    /// cancelled, and the call raises TimedOut.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.driven.timeout().map(|it| it.as_secs_f64())
    }

    /// Sets `timeout`.
    #[pyo3(signature = (timeout))]
    fn set_timeout(&self, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(|it| seconds(it, "timeout")).transpose()?;
        self.driven.set_timeout(timeout);
        Ok(())
    }

    /// Sends the bytes of `buffer`, or of a list or tuple of buffers, as one message; returns when the peer has
    /// received all of them. `delivery` sets how the receive is delivered to a peer that honours it: "interrupt" wakes
    /// a waiting peer, "polled" is found by a peer that polls, "silent" comes with the next completion that is not
    /// silent.
    #[pyo3(signature = (buffer, *, delivery="interrupt"))]
    fn send(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, delivery: &str) -> PyResult<()> {
        let delivery = read_delivery(delivery)?;
        let send = Transfer::new(pin_source(buffer)?).delivery(delivery);
        self.driven
            .complete(py, |connection| connection.post(send))?;
        Ok(())
    }

    /// Receives the next message into `buffer`; returns its length in bytes. If it does not fit, raises MessageTooLarge
    /// here and at the peer; the next message can be received.
    fn recv_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let region = pin(buffer, Use::Write)?;
        let completion = self
            .driven
            .complete(py, |connection| connection.post_recv(region))?;
        Ok(completion.result.unwrap_or(0))
    }

    /// Waits until the peer announces a message that no posted receive matches; returns its length in bytes, or None if
    /// none comes within `timeout` seconds. The peer chooses the length: bound it before you allocate that much.
    #[pyo3(signature = (timeout=None))]
    fn announced(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        Patience::new(timeout)?.wait(py, |time| {
            let mut state = self.driven.enter_to_wait()?;
            Ok(state.connection()?.announced(Some(time))?.got())
        })
    }

    /// Sends a copy of `datagram`, 1 to `max_datagram` bytes: sealed, and under congestion control, but it may be lost,
    /// come late or before an earlier one, and is never sent again (RFC 9221). Raises QueueFull if many wait to leave.
    /// One that waits for longer than 100 ms is dropped; the counters `unreliable_*` of `Account.json` tell why.
    fn send_datagram(&self, py: Python<'_>, datagram: &[u8]) -> PyResult<()> {
        let datagram = datagram.to_vec();
        self.driven
            .with(py, |state| state.connection()?.send_datagram(datagram))
    }

    /// Waits for a datagram of the peer, and returns it; None if none comes within `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn recv_datagram<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let datagram = Patience::new(timeout)?.wait(py, |time| {
            let mut state = self.driven.enter_to_wait()?;
            Ok(state.connection()?.recv_datagram(Some(time))?.got())
        })?;
        Ok(datagram.map(|it| PyBytes::new(py, &it)))
    }

    /// Returns the length of the longest datagram that the peer takes, in bytes; 0: it takes none.
    fn max_datagram(&self, py: Python<'_>) -> PyResult<usize> {
        self.driven
            .with(py, |state| Ok(state.connection()?.max_datagram()))
    }

    /// Makes progress without waiting; returns a completion if there is one, including those of "polled" delivery.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Completion>> {
        let mut ready = self.driven.with(py, |state| state.take_ready(1))?;
        Ok(ready.pop().map(|it| Completion::new(py, it)))
    }

    /// Like `poll`, for up to `max` completions after one round of progress.
    #[pyo3(signature = (max=256))]
    fn poll_batch(&self, py: Python<'_>, max: usize) -> PyResult<Vec<Completion>> {
        let ready = self.driven.with(py, |state| state.take_ready(max))?;
        Ok(Completion::all(py, ready))
    }

    /// Waits for a completion that wakes, and returns the first completion there is; None if none comes within
    /// `timeout` seconds, or if `wake` was called. A timeout of 0 polls.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Completion>> {
        let outcome = Patience::new(timeout)?.wait(py, |time| {
            let completion = self.driven.enter_to_wait()?.take(time)?;
            let woken = completion.is_none() && self.driven.take_wake();
            Ok((completion.is_some() || woken).then_some(completion))
        })?;
        Ok(outcome.flatten().map(|it| Completion::new(py, it)))
    }

    /// Waits for request `id` and returns its completion; others stay. None if it takes longer than `timeout` seconds:
    /// it continues; or if `wake` was called. ValueError if there is no such request, or its completion was taken.
    #[pyo3(signature = (id, timeout=None))]
    fn wait_for(
        &self,
        py: Python<'_>,
        id: u64,
        timeout: Option<f64>,
    ) -> PyResult<Option<Completion>> {
        let waited = Patience::new(timeout)?.wait(py, |time| {
            let mut state = self.driven.enter_to_wait()?;
            let waited = state.take_of(RequestId::from_u64(id), time)?;
            let ends = matches!(waited, Waited::Got(_)) || self.driven.take_wake();
            Ok(ends.then_some(waited))
        })?;
        match waited {
            Some(Waited::Got(Some(completion))) => Ok(Some(Completion::new(py, completion))),
            Some(Waited::Got(None)) => Err(PyValueError::new_err(format!(
                "there is no request {id}, or its completion was taken"
            ))),
            _ => Ok(None),
        }
    }

    /// Waits until more than `beyond` bytes of request `id` have arrived; returns how many. None if they did not within
    /// `timeout` seconds, if `wake` was called, or when the request is over.
    #[pyo3(signature = (id, beyond=0, timeout=None))]
    fn wait_arrived(
        &self,
        py: Python<'_>,
        id: u64,
        beyond: u64,
        timeout: Option<f64>,
    ) -> PyResult<Option<u64>> {
        let outcome = Patience::new(timeout)?.wait(py, |time| {
            let mut state = self.driven.enter_to_wait()?;
            let arrived = state.wait_arrived(RequestId::from_u64(id), beyond, time)?;
            let ends = arrived != Arrived::NotYet || self.driven.take_wake();
            Ok(ends.then_some(arrived))
        })?;
        Ok(match outcome {
            Some(Arrived::More(arrived)) => Some(arrived),
            _ => None,
        })
    }

    /// Like `wait`, but returns up to `max` completions that are there; an empty list after `timeout` seconds, or if
    /// `wake` was called.
    #[pyo3(signature = (max=256, timeout=None))]
    fn wait_batch(
        &self,
        py: Python<'_>,
        max: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Completion>> {
        let outcome = Patience::new(timeout)?.wait(py, |time| {
            let mut state = self.driven.enter_to_wait()?;
            let Some(first) = state.take(time)? else {
                return Ok(self.driven.take_wake().then(Vec::new));
            };
            let mut batch = vec![first];
            // The next call reports the end of the connection.
            batch.extend(state.take_ready(max.saturating_sub(1)).unwrap_or_default());
            Ok(Some(batch))
        })?;
        Ok(Completion::all(py, outcome.unwrap_or_default()))
    }

    /// Ends another thread's `wait`, or the next one if none is in progress.
    fn wake(&self) {
        self.driven.wake();
    }

    /// Sends completions to `queue` from now on, with `tag`. The program must still drive the connection with `wait`:
    /// in a thread without a timeout, or with a timeout of 0 when `fileno` is readable (or writable, if `wants_write`)
    /// or `next_timeout` is over. Calls that wait for their own request are then refused.
    #[pyo3(signature = (queue, tag=0))]
    fn set_completion_queue(
        &self,
        py: Python<'_>,
        queue: &Bound<'_, CompletionQueue>,
        tag: u64,
    ) -> PyResult<()> {
        let queue = queue.get().inner();
        self.driven.with(py, |state| {
            state.connection()?.set_completion_queue(queue, tag);
            Ok(())
        })?;
        self.driven.set_queued();
        Ok(())
    }

    /// Takes buffers of `pool` for messages that no posted receive matches, from now on and for the life of the
    /// connection. ValueError if it shares another pool.
    fn set_receive_pool(&self, py: Python<'_>, pool: &Bound<'_, ReceivePool>) -> PyResult<()> {
        let pool = pool.get().inner();
        self.driven
            .with(py, |state| state.connection()?.set_receive_pool(pool))
    }

    /// The socket's descriptor, for event loops: when it is readable, call `wait` with a timeout of 0. Do not read it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.driven
            .with(py, |state| Ok(state.connection()?.as_fd().as_raw_fd()))
    }

    /// Whether `wait` also has something to do when the socket is writable, because its send buffer was full.
    #[getter]
    fn wants_write(&self, py: Python<'_>) -> PyResult<bool> {
        self.driven
            .with(py, |state| Ok(state.connection()?.wants_write()))
    }

    /// Seconds until `wait` with a timeout of 0 must be called although nothing arrived. None if there is no such time.
    #[getter]
    fn next_timeout(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.driven.with(py, |state| {
            let next = state.connection()?.next_timeout();
            Ok(next.map(|it| it.as_secs_f64()))
        })
    }

    /// Waits until the peer has received all that was sent, then disconnects; Ctrl-C disconnects at once. Requests in
    /// flight end, and their buffers are free. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let given = self
            .driven
            .with(py, |state| Ok(state.give_up().map(Box::new)))?;
        given.map_or(Ok(()), |it| closing::close(py, *it))
    }

    /// Disconnects at once. Requests in flight end, and their buffers are free.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        if !self.driven.is_of_this_process() {
            // The connection is the parent's, and the exception being raised here is not replaced.
            return Ok(());
        }
        self.driven.with(py, |state| {
            drop(state.give_up());
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
