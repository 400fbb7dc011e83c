//! Runs a worker in a thread of its own, and gives handles to use it.

use crate::account::Account;
use crate::address::{Address, pair};
use crate::aside::aside;
use crate::completion::{Completion, read_delivery};
use crate::connection::Connection;
use crate::dropped;
use crate::errors;
use crate::exported::{self, ExportedRegion, Key};
use crate::fetch::FetchOp;
use crate::incoming::Incoming;
use crate::options::{self, Options};
use crate::pending::Pending;
use crate::pieces::Given;
use crate::pinned::{Use, copied, pin, pin_source};
use crate::pool::ReceivePool;
use crate::requests::{message, payload, place};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};
use zerolane::Process;
use zerolane::failure::{CloseReason, Reason, TransferError};
use zerolane::request::{Get, MessageInline, OpenRegion, Put, PutInline, ReceiveMessage, Transfer};
use zerolane::worker::WorkerHandle;

/// The completion, or the exception of a failed request.
fn completed(py: Python<'_>, completion: zerolane::Completion) -> PyResult<Py<PyAny>> {
    Completion::new(py, completion)
        .succeeded(py)?
        .into_py_any(py)
}

fn opened(py: Python<'_>, completion: zerolane::Completion) -> PyResult<Py<PyAny>> {
    let error = match (completion.result, completion.key()) {
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

/// Converts a plain value such as a number or a boolean.
fn plain<T: for<'py> IntoPyObject<'py>>(py: Python<'_>, value: T) -> PyResult<Py<PyAny>> {
    value.into_py_any(py)
}

/// A worker in a thread of its own, from `Worker.spawn` or `background`. As a context manager it completes posted sends
/// and closes everything on exit, or ends at once on an exception.
///
/// Any thread may call its methods and those of its handles. They return at once with a Pending to wait for or await.
/// The thread never needs the interpreter: it serves peers and exported memory whatever Python does. One that is
/// dropped without an end is aborted, with a ResourceWarning.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct WorkerThread {
    /// `None` once the worker is over, and for the process's worker.
    thread: Mutex<Option<zerolane::worker::WorkerThread>>,
    handle: WorkerHandle,
    process: Process,
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        let thread = self.thread.get_mut();
        let is_open = thread.unwrap_or_else(PoisonError::into_inner).is_some();
        if is_open && self.process.is_current() {
            dropped::warn(
                "unclosed WorkerThread: its connections disconnect at once. Stop it, abort it, or use it in a with \
                 statement",
            );
        }
    }
}

impl WorkerThread {
    pub(crate) fn new(thread: zerolane::worker::WorkerThread) -> WorkerThread {
        WorkerThread {
            handle: (*thread).clone(),
            thread: Mutex::new(Some(thread)),
            process: Process::current(),
        }
    }

    fn take(&self) -> Option<zerolane::worker::WorkerThread> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.take()
    }
}

/// The worker that all libraries of this process share, in a thread that starts with the first call and lives until the
/// process ends: `stop`, `abort` and leaving a `with` block do nothing to it. A child of a fork gets another with its
/// own first call. At the end of the process peers are not told: close connections first.
#[pyfunction]
pub(crate) fn background(py: Python<'_>) -> PyResult<WorkerThread> {
    let handle = py.detach(zerolane::worker::background);
    Ok(WorkerThread {
        handle: handle.map_err(|error| errors::of(py, error))?,
        thread: Mutex::new(None),
        process: Process::current(),
    })
}

#[pymethods]
impl WorkerThread {
    /// Listens on `address`, "host:port" or a tuple of both; port 0 is any free port. Returns a Pending of an
    /// EndpointHandle.
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
            .listen(address.found(py, options.lane.choice)?, options);
        Ok(Pending::new(listening, |py, handle| {
            EndpointHandle::new(handle).into_py_any(py)
        }))
    }

    /// Connects to `address`, and to the first address of a name that answers. Returns a Pending of a ConnectionHandle.
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
            .connect(address.found(py, options.lane.choice)?, &options);
        Ok(Pending::new(connecting, connected))
    }

    /// Takes over a connection, whose other users find it closed. Returns a Pending of a ConnectionHandle.
    fn adopt(&self, py: Python<'_>, connection: &Bound<'_, Connection>) -> PyResult<Pending> {
        let connection = connection.get().give_up(py)?;
        Ok(Pending::new(self.handle.adopt(connection), connected))
    }

    /// Lets every peer of this worker use `region` under `number`: see `Worker.export_numbered`. Returns a Pending of
    /// None.
    fn export_numbered(
        &self,
        py: Python<'_>,
        number: u32,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let number = exported::number(number)?;
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        let exporting = self.handle.export_numbered(number, &region, rights);
        Ok(Pending::new(exporting, nothing).that_goes_on())
    }

    /// Ends `export_numbered` on all connections of this worker. Returns a Pending: False if it exports nothing under
    /// `number`.
    fn revoke_number(&self, number: u32) -> PyResult<Pending> {
        let revoking = self.handle.revoke_number(exported::number(number)?);
        Ok(Pending::new(revoking, plain).that_goes_on())
    }

    /// Takes buffers of `pool` for messages: see `Worker.share_receives`. Returns a Pending of None.
    /// `ConnectionHandle.message` returns the messages.
    fn share_receives(&self, pool: &Bound<'_, ReceivePool>) -> Pending {
        let sharing = self.handle.share_receives(pool.get().inner());
        Pending::new(sharing, nothing).that_goes_on()
    }

    /// Completes posted sends, closes everything, and waits for the end. Gives up one to two idle timeouts after posted
    /// requests stopped making progress. A second call does nothing. Ctrl-C ends the wait; the worker continues to its
    /// end.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(thread) = self.take() else {
            return Ok(());
        };
        aside(py, move || thread.stop())
    }

    /// Ends at once: peers are told, and requests of handles are refused.
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
    ConnectionHandle::new(handle).into_py_any(py)
}

/// An endpoint of a worker's thread. It closes when its last reference is gone.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct EndpointHandle(zerolane::worker::EndpointHandle);

impl EndpointHandle {
    pub(crate) fn new(handle: zerolane::worker::EndpointHandle) -> EndpointHandle {
        EndpointHandle(handle)
    }
}

#[pymethods]
impl EndpointHandle {
    /// The address listened on: host and port.
    #[getter]
    fn local_addr(&self) -> (String, u16) {
        pair(self.0.local_addr())
    }

    /// Returns a Pending of the next connection, a ConnectionHandle. Connections that were not asked for are served
    /// too: they may use what the endpoint exports.
    fn accept(&self) -> Pending {
        Pending::new(self.0.accept(), connected)
    }

    /// Returns a Pending of the next request for a connection, an Incoming to accept or refuse, if the options have
    /// `asks`.
    fn incoming(&self) -> Pending {
        Pending::new(self.0.incoming(), |py, it| {
            Incoming::of_worker(it, connected).into_py_any(py)
        })
    }

    /// Lets every client that connects from now on use `region` by `name`, with `rights`: exported once, for any number
    /// of peers. Revoking the region ends it for all. Returns a Pending of None.
    fn export(
        &self,
        py: Python<'_>,
        name: &str,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        let exporting = self.0.export(name, &region, rights);
        Ok(Pending::new(exporting, nothing).that_goes_on())
    }

    fn __repr__(&self) -> String {
        format!("EndpointHandle('{}')", self.0.local_addr())
    }
}

/// A connection of a worker's thread, for use by any thread. When its last reference is gone it closes in the
/// background, once posted sends are completed.
///
/// Requests of one thread start in its order; if there is no room they wait. They return a Pending of a Completion,
/// which raises the request's error.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct ConnectionHandle(Mutex<Option<zerolane::worker::ConnectionHandle>>);

impl ConnectionHandle {
    pub(crate) fn new(handle: zerolane::worker::ConnectionHandle) -> ConnectionHandle {
        ConnectionHandle(Mutex::new(Some(handle)))
    }

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
    /// The peer's address at the time when the connection was made: host and port.
    #[getter]
    fn peer_addr(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        Ok(pair(self.handle(py)?.peer_addr()))
    }

    /// The key that the peer proved it owns; None if the connection is plain.
    #[getter]
    fn peer_key(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.handle(py)?.peer_key().map(|key| key.to_string()))
    }

    /// The peer's private data: of its request, or of its answer. Empty if there were none.
    #[getter]
    fn peer_data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.handle(py)?.peer_data()))
    }

    /// Sends the bytes of `buffer`, or of a list or tuple of buffers, as one message. `delivery`: see
    /// `Connection.send`.
    #[pyo3(signature = (buffer, *, delivery="interrupt", context=0))]
    fn send(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        delivery: &str,
        context: u64,
    ) -> PyResult<Pending> {
        let delivery = read_delivery(delivery)?;
        let send = Transfer::new(pin_source(buffer)?).delivery(delivery);
        let sending = self.handle(py)?.post(send.context(context));
        Ok(Pending::outgoing(sending, completed))
    }

    /// Receives the next message into `buffer`; the completion's `memory` is the received part. A message that came for
    /// a receive that was given up is in the memory of that receive.
    fn recv(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let region = pin(buffer, Use::Write)?;
        let receiving = self.handle(py)?.recv(region);
        Ok(Pending::incoming(receiving, completed))
    }

    /// Sends a message of at most 128 bytes, with a payload: a buffer, or a list or tuple of buffers. `inline`: see
    /// `Requests.post_message`.
    #[pyo3(signature = (control, payload=None, *, inline=false))]
    fn send_message(
        &self,
        py: Python<'_>,
        control: &[u8],
        payload: Option<&Bound<'_, PyAny>>,
        inline: bool,
    ) -> PyResult<Pending> {
        let (control, handle) = (control.to_vec(), self.handle(py)?);
        let sending = match payload.filter(|_| inline) {
            Some(payload) => handle.post(MessageInline::new(control, copied(payload)?)),
            None => handle.post(message(control, self::payload(payload)?)),
        };
        Ok(Pending::outgoing(sending, completed))
    }

    /// Receives the next message: the completion has it in `control`, and the payload in `memory`.
    #[pyo3(signature = (payload=None))]
    fn recv_message(
        &self,
        py: Python<'_>,
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        let receive = ReceiveMessage::new().payload(place(payload)?);
        let receiving = self.handle(py)?.post(receive);
        Ok(Pending::incoming(receiving, completed))
    }

    /// Puts the bytes of `buffer`, or of a list or tuple of buffers, into the peer's memory: see `Connection.put`.
    /// `inline`: see `Requests.post_put`.
    #[pyo3(signature = (key, offset, buffer, *, immediate=None, inline=false, fence=false, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        immediate: Option<u32>,
        inline: bool,
        fence: bool,
        context: u64,
    ) -> PyResult<Pending> {
        let (key, handle) = (key.get().region(), self.handle(py)?);
        let putting = if inline {
            let put = PutInline::new(&key, offset, copied(buffer)?).immediate(immediate);
            handle.post(put.fence(fence).context(context))
        } else {
            let put = Put::new(&key, offset, pin_source(buffer)?).immediate(immediate);
            handle.post(put.fence(fence).context(context))
        };
        Ok(Pending::outgoing(putting, completed))
    }

    /// Reads the peer's memory into the whole of `buffer`; the completion has it in `memory`.
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
        let get = Get::new(&key, offset, region).fence(fence).context(context);
        let getting = self.handle(py)?.post(get);
        Ok(Pending::incoming(getting, completed))
    }

    /// Puts pieces as one request: see `Requests.post_put_vectored`.
    #[pyo3(signature = (key, pieces, *, immediate=None, fence=false, context=0))]
    fn put_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Given<'_>,
        immediate: Option<u32>,
        fence: bool,
        context: u64,
    ) -> PyResult<Pending> {
        let put = pieces.put(key)?.immediate(immediate);
        let putting = self.handle(py)?.post(put.fence(fence).context(context));
        Ok(Pending::outgoing(putting, completed))
    }

    /// Gets pieces as one request: see `Requests.post_get_vectored`. The completion has them in `pieces`.
    #[pyo3(signature = (key, pieces, *, fence=false, context=0))]
    fn get_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Given<'_>,
        fence: bool,
        context: u64,
    ) -> PyResult<Pending> {
        let get = pieces.get(key)?.fence(fence).context(context);
        let getting = self.handle(py)?.post(get);
        Ok(Pending::incoming(getting, completed))
    }

    /// Does an atomic operation on a word of the peer's memory; the completion's `value` is the word's previous value.
    fn fetch_op(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        op: &Bound<'_, FetchOp>,
    ) -> PyResult<Pending> {
        let key = key.get().region();
        let fetching = self.handle(py)?.post(op.get().0.on(&key, offset));
        Ok(Pending::outgoing(fetching, completed))
    }

    /// Asks the peer for the memory that it exports as `name`, with `rights`. Returns a Pending of its Key.
    fn open_region(&self, py: Python<'_>, name: &str, rights: u8) -> PyResult<Pending> {
        let rights = exported::rights(rights)?;
        let open = OpenRegion::new(name.to_owned(), rights);
        let opening = self.handle(py)?.post(open);
        Ok(Pending::new(opening, opened))
    }

    /// Exports memory to the connection's peer. Returns a Pending of the Key to give to the peer.
    fn export(
        &self,
        py: Python<'_>,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        let exporting = self.handle(py)?.export(&region, rights);
        Ok(Pending::new(exporting, key).that_goes_on())
    }

    /// Like `export`; the peer can also ask for the memory with `open_region` by `name`, 1 to 32 bytes of UTF-8
    /// without NUL.
    fn export_named(
        &self,
        py: Python<'_>,
        name: &str,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        let exporting = self.handle(py)?.export_named(name, &region, rights);
        Ok(Pending::new(exporting, key).that_goes_on())
    }

    /// Like `export`, under `number`: see `Requests.export_numbered`.
    fn export_numbered(
        &self,
        py: Python<'_>,
        number: u32,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Pending> {
        let number = exported::number(number)?;
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        let exporting = self.handle(py)?.export_numbered(number, &region, rights);
        Ok(Pending::new(exporting, key).that_goes_on())
    }

    /// Ends an export to this peer. Returns a Pending: False if `key` names no export of this connection.
    fn revoke(&self, py: Python<'_>, key: &Bound<'_, Key>) -> PyResult<Pending> {
        let revoking = self.handle(py)?.revoke(&key.get().region());
        Ok(Pending::new(revoking, plain).that_goes_on())
    }

    /// Ends all exports of `region` to this peer, including those of the endpoint. Returns a Pending: False if there is
    /// none.
    fn revoke_region(
        &self,
        py: Python<'_>,
        region: &Bound<'_, ExportedRegion>,
    ) -> PyResult<Pending> {
        let region = region.get().region(py)?;
        let revoking = self.handle(py)?.revoke_region(&region);
        Ok(Pending::new(revoking, plain).that_goes_on())
    }

    /// Returns a Pending of the length of the next announced message that no receive matches. The peer chooses the
    /// length: bound it before you allocate that much.
    fn announced(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.announced(), plain))
    }

    /// Returns a Pending of how many bytes at the start of `request`, a Pending, are verified and in place; they may be
    /// read. None if it is over, or receives nothing.
    fn arrived(&self, py: Python<'_>, request: &Bound<'_, Pending>) -> PyResult<Pending> {
        let id = request.get().id()?;
        Ok(Pending::new(self.handle(py)?.arrived(id), plain))
    }

    /// Returns a Pending that ends when more than `beyond` bytes of `request`, a Pending, have arrived, with how many.
    /// None when it is over, or receives nothing.
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

    /// Returns a Pending of a Completion of the peer's next put that has a number: `value`, the memory's key in `region`,
    /// and the bytes of the put in `length`. Numbers that came before the end of the connection can be taken after it.
    fn immediate(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.immediate(), |py, it| {
            Completion::of_immediate(&it).into_py_any(py)
        }))
    }

    /// Takes buffers of `pool` for messages: see `Connection.set_receive_pool`. Returns a Pending of None.
    fn set_receive_pool(&self, py: Python<'_>, pool: &Bound<'_, ReceivePool>) -> PyResult<Pending> {
        let sharing = self.handle(py)?.set_receive_pool(pool.get().inner());
        Ok(Pending::new(sharing, nothing).that_goes_on())
    }

    /// Returns a Pending of the next message that took a buffer of a ReceivePool, a Completion.
    fn message(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.message(), completed))
    }

    /// Finishes sending after all requests made before: see `Connection.finish`. Returns a Pending of None.
    fn finish(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.finish(), nothing).that_goes_on())
    }

    /// Returns a Pending of the connection's counters so far, an Account.
    fn account(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.account(), |py, account| {
            Account::from(account).into_py_any(py)
        }))
    }

    /// Takes the connection out of the worker, so that its caller can drive it or give it to another worker, for
    /// example from an accepting worker to others that answer on the same port. Returns a Pending of a Connection; the
    /// handle is then unusable. Raises ValueError, and changes nothing, if requests are not over, or received data or
    /// numbers were not taken.
    fn release(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(
            self.handle(py)?.release(),
            |py, connection| Connection::object(py, connection)?.into_py_any(py),
        ))
    }

    /// Returns a Pending of the reason, an exception that is returned and not raised, when the connection is over,
    /// whichever end closed it: PeerDead, Closed and so on. An idle connection over a network notices a dead peer only
    /// with `Options(keep_alive=True)`.
    fn closed(&self, py: Python<'_>) -> PyResult<Pending> {
        Ok(Pending::new(self.handle(py)?.closed(), |py, reason| {
            errors::of(py, reason).into_value(py).into_py_any(py)
        }))
    }

    /// Calls `function` once, with the reason as `closed` has it, when the connection is over, even without handles; soon
    /// if it is over already. The worker thread calls it, or this one if the worker has ended: it must not block, because
    /// all connections of the worker wait meanwhile. `sys.unraisablehook` gets what it raises. It is not called in a child
    /// of fork, nor once the interpreter ends.
    fn on_closed(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        if !function.bind(py).is_callable() {
            return Err(PyTypeError::new_err("function must be callable"));
        }
        self.handle(py)?.on_closed(move |reason| {
            Python::try_attach(|py| {
                let reason = errors::of(py, reason).into_value(py);
                if let Err(error) = function.call1(py, (reason,)) {
                    error.write_unraisable(py, Some(function.bind(py)));
                }
            });
        });
        Ok(())
    }

    /// Completes posted sends, then disconnects. Returns a Pending of None, which raises if something was not sent.
    /// Gives up one to two idle timeouts after posted requests stopped making progress. The handle is then unusable.
    fn close(&self, py: Python<'_>) -> PyResult<Pending> {
        let handle = self.handle(py)?;
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(Pending::new(handle.close(), nothing).that_goes_on())
    }
}
