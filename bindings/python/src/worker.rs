//! One loop for many connections, called by its user.

use crate::address::{Address, pair};
use crate::background::WorkerThread;
use crate::completion::Completion;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::errors;
use crate::exported::{self, ExportedRegion};
use crate::options::{self, Options, seconds};
use crate::patience::Patience;
use crate::requests::Requests;
use crate::shared::{Loop, Shared};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zerolane::Error;
use zerolane::failure::CloseReason;
use zerolane::worker::{ConnectionId, EndpointId};

/// A worker that is gone.
fn gone() -> Error {
    Error::Closed(CloseReason::Local)
}

/// What happened to what a worker owns.
#[pyclass(frozen, get_all, module = "zerolane")]
pub(crate) struct Event {
    /// "accepted": an endpoint has a new connection. "connected": what `connect` began stands. "completed": a request
    /// is over, or an immediate came. "announced": the peer has a message that no posted receive takes. "closed": a
    /// connection is over, and this its last event. "endpoint_failed": an endpoint is closed.
    kind: &'static str,
    /// The number of the connection; None for "endpoint_failed".
    connection: Option<u64>,
    /// "accepted", "endpoint_failed": the number of the endpoint.
    endpoint: Option<u64>,
    /// "completed": how, and the memory.
    completion: Option<Py<Completion>>,
    /// "announced": bytes.
    length: Option<u64>,
    /// "closed", "endpoint_failed": why.
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

/// An endpoint of a worker: where it listens.
#[pyclass(frozen, module = "zerolane")]
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

/// One loop for many connections: it owns endpoints and connections, and moves all of them when it is called. What
/// happens to them are its events. A context manager: leaving it sends what was posted and closes all, or at once if an
/// exception is on its way.
///
/// After a fork it belongs to the parent, with all its connections: in the child its methods raise Closed, and `abort` does
/// nothing. Endpoints and connections are numbers here, which are not used again. Connections whose worker is not called make no
/// progress, and their peers take this end for dead after the idle timeout: `spawn` runs it in a thread.
#[pyclass(frozen, module = "zerolane")]
pub(crate) struct Worker {
    shared: Arc<Loop>,
    /// `wake` was called.
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

    /// Sets how long `wait` looks for more before it sleeps, seconds: 50 us unless set. The time adapts to the success
    /// of looking.
    fn set_spin(&self, py: Python<'_>, spin: f64) -> PyResult<()> {
        let spin = seconds(spin, "spin")?;
        self.with(py, |worker| {
            worker.set_spin(spin);
            Ok(())
        })
    }

    /// Listens on `address`, "host:port" or a tuple of both; port 0 is any that is free. Returns the endpoint's number.
    /// Each connection it accepts is an event.
    #[pyo3(signature = (address, options=None))]
    fn listen(
        &self,
        py: Python<'_>,
        address: Address,
        options: Option<&Bound<'_, Options>>,
    ) -> PyResult<u64> {
        let options = options::read(options);
        let on = address.first(py, options.lane)?;
        self.with(py, |worker| Ok(worker.listen(on, options)?.to_u64()))
    }

    /// Takes over an endpoint, which is closed to others then. Returns its number.
    fn listen_on(&self, py: Python<'_>, endpoint: &Bound<'_, Endpoint>) -> PyResult<u64> {
        let endpoint = endpoint.get().give_up(py)?;
        let endpoint = endpoint.ok_or_else(|| PyValueError::new_err("the endpoint is closed"))?;
        let endpoint = Box::new(endpoint);
        self.with(py, |worker| Ok(worker.listen_on(*endpoint)?.to_u64()))
    }

    /// Begins to connect, and returns the connection's number at once. An event tells what came of it; what is posted
    /// before waits. Of a name with several addresses it takes the first.
    #[pyo3(signature = (address, options=None))]
    fn connect(
        &self,
        py: Python<'_>,
        address: Address,
        options: Option<&Bound<'_, Options>>,
    ) -> PyResult<u64> {
        let options = options::read(options);
        let to = address.first(py, options.lane)?;
        self.with(py, |worker| Ok(worker.connect(to, &options)?.to_u64()))
    }

    /// Takes over a connection, which is closed to others then. Returns its number.
    fn adopt(&self, py: Python<'_>, connection: &Bound<'_, Connection>) -> PyResult<u64> {
        let connection = Box::new(connection.get().give_up(py)?);
        self.with(py, |worker| Ok(worker.adopt(*connection)?.to_u64()))
    }

    /// Gives a connection out of its hands, for its caller to drive. None if it is none of this worker's, or is not
    /// connected yet. Its events that were not taken stay here.
    fn release(&self, py: Python<'_>, connection: u64) -> PyResult<Option<Py<Connection>>> {
        let id = ConnectionId::from_u64(connection);
        let released = self.with(py, |worker| Ok(worker.release(id).map(Box::new)))?;
        released.map(|it| Connection::object(py, *it)).transpose()
    }

    /// A connection, to be posted to. None if it is none of this worker's, or is over.
    fn connection(&self, py: Python<'_>, connection: u64) -> PyResult<Option<Requests>> {
        let id = ConnectionId::from_u64(connection);
        self.with(py, |worker| {
            let found = worker.connection(id);
            Ok(found.map(|it| Requests::of_worker(&self.shared, id, it)))
        })
    }

    /// An endpoint. None if it is none of this worker's, or is closed.
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

    /// Lets every client of `endpoint` that connects from now on use `region` with `rights`, by `name`: exported once,
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

    /// Stops listening. Connections that were accepted go on. False if it was closed already.
    fn close_endpoint(&self, py: Python<'_>, endpoint: u64) -> PyResult<bool> {
        let id = EndpointId::from_u64(endpoint);
        self.with(py, |worker| Ok(worker.close_endpoint(id)))
    }

    /// Begins to close a connection: what was posted to be sent is sent, then the peer is told, and an event says so.
    /// False if it is over already.
    fn close(&self, py: Python<'_>, connection: u64) -> PyResult<bool> {
        let id = ConnectionId::from_u64(connection);
        self.with(py, |worker| Ok(worker.close(id)))
    }

    /// How many connections are not over.
    #[getter]
    fn connections(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |worker| Ok(worker.connections()))
    }

    /// Moves what can be moved, a bounded amount of work. True if there may be more to do at once.
    fn progress(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, zerolane::worker::Worker::progress)
    }

    /// Makes progress until there are events (True), or `wake` was called or `timeout` seconds are over (False).
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let outcome = Patience::new(timeout)?.wait(py, |time| {
            let there = {
                let mut worker = self.shared.enter_to_wait()?;
                worker.as_mut().ok_or_else(gone)?.wait(Some(time))?
            };
            let woken = !there && self.woken.swap(false, Ordering::SeqCst);
            Ok((there || woken).then_some(there))
        })?;
        Ok(outcome.unwrap_or(false))
    }

    /// Ends a `wait` of another thread, or the next one if none is in progress.
    fn wake(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.shared.wake();
    }

    /// Up to `max` events that are there, in one call. It makes no progress.
    #[pyo3(signature = (max=1024))]
    fn events(&self, py: Python<'_>, max: usize) -> PyResult<Vec<Event>> {
        let events = self.with(py, |worker| {
            let mut events = Vec::new();
            worker.take_events(&mut events, max);
            Ok(events)
        })?;
        events.into_iter().map(|it| Event::new(py, it)).collect()
    }

    /// To be called before the program sleeps on `fileno`, which becomes readable when something arrives, a timer
    /// expires or another thread has posted. False if there is something to do already: then call `progress`, and do
    /// not sleep.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, zerolane::worker::Worker::arm)
    }

    /// The descriptor for event loops: when it is readable after `arm`, `progress`. Do not read it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |worker| Ok(worker.as_fd().as_raw_fd()))
    }

    /// Seconds that `progress` has nothing to do unless the descriptor becomes readable, which after `arm` tells of
    /// that too. None if no timer runs.
    #[getter]
    fn next_timeout(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.with(py, |worker| {
            Ok(worker.next_timeout().map(|it| it.as_secs_f64()))
        })
    }

    /// Runs in a thread of its own from now on: peers are served whatever Python does, exported memory included. This
    /// object is of no more use. Connections and endpoints made before have no handle: their events are dropped.
    fn spawn(&self, py: Python<'_>) -> PyResult<WorkerThread> {
        let worker = py.detach(|| Ok(Box::new(self.shared.enter()?.take().ok_or_else(gone)?)));
        let worker = worker.map_err(|error| errors::of(py, error))?;
        let thread = py.detach(|| worker.spawn());
        let thread = thread.map_err(|error| errors::of(py, error))?;
        Ok(WorkerThread::new(thread))
    }

    /// Sends what was posted, then closes everything. It waits as long as anything of what was posted comes further, and
    /// gives up one to two idle timeouts after the last of it did. Events that come of it are dropped.
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
            // The first call takes what was asked for by the handle.
            worker.wait(Some(time.min(STEP)))?;
            while worker.next_event().is_some() {}
            Ok((worker.connections() == 0).then_some(()))
        });
        self.abort(py);
        stopped.map(|_| ())
    }

    /// Ends at once: peers are told, and requests that are not done end; their buffers are free.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| {
            // In a child of fork the parent goes on with it.
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

/// How long a stopping worker waits before it looks whether it is over: the end of a connection that has handles is
/// no event.
const STEP: Duration = Duration::from_millis(5);
