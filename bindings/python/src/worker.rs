//! Advances many connections in one loop, which Python calls.

use crate::address::{Address, pair};
use crate::background::{ConnectionHandle, EndpointHandle, WorkerThread};
use crate::completion::Completion;
use crate::connection::Connection;
use crate::dropped;
use crate::endpoint::Endpoint;
use crate::errors;
use crate::exported::{self, ExportedRegion};
use crate::options::{self, Options, seconds};
use crate::patience::Patience;
use crate::pool::ReceivePool;
use crate::requests::Requests;
use crate::shared::{Loop, Shared};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerolane::failure::CloseReason;
use zerolane::worker::{ConnectionId, EndpointId};
use zerolane::{Error, Waited};

/// The error of a worker that is over.
fn gone() -> Error {
    Error::Closed(CloseReason::Local)
}

/// An event of a worker.
#[pyclass(frozen, get_all, weakref, module = "zerolane")]
pub(crate) struct Event {
    /// "accepted": an endpoint accepted a connection. "requested": a client asks for one, if the endpoint's options
    /// have `asks`; `connection` has its `peer_data`, and `accept_request` or `refuse_request` answers. "connected": a
    /// connection of `connect` is established. "completed": a request is over, or an immediate arrived. "announced":
    /// the peer announced a message that no posted receive matches. "datagrams": some of the peer wait. "closed": a connection is over; its last event.
    /// "endpoint_failed": an endpoint is closed.
    kind: &'static str,
    /// The connection's number; None for "endpoint_failed".
    connection: Option<u64>,
    /// "accepted", "requested", "endpoint_failed": the endpoint's number.
    endpoint: Option<u64>,
    /// "completed": the completion, with its memory.
    completion: Option<Py<Completion>>,
    /// "announced": the length in bytes.
    length: Option<u64>,
    /// "closed", "endpoint_failed": the reason.
    error: Option<Py<PyAny>>,
}

impl Event {
    fn new(py: Python<'_>, event: zerolane::worker::Event) -> PyResult<Event> {
        use zerolane::worker::Event as Of;
        let nothing = Event {
            kind: "other",
            connection: None,
            endpoint: None,
            completion: None,
            length: None,
            error: None,
        };
        let why = |error| Some(errors::of(py, error).into_value(py).into_any());
        Ok(match event {
            Of::Accepted {
                endpoint,
                connection,
            } => Event {
                kind: "accepted",
                connection: Some(connection.to_u64()),
                endpoint: Some(endpoint.to_u64()),
                ..nothing
            },
            Of::Requested {
                endpoint,
                connection,
            } => Event {
                kind: "requested",
                connection: Some(connection.to_u64()),
                endpoint: Some(endpoint.to_u64()),
                ..nothing
            },
            Of::EndpointFailed { endpoint, error } => Event {
                kind: "endpoint_failed",
                endpoint: Some(endpoint.to_u64()),
                error: why(error),
                ..nothing
            },
            Of::Connected { connection } => Event {
                kind: "connected",
                connection: Some(connection.to_u64()),
                ..nothing
            },
            Of::Completed {
                connection,
                completion,
            } => Event {
                kind: "completed",
                connection: Some(connection.to_u64()),
                completion: Some(Py::new(py, Completion::new(py, completion))?),
                ..nothing
            },
            Of::Announced { connection, length } => Event {
                kind: "announced",
                connection: Some(connection.to_u64()),
                length: Some(length),
                ..nothing
            },
            Of::Datagrams { connection } => Event {
                kind: "datagrams",
                connection: Some(connection.to_u64()),
                ..nothing
            },
            Of::Closed { connection, reason } => Event {
                kind: "closed",
                connection: Some(connection.to_u64()),
                error: why(reason),
                ..nothing
            },
            _ => nothing,
        })
    }
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        let names = [("connection", self.connection), ("endpoint", self.endpoint)];
        let names = names
            .iter()
            .filter_map(|(name, number)| number.map(|it| format!(", {name}={it}")));
        format!("Event('{}'{})", self.kind, names.collect::<String>())
    }
}

/// An endpoint of a worker.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct Listener {
    local: SocketAddr,
    key: Option<zerolane::security::PublicKey>,
}

#[pymethods]
impl Listener {
    /// The address listened on: host and port.
    #[getter]
    fn local_addr(&self) -> (String, u16) {
        pair(self.local)
    }

    /// The key by which clients know this end; None if connections are plain.
    #[getter]
    fn public_key(&self) -> Option<String> {
        self.key.map(|key| key.to_string())
    }

    fn __repr__(&self) -> String {
        format!("Listener('{}')", self.local)
    }
}

/// Owns endpoints and connections, and advances all of them when it is called; `events` returns what happened. As a
/// context manager it completes posted sends and closes everything on exit, or ends at once on an exception.
///
/// Endpoints and connections are numbers here, never reused. Connections of a worker that is not called make no
/// progress, and their peers take this end for dead after the idle timeout: `spawn` runs it in a thread. After a fork
/// it belongs to the parent, with all its connections: in the child its methods raise Closed, and `abort` does nothing.
/// One that is dropped without an end is aborted, with a ResourceWarning.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct Worker {
    shared: Arc<Loop>,
    /// Whether `wake` was called.
    woken: AtomicBool,
}

impl Worker {
    /// Runs a short call.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut zerolane::worker::Worker) -> zerolane::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| body(self.shared.enter()?.as_mut().ok_or_else(gone)?))
            .map_err(|error| errors::of(py, error))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.shared.peek().is_some_and(|it| it.is_some()) {
            dropped::warn(
                "unclosed Worker: its connections disconnect at once. Stop it, abort it, or use it in a with statement",
            );
        }
    }
}

#[pymethods]
impl Worker {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Worker> {
        let worker = zerolane::worker::Worker::new().map_err(|error| errors::of(py, error))?;
        let waker = worker.waker();
        Ok(Worker {
            shared: Arc::new(Shared::new(Some(worker), waker)),
            woken: AtomicBool::new(false),
        })
    }

    /// Sets how many seconds `wait` polls before it sleeps: 50 us unless set. The time adapts to how often polling
    /// finds something.
    fn set_spin(&self, py: Python<'_>, spin: f64) -> PyResult<()> {
        let spin = seconds(spin, "spin")?;
        self.with(py, |worker| {
            worker.set_spin(spin);
            Ok(())
        })
    }

    /// Listens on `address`, "host:port" or a tuple of both; port 0 is any free port. Returns the endpoint's number.
    /// Each accepted connection is an event.
    #[pyo3(signature = (address, options=None))]
    fn listen(
        &self,
        py: Python<'_>,
        address: Address,
        options: Option<&Bound<'_, Options>>,
    ) -> PyResult<u64> {
        let options = options::read(options);
        let on = address.found(py, options.lane.choice)?;
        self.with(py, |worker| Ok(worker.listen(on, options)?.to_u64()))
    }

    /// Takes over an endpoint, whose other users find it closed. Returns its number.
    fn listen_on(&self, py: Python<'_>, endpoint: &Bound<'_, Endpoint>) -> PyResult<u64> {
        let endpoint = endpoint.get().give_up(py)?;
        let endpoint = endpoint.ok_or_else(|| PyValueError::new_err("the endpoint is closed"))?;
        let endpoint = Box::new(endpoint);
        self.with(py, |worker| Ok(worker.listen_on(*endpoint)?.to_u64()))
    }

    /// Begins to connect, and returns the connection's number at once. An event reports the result; requests posted
    /// before that wait. Tries the addresses of a name in order; `connection` before the end of that stays with the one
    /// tried then.
    #[pyo3(signature = (address, options=None))]
    fn connect(
        &self,
        py: Python<'_>,
        address: Address,
        options: Option<&Bound<'_, Options>>,
    ) -> PyResult<u64> {
        let options = options::read(options);
        let to = address.found(py, options.lane.choice)?;
        self.with(py, |worker| Ok(worker.connect(to, &options)?.to_u64()))
    }

    /// Takes over a connection, whose other users find it closed. Returns its number.
    fn adopt(&self, py: Python<'_>, connection: &Bound<'_, Connection>) -> PyResult<u64> {
        let connection = Box::new(connection.get().give_up(py)?);
        self.with(py, |worker| Ok(worker.adopt(*connection)?.to_u64()))
    }

    /// Takes a connection out of the worker, so that its caller can drive it. None if it is not a connection of this
    /// worker, or is not connected yet. Its events that were not taken stay here.
    fn release(&self, py: Python<'_>, connection: u64) -> PyResult<Option<Py<Connection>>> {
        let id = ConnectionId::from_u64(connection);
        let released = self.with(py, |worker| Ok(worker.release(id).map(Box::new)))?;
        released.map(|it| Connection::object(py, *it)).transpose()
    }

    /// Returns a connection to post requests to. None if it is not a connection of this worker, or is over.
    fn connection(&self, py: Python<'_>, connection: u64) -> PyResult<Option<Requests>> {
        let id = ConnectionId::from_u64(connection);
        self.with(py, |worker| {
            let found = worker.connection(id);
            Ok(found.map(|it| Requests::of_worker(&self.shared, id, it)))
        })
    }

    /// Returns an endpoint. None if it is not an endpoint of this worker, or is closed.
    fn endpoint(&self, py: Python<'_>, endpoint: u64) -> PyResult<Option<Listener>> {
        let id = EndpointId::from_u64(endpoint);
        self.with(py, |worker| {
            let found = worker.endpoint(id);
            Ok(found.map(|it| Listener {
                local: it.local_addr(),
                key: it.public_key(),
            }))
        })
    }

    /// Makes a handle of a connection, for any thread, also after `spawn`. The connection has no more events: what
    /// posted receives bring goes to the handle, also if its event was not taken yet. None if it is not a connection of
    /// this worker, is not connected yet, is over, or has a handle already.
    fn connection_handle(
        &self,
        py: Python<'_>,
        connection: u64,
    ) -> PyResult<Option<ConnectionHandle>> {
        let id = ConnectionId::from_u64(connection);
        let made = self.with(py, |worker| Ok(worker.connection_handle(id)))?;
        Ok(made.map(ConnectionHandle::new))
    }

    /// Makes a handle of an endpoint, for any thread, also after `spawn`: it gets the connections accepted from now on,
    /// and those whose events were not taken yet. None if it is not an endpoint of this worker, is closed, or has a
    /// handle already.
    fn endpoint_handle(&self, py: Python<'_>, endpoint: u64) -> PyResult<Option<EndpointHandle>> {
        let id = EndpointId::from_u64(endpoint);
        let made = self.with(py, |worker| Ok(worker.endpoint_handle(id)))?;
        Ok(made.map(EndpointHandle::new))
    }

    /// Lets every client of `endpoint` that connects from now on use `region` by `name`, with `rights`: exported once,
    /// for any number of peers. Revoking the region ends it for all.
    fn export(
        &self,
        py: Python<'_>,
        endpoint: u64,
        name: &str,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<()> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        let id = EndpointId::from_u64(endpoint);
        self.with(py, |worker| worker.export(id, name, &region, rights))
    }

    /// Lets every peer of this worker use `region` with `rights`, under `number`, below 2**24: on all present
    /// connections, and on all that it accepts, makes or adopts later. The peers make the key with `Key.numbered` and
    /// need not ask. ValueError if the number is taken, by the worker or on one of its connections; QueueFull if one of
    /// them has no room: then none has the export.
    fn export_numbered(
        &self,
        py: Python<'_>,
        number: u32,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<()> {
        let number = exported::number(number)?;
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        self.with(py, |worker| worker.export_numbered(number, &region, rights))
    }

    /// Ends `export_numbered` on all connections of this worker, at once. False if it exports nothing under `number`.
    fn revoke_number(&self, py: Python<'_>, number: u32) -> PyResult<bool> {
        let number = exported::number(number)?;
        self.with(py, |worker| Ok(worker.revoke_number(number)))
    }

    /// Takes buffers of `pool` for messages that no posted receive matches, on all present connections and on all that
    /// this worker accepts, makes or adopts later. ValueError if it shares another pool.
    fn share_receives(&self, py: Python<'_>, pool: &Bound<'_, ReceivePool>) -> PyResult<()> {
        let pool = pool.get().inner();
        self.with(py, |worker| worker.share_receives(pool))
    }

    /// Stops listening. Accepted connections stay open. False if it was already closed.
    fn close_endpoint(&self, py: Python<'_>, endpoint: u64) -> PyResult<bool> {
        let id = EndpointId::from_u64(endpoint);
        self.with(py, |worker| Ok(worker.close_endpoint(id)))
    }

    /// Accepts the request of a "requested" event. The answer has `private_data`, or that of the endpoint's options if
    /// it is None. False if there is no such request: it was decided, or the client gave up.
    #[pyo3(signature = (connection, private_data=None))]
    fn accept_request(
        &self,
        py: Python<'_>,
        connection: u64,
        private_data: Option<&[u8]>,
    ) -> PyResult<bool> {
        let data = options::private_data(private_data)?;
        let id = ConnectionId::from_u64(connection);
        self.with(py, |worker| Ok(worker.accept_request(id, data)))
    }

    /// Refuses such a request: the client's `connect` raises Rejected, and a "closed" event follows. False if there is
    /// no such request.
    fn refuse_request(&self, py: Python<'_>, connection: u64) -> PyResult<bool> {
        let id = ConnectionId::from_u64(connection);
        self.with(py, |worker| Ok(worker.refuse_request(id)))
    }

    /// Begins to close a connection: completes posted sends, then tells the peer; a "closed" event follows. False if it
    /// is already over.
    fn close(&self, py: Python<'_>, connection: u64) -> PyResult<bool> {
        let id = ConnectionId::from_u64(connection);
        self.with(py, |worker| Ok(worker.close(id)))
    }

    /// The number of connections that are not over.
    #[getter]
    fn connections(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |worker| Ok(worker.connections()))
    }

    /// Does a bounded amount of work. True if there may be more to do at once.
    fn progress(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, zerolane::worker::Worker::progress)
    }

    /// Makes progress until there are events (True), or until `wake` was called or `timeout` seconds passed (False).
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let outcome = Patience::new(timeout)?.wait(py, |time| {
            let there = {
                let mut worker = self.shared.enter_to_wait()?;
                worker.as_mut().ok_or_else(gone)?.wait(Some(time))? == Waited::Got(())
            };
            let woken = !there && self.woken.swap(false, Ordering::SeqCst);
            Ok((there || woken).then_some(there))
        })?;
        Ok(outcome.unwrap_or(false))
    }

    /// Ends another thread's `wait`, or the next one if none is in progress.
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.shared.wake();
    }

    /// Returns up to `max` events that are there, without making progress.
    #[pyo3(signature = (max=1024))]
    fn events(&self, py: Python<'_>, max: usize) -> PyResult<Vec<Event>> {
        let events = self.with(py, |worker| {
            let mut events = Vec::new();
            worker.take_events(&mut events, max);
            Ok(events)
        })?;
        events.into_iter().map(|it| Event::new(py, it)).collect()
    }

    /// Call this before the program sleeps on `fileno`, which becomes readable when something arrives, a timer expires
    /// or another thread has posted. False if there is something to do already: do not sleep, call `progress`.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, zerolane::worker::Worker::arm)
    }

    /// The descriptor for event loops: when it is readable after `arm`, call `progress`. Do not read it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |worker| Ok(worker.as_fd().as_raw_fd()))
    }

    /// Seconds that `progress` has nothing to do unless the descriptor becomes readable; None if no timer runs. After
    /// `arm` the descriptor covers timers too.
    #[getter]
    fn next_timeout(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |worker| {
            Ok(worker.next_timeout().map(|it| it.as_secs_f64()))
        })
    }

    /// Runs the worker in a thread of its own from now on: it serves peers and exported memory whatever Python does.
    /// This object is then unusable. Make handles of the connections and endpoints made before (`connection_handle`,
    /// `endpoint_handle`): events of those without one are dropped.
    fn spawn(&self, py: Python<'_>) -> PyResult<WorkerThread> {
        let worker = py.detach(|| Ok(Box::new(self.shared.enter()?.take().ok_or_else(gone)?)));
        let worker = worker.map_err(|error| errors::of(py, error))?;
        let thread = py.detach(|| worker.spawn());
        let thread = thread.map_err(|error| errors::of(py, error))?;
        Ok(WorkerThread::new(thread))
    }

    /// Completes posted sends, then closes everything. Gives up one to two idle timeouts after posted requests stopped
    /// making progress. Events meanwhile are dropped.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let there = py.detach(|| {
            let mut worker = self.shared.enter()?;
            Ok(worker.as_mut().map(|it| it.handle().stop()).is_some())
        });
        if !there.map_err(|error| errors::of(py, error))? {
            return Ok(());
        }
        let stopped = Patience::of(None).wait(py, |time| {
            let mut worker = self.shared.enter_to_wait()?;
            let worker = worker.as_mut().ok_or_else(gone)?;
            // The first call starts requests of the handle.
            worker.wait(Some(time.min(STEP)))?;
            while worker.next_event().is_some() {}
            Ok((worker.connections() == 0).then_some(()))
        });
        self.abort(py);
        stopped.map(|_| ())
    }

    /// Ends at once: peers are told, requests in flight end, and their buffers are free.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| {
            // In a child of fork, the parent continues with it.
            let worker = self.shared.enter().map(|mut it| it.take());
            drop(worker);
        });
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
            self.stop(py)
        } else {
            self.abort(py);
            Ok(())
        }
    }
}

/// How long a stopping worker waits before it checks whether it is over, because the end of a connection with handles
/// is no event.
const STEP: Duration = Duration::from_millis(5);
