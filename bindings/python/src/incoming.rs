//! Shows requests for connections to a program that accepts or refuses them.

use crate::address::pair;
use crate::connection::Connection;
use crate::options;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use zerolane::security::PublicKey;

/// Makes Python's object for a worker's connection.
type Connected = fn(Python<'_>, zerolane::worker::ConnectionHandle) -> PyResult<Py<PyAny>>;

/// Where a request came to.
enum Request {
    OfEndpoint(Box<zerolane::Incoming>),
    OfWorker(zerolane::worker::IncomingHandle, Connected),
}

/// A client's request for a connection, from `incoming` of an Endpoint or an EndpointHandle with `Options(asks=True)`.
/// One that is dropped undecided is refused.
#[pyclass(frozen, generic, weakref, module = "zerolane")]
pub(crate) struct Incoming {
    /// `None` once decided.
    request: Mutex<Option<Request>>,
    data: Vec<u8>,
    peer: SocketAddr,
    peer_key: Option<PublicKey>,
}

impl Incoming {
    pub(crate) fn of_endpoint(it: zerolane::Incoming) -> Incoming {
        Incoming {
            data: it.data().to_vec(),
            peer: it.peer_addr(),
            peer_key: it.peer_key(),
            request: Mutex::new(Some(Request::OfEndpoint(Box::new(it)))),
        }
    }

    pub(crate) fn of_worker(
        it: zerolane::worker::IncomingHandle,
        connected: Connected,
    ) -> Incoming {
        Incoming {
            data: it.data().to_vec(),
            peer: it.peer_addr(),
            peer_key: it.peer_key(),
            request: Mutex::new(Some(Request::OfWorker(it, connected))),
        }
    }

    /// # Errors
    /// ValueError if it was decided.
    fn take(&self) -> PyResult<Request> {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = request.take();
        taken.ok_or_else(|| PyValueError::new_err("the request was accepted or refused already"))
    }
}

#[pymethods]
impl Incoming {
    /// The client's private data; empty if it gave none.
    #[getter]
    fn data(&self) -> &[u8] {
        &self.data
    }

    /// The client's address: host and port.
    #[getter]
    fn peer_addr(&self) -> (String, u16) {
        pair(self.peer)
    }

    /// The key that the client proved it owns; None if connections are plain.
    #[getter]
    fn peer_key(&self) -> Option<String> {
        self.peer_key.map(|key| key.to_string())
    }

    /// Accepts the request, and returns a Connection, or a ConnectionHandle of a worker's thread. The answer has
    /// `private_data`, or that of the endpoint's options if it is None.
    #[pyo3(signature = (private_data=None))]
    fn accept(&self, py: Python<'_>, private_data: Option<&[u8]>) -> PyResult<Py<PyAny>> {
        let data = options::private_data(private_data)?;
        match self.take()? {
            Request::OfEndpoint(request) => {
                let connection = py.detach(|| Box::new(request.accept(data)));
                Ok(Connection::object(py, *connection)?.into_any())
            }
            Request::OfWorker(request, connected) => connected(py, request.accept(data)),
        }
    }

    /// Refuses the request: the client's `connect` raises Rejected.
    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        let request = self.take()?;
        py.detach(|| match request {
            Request::OfEndpoint(request) => request.refuse(),
            Request::OfWorker(request, _) => request.refuse(),
        });
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("Incoming('{}')", self.peer)
    }
}
