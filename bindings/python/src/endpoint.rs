//! Listens for connections and accepts them, with waits that Ctrl-C interrupts.

use crate::address::{Address, pair};
use crate::connection::Connection;
use crate::dropped;
use crate::errors;
use crate::incoming::Incoming;
use crate::options::{self, Options};
use crate::patience::Patience;
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerolane::{Error, Process};

/// A listening UDP port. As a context manager it stops listening on exit. One that is dropped unclosed stops listening
/// too, with a ResourceWarning.
///
/// A thread of it, which never needs the interpreter, accepts up to 64 connections before the program does
/// (`Options(backlog=...)`): `connect` then returns, and what the peer asks waits until the program accepts.
///
/// `address` is "host:port" or a tuple of both; port 0 is any free port.
///
/// After a fork it belongs to the parent, and only the parent accepts: a server of several processes makes an endpoint
/// in each, on a port of its own.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct Endpoint {
    local: SocketAddr,
    key: Option<zerolane::security::PublicKey>,
    /// `None` once closed.
    listener: Mutex<Option<zerolane::Endpoint>>,
    process: Process,
}

impl Endpoint {
    /// Takes the endpoint for a worker. `None` if it is closed.
    pub(crate) fn give_up(&self, py: Python<'_>) -> PyResult<Option<zerolane::Endpoint>> {
        let given = py.detach(|| Ok(self.enter()?.take().map(Box::new)));
        let given = given.map_err(|error| errors::of(py, error))?;
        Ok(given.map(|it| *it))
    }

    /// To be called without the interpreter: another thread may hold the lock while it accepts.
    ///
    /// # Errors
    /// This process is a child of the one that listens, and does not have that thread.
    fn enter(&self) -> zerolane::Result<MutexGuard<'_, Option<zerolane::Endpoint>>> {
        match self.process.is_current() {
            true => Ok(self.listener.lock().unwrap_or_else(PoisonError::into_inner)),
            false => Err(Error::Forked),
        }
    }

    /// `Some(None)`: it is closed.
    #[expect(clippy::option_option, reason = "nothing yet, and nothing ever")]
    fn accept_within(
        &self,
        time: Duration,
    ) -> zerolane::Result<Option<Option<zerolane::Connection>>> {
        match &mut *self.enter()? {
            None => Ok(Some(None)),
            Some(listener) => Ok(listener.accept(Some(time))?.map(Some)),
        }
    }

    /// `Some(None)`: it is closed.
    #[expect(clippy::option_option, reason = "nothing yet, and nothing ever")]
    fn incoming_within(
        &self,
        time: Duration,
    ) -> zerolane::Result<Option<Option<zerolane::Incoming>>> {
        match &mut *self.enter()? {
            None => Ok(Some(None)),
            Some(listener) => Ok(listener.incoming(Some(time))?.map(Some)),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let listener = self.listener.get_mut();
        let is_open = listener.unwrap_or_else(PoisonError::into_inner).is_some();
        if is_open && self.process.is_current() {
            dropped::warn(&format!(
                "unclosed Endpoint at {}: it stops listening. Close it, or use it in a with statement",
                self.local
            ));
        }
    }
}

#[pymethods]
impl Endpoint {
    #[new]
    #[pyo3(signature = (address, options=None))]
    fn new(
        py: Python<'_>,
        address: Address,
        options: Option<&Bound<'_, Options>>,
    ) -> PyResult<Endpoint> {
        let options = options::read(options);
        let endpoint = py.detach(|| {
            let on = address.resolve(options.lane.choice)?;
            zerolane::Endpoint::bind(&on[..], options)
        });
        let endpoint = endpoint.map_err(|error| errors::of(py, error))?;
        Ok(Endpoint {
            local: endpoint.local_addr(),
            key: endpoint.public_key(),
            listener: Mutex::new(Some(endpoint)),
            process: Process::current(),
        })
    }

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

    /// The next connection. Raises TimeoutError if none comes within `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<Connection>> {
        let accepted = Patience::new(timeout)?.wait(py, |time| self.accept_within(time))?;
        match accepted {
            Some(Some(connection)) => Connection::object(py, connection),
            Some(None) => Err(PyValueError::new_err("the endpoint is closed")),
            None => Err(PyTimeoutError::new_err("no connection came in time")),
        }
    }

    /// The next request for a connection, an Incoming to accept or refuse, if the options have `asks`. Raises
    /// TimeoutError if none comes within `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn incoming(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Incoming> {
        let incoming = Patience::new(timeout)?.wait(py, |time| self.incoming_within(time))?;
        match incoming {
            Some(Some(incoming)) => Ok(Incoming::of_endpoint(incoming)),
            Some(None) => Err(PyValueError::new_err("the endpoint is closed")),
            None => Err(PyTimeoutError::new_err("no request came in time")),
        }
    }

    /// Stops listening. Accepted connections stay open.
    fn close(&self, py: Python<'_>) {
        // In a child of fork, the parent continues to listen.
        let taken = py.detach(|| self.enter().map(|mut it| it.take()));
        drop(taken);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("Endpoint('{}')", self.local)
    }
}
