//! A worker in a thread of its own, and its handles.

use crate::account::Account;
use crate::address::{Address, pair};
use crate::aside::aside;
use crate::completion::{Completion, read_delivery};
use crate::connection::Connection;
use crate::errors;
use crate::exported::{self, ExportedRegion, Key};
use crate::fetch::FetchOp;
use crate::options::{self, Options};
use crate::pending::Pending;
use crate::pinned::{Use, pin, pin_source};
use crate::requests::{payload, pieces, place, work};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use zerolane::failure::{CloseReason, Reason, TransferError};
use zerolane::worker::WorkerHandle;

/// A completion, or the exception of the request that failed.
fn completed(py: Python<'_>, completion: zerolane::Completion) -> PyResult<Py<PyAny>> {
    Completion::new(py, completion)
        .succeeded(py)?
        .into_py_any(py)
}

fn opened(py: Python<'_>, completion: zerolane::Completion) -> PyResult<Py<PyAny>> {
    let error = match (completion.result, completion.region) {
        (Ok(_), Some(key)) => return Key::new(key).into_py_any(py),
        (Ok(_), None) => TransferError::Refused(Reason::Unknown),
        (Err(error), _) => error,
    };
    Err(errors::of_request(py, error))
}

fn key(py: Python<'_>, key: zerolane::RegionKey) -> PyResult<Py<PyAny>> {
    Key::new(key).into_py_any(py)
}

fn nothing(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

/// What Python has already: a number, a truth.
fn plain<T: for<'py> IntoPyObject<'py>>(py: Python<'_>, value: T) -> PyResult<Py<PyAny>> {
    value.into_py_any(py)
}

/// A worker that runs in a thread of its own, made by `Worker.spawn`. A context manager: leaving it sends what was
/// posted and closes all, or at once if an exception is on its way.
///
/// Its methods, and those of its handles, are for any thread, and return at once: what they return is to be waited
/// for, or awaited. The thread never needs the interpreter: peers are served, and exported memory is read and
/// written, whatever Python does.
#[pyclass(frozen, module = "zerolane")]
pub(crate) struct WorkerThread {
    /// None when it is over.
    thread: Mutex<Option<zerolane::worker::WorkerThread>>,
    handle: WorkerHandle,
}

impl WorkerThread {
    pub(crate) fn new(thread: zerolane::worker::WorkerThread) -> WorkerThread {
        WorkerThread {
            handle: (*thread).clone(),
            thread: Mutex::new(Some(thread)),
        }
    }

    fn take(&self) -> Option<zerolane::worker::WorkerThread> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.take()
    }
}

#[pymethods]
impl WorkerThread {
    /// Listens on `address`, "host:port" or a tuple of both; port 0 is any that is free. Gives an EndpointHandle.
    #[pyo3(signature = (address, options=None))]
    fn listen(
        &self,
        py: Python<'_>,
        address: Address,
        options: Option<&Bound<'_, Options>>,
    ) -> PyResult<Pending> {
        let options = options::read(options);
        let listening = self
            .handle
            .listen(address.first(py, options.lane)?, options);
        Ok(Pending::new(listening, |py, handle| {
            EndpointHandle(handle).into_py_any(py)
        }))
    }

    /// Connects. Of a name with several addresses it takes the first. Gives a ConnectionHandle.
    #[pyo3(signature = (address, options=None))]
    fn connect(
        &self,
        py: Python<'_>,
        address: Address,
        options: Option<&Bound<'_, Options>>,
    ) -> PyResult<Pending> {
        let options = options::read(options);
        let connecting = self
            .handle
            .connect(address.first(py, options.lane)?, &options);
        Ok(Pending::new(connecting, connected))
    }

    /// Takes over a connection, which is closed to others then. Gives a ConnectionHandle.
    fn adopt(&self, py: Python<'_>, connection: &Bound<'_, Connection>) -> PyResult<Pending> {
        let connection = connection.get().give_up(py)?;
        Ok(Pending::new(self.handle.adopt(connection), connected))
    }

    /// Sends what was posted, closes everything, and waits for the end. It waits as long as anything of what was posted
    /// comes further, and gives up one to two idle timeouts after the last of it did. A second call does nothing. Ctrl-C
    /// ends the wait: the worker goes on to its end.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(thread) = self.take() else {
            return Ok(());
        };
        aside(py, move || thread.stop())
    }

    /// Ends at once: peers are told, and what handles wait for is refused.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
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

fn connected(py: Python<'_>, handle: zerolane::worker::ConnectionHandle) -> PyResult<Py<PyAny>> {
    ConnectionHandle(Mutex::new(Some(handle))).into_py_any(py)
}

/// An endpoint of a worker in a thread of its own. It is closed when the last name of it is gone.
#[pyclass(frozen, module = "zerolane")]
pub(crate) struct EndpointHandle(zerolane::worker::EndpointHandle);

#[pymethods]
impl EndpointHandle {
    /// The address listened on: host and port.
    #[getter]
    fn local_addr(&self) -> (String, u16) {
        pair(self.0.local_addr())
    }

    /// The next connection: gives a ConnectionHandle. Those that are not asked for are served all the same: what the
    /// endpoint exports is theirs to use.
    fn accept(&self) -> Pending {
        Pending::new(self.0.accept(), connected)
    }

    /// Lets every client that connects from now on use `region` with `rights`, by `name`: exported once, for any
    /// number of peers. Revoking the region ends it for all. Gives None when it is done.
    fn export(
        &self,
        py: Python<'_>,
        name: &str,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        Ok(Pending::new(self.0.export(name, &region, rights), nothing))
    }

    fn __repr__(&self) -> String {
        format!("EndpointHandle('{}')", self.0.local_addr())
    }
}

/// A connection of a worker in a thread of its own, for any thread. When the last name of it is gone it is closed: what
/// was posted to be sent is sent, in the background.
///
/// Requests are begun in the order in which one thread asks for them; what finds no room waits. They give a
/// Completion, or raise why the request failed.
#[pyclass(frozen, module = "zerolane")]
pub(crate) struct ConnectionHandle(Mutex<Option<zerolane::worker::ConnectionHandle>>);

impl ConnectionHandle {
    fn handle(&self, py: Python<'_>) -> PyResult<zerolane::worker::ConnectionHandle> {
        let handle = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let gone = zerolane::Error::Closed(CloseReason::Local);
        handle.ok_or_else(|| errors::of(py, gone))
    }
}

#[pymethods]
impl ConnectionHandle {
    /// The peer's address when the connection was made: host and port.
    #[getter]
    fn peer_addr(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        Ok(pair(self.handle(py)?.peer_addr()))
    }

    /// The key that the peer proved to own; None if the connection is plain.
    #[getter]
    fn peer_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.handle(py)?.peer_key().map(|key| key.to_string()))
    }

    /// Sends the bytes of `buffer`, or of several in a list or tuple, as one message. `delivery`: see `Connection.send`.
    #[pyo3(signature = (buffer, *, delivery="interrupt", context=0))]
    fn send(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        delivery: &str,
        context: u64,
    ) -> PyResult<Pending> {
        let work = work(true, false, None, context).delivered(read_delivery(delivery)?);
        let memory = pin_source(buffer)?;
        let sending = self.handle(py)?.send_with(memory, work);
        Ok(Pending::outgoing(sending, completed))
    }

    /// Receives the next message into `buffer`: the completion's `memory` is what came. One that came for a receive
    /// that was given up is in the memory of that one.
    fn recv(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let region = pin(buffer, Use::Write)?;
        let receiving = self.handle(py)?.recv(region);
        Ok(Pending::incoming(receiving, completed))
    }

    /// Sends a message of at most 128 bytes, and a payload: a buffer, or several in a list or tuple.
    #[pyo3(signature = (control, payload=None))]
    fn send_message(
        &self,
        py: Python<'_>,
        control: &[u8],
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        let payload = self::payload(payload)?;
        let sending = self.handle(py)?.send_message(control, payload);
        Ok(Pending::outgoing(sending, completed))
    }

    /// Receives the next message: the completion has it as `control`, and the payload as `memory`.
    #[pyo3(signature = (payload=None))]
    fn recv_message(
        &self,
        py: Python<'_>,
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        let receiving = self.handle(py)?.recv_message(place(payload)?);
        Ok(Pending::incoming(receiving, completed))
    }

    /// Puts the bytes of `buffer`, or of several in a list or tuple, into the peer's memory: see `Connection.put`.
    #[pyo3(signature = (key, offset, buffer, *, immediate=None, fence=false, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        immediate: Option<u32>,
        fence: bool,
        context: u64,
    ) -> PyResult<Pending> {
        let (key, memory) = (key.get().region(), pin_source(buffer)?);
        let work = work(true, fence, immediate, context);
        let putting = self.handle(py)?.put(&key, offset, memory, work);
        Ok(Pending::outgoing(putting, completed))
    }

    /// Reads the peer's memory into the whole of `buffer`, which the completion has as `memory`.
    #[pyo3(signature = (key, offset, buffer, *, fence=false, context=0))]
    fn get(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        fence: bool,
        context: u64,
    ) -> PyResult<Pending> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Write)?);
        let work = work(true, fence, None, context);
        let getting = self.handle(py)?.get(&key, offset, region, work);
        Ok(Pending::incoming(getting, completed))
    }

    /// Puts several pieces, of an offset and a buffer each, 4096 at most, gathered here and scattered there.
    #[pyo3(signature = (key, pieces, *, immediate=None, fence=false, context=0))]
    fn put_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Vec<(u64, Bound<'_, PyAny>)>,
        immediate: Option<u32>,
        fence: bool,
        context: u64,
    ) -> PyResult<Pending> {
        let pieces = self::pieces(&pieces, Use::Read, |it| it.share().into())?;
        let work = work(true, fence, immediate, context);
        let putting = self
            .handle(py)?
            .put_vectored(&key.get().region(), pieces, work);
        Ok(Pending::outgoing(putting, completed))
    }

    /// Reads several pieces of the peer's memory, of an offset and a buffer each, 4096 at most, which the completion has as `pieces`.
    #[pyo3(signature = (key, pieces, *, fence=false, context=0))]
    fn get_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Vec<(u64, Bound<'_, PyAny>)>,
        fence: bool,
        context: u64,
    ) -> PyResult<Pending> {
        let pieces = self::pieces(&pieces, Use::Write, |it| it)?;
        let work = work(true, fence, None, context);
        let getting = self
            .handle(py)?
            .get_vectored(&key.get().region(), pieces, work);
        Ok(Pending::incoming(getting, completed))
    }

    /// Does an atomic operation on a word of the peer's memory: the completion's `value` is what it was before.
    fn fetch_op(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        op: &Bound<'_, FetchOp>,
    ) -> PyResult<Pending> {
        let key = key.get().region();
        let fetching = self.handle(py)?.fetch_op(&key, offset, op.get().0);
        Ok(Pending::outgoing(fetching, completed))
    }

    /// Asks the peer for the memory it exports as `name`, with `rights`: gives its Key.
    fn open_region(&self, py: Python<'_>, name: &str, rights: u8) -> PyResult<Pending> {
        let rights = exported::rights(rights)?;
        let opening = self.handle(py)?.open_region(name, rights);
        Ok(Pending::new(opening, opened))
    }

    /// Exports memory to the peer of this connection: gives the Key, which is for the peer.
    fn export(
        &self,
        py: Python<'_>,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        Ok(Pending::new(self.handle(py)?.export(&region, rights), key))
    }

    /// The same, and the peer may ask for it with `open_region` by `name`, at most 32 bytes of UTF-8.
    fn export_named(
        &self,
        py: Python<'_>,
        name: &str,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        let exporting = self.handle(py)?.export_named(name, &region, rights);
        Ok(Pending::new(exporting, key))
    }

    /// Takes memory back from the peer of this connection. Gives False if `key` names nothing exported here.
    fn revoke(&self, py: Python<'_>, key: &Bound<'_, Key>) -> PyResult<Pending> {
        let revoking = self.handle(py)?.revoke(&key.get().region());
        Ok(Pending::new(revoking, plain))
    }

    /// Takes all that is exported of `region` back from this peer alone, the endpoint's exports included. Gives False
    /// if there is none.
    fn revoke_region(
        &self,
        py: Python<'_>,
        region: &Bound<'_, ExportedRegion>,
    ) -> PyResult<Pending> {
        let region = region.get().region(py)?;
        let revoking = self.handle(py)?.revoke_region(&region);
        Ok(Pending::new(revoking, plain))
    }

    /// Gives the length of the message that the peer announced and no receive takes, when there is one. It is the
    /// peer's word: bound it before allocating that much.
    fn announced(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.announced(), plain))
    }

    /// Gives how many bytes at the start of what `request`, a Pending, receives or gets are verified and in place; they
    /// may be read. None if it is over, or receives nothing.
    fn arrived(&self, py: Python<'_>, request: &Bound<'_, Pending>) -> PyResult<Pending> {
        let id = request.get().id()?;
        Ok(Pending::new(self.handle(py)?.arrived(id), plain))
    }

    /// Gives how many bytes of `request`, a Pending, have arrived when there are more than `beyond`; None when it is
    /// over, or receives nothing.
    #[pyo3(signature = (request, beyond=0))]
    fn wait_arrived(
        &self,
        py: Python<'_>,
        request: &Bound<'_, Pending>,
        beyond: u64,
    ) -> PyResult<Pending> {
        let id = request.get().id()?;
        let more = self.handle(py)?.wait_arrived(id, beyond);
        Ok(Pending::new(more, plain))
    }

    /// Gives the number of the peer's next put that has one, also of those that came before the end of the connection.
    fn immediate(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.immediate(), plain))
    }

    /// Finishes sending behind what was asked for before, as `Connection.finish` does; gives None.
    fn finish(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.finish(), nothing))
    }

    /// What the connection did so far: gives an Account.
    fn account(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.account(), |py, account| {
            Account::from(account).into_py_any(py)
        }))
    }

    /// Gives the connection out of the worker's hands, for its caller to drive, or for another worker: one that accepts
    /// hands connections to others so, which answer from the same port. Gives a Connection; the handle is of no more use.
    /// Raises ValueError, and nothing happened, if requests are not over, or what came was not asked for.
    fn release(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(
            self.handle(py)?.release(),
            |py, connection| Connection::object(py, connection)?.into_py_any(py),
        ))
    }

    /// Sends what was posted, then disconnects; gives None at the end, or raises why something was not sent. It waits
    /// as long as anything of what was posted comes further, and gives up one to two idle timeouts after the last of it
    /// did. The handle is of no more use.
    fn close(&self, py: Python<'_>) -> PyResult<Pending> {
        let handle = self.handle(py)?;
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(Pending::new(handle.close(), nothing))
    }
}
