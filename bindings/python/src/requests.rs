//! Posts requests to a connection, whether its caller or a worker drives it.

use crate::account::Account;
use crate::address::pair;
use crate::completion::read_delivery;
use crate::driven::Driven;
use crate::errors;
use crate::exported::{self, ExportedRegion, Key};
use crate::fetch::FetchOp;
use crate::path::{self, Path};
use crate::pieces::Given;
use crate::pinned::{Use, copied, pin, pin_source};
use crate::shared::Loop;
use crate::view::view;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use zerolane::failure::CloseReason;
use zerolane::memory::Memory;
use zerolane::request::{
    Get, Message, MessageInline, OpenRegion, Put, PutInline, Receive, ReceiveMessage, Transfer,
};
use zerolane::security::PublicKey;
use zerolane::worker::ConnectionId;
use zerolane::{Error, PathId, Region, RequestId};

/// The owner of the connection.
enum Place {
    /// Python, whose calls drive it.
    Own(Arc<Driven>),
    /// A worker.
    Worker(Arc<Loop>, ConnectionId),
}

/// Posts requests to a connection. `Worker.connection` returns one; a `Connection` is one too, and has calls that wait.
///
/// Each `post_...` returns the request's number, which its completion has as `id`. The completion also returns
/// `context`, a 64-bit number of the caller's. Without `signalled` a request completes only if it fails.
#[pyclass(frozen, subclass, weakref, module = "zerolane")]
pub(crate) struct Requests {
    place: Place,
    peer: SocketAddr,
    peer_key: Option<PublicKey>,
    peer_data: Vec<u8>,
}

impl Requests {
    /// Requests of a connection that its caller drives.
    pub(crate) fn own(connection: zerolane::Connection) -> (Requests, Arc<Driven>) {
        let (peer, peer_key) = (connection.peer_addr(), connection.peer_key());
        let peer_data = connection.peer_data().to_vec();
        let driven = Arc::new(Driven::new(connection));
        let requests = Requests {
            place: Place::Own(Arc::clone(&driven)),
            peer,
            peer_key,
            peer_data,
        };
        (requests, driven)
    }

    /// Requests of a worker's connection.
    pub(crate) fn of_worker(
        worker: &Arc<Loop>,
        id: ConnectionId,
        connection: &zerolane::Connection,
    ) -> Requests {
        Requests {
            peer: connection.peer_addr(),
            peer_key: connection.peer_key(),
            peer_data: connection.peer_data().to_vec(),
            place: Place::Worker(Arc::clone(worker), id),
        }
    }

    /// Runs a short call.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut zerolane::Connection) -> zerolane::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| match &self.place {
            Place::Own(driven) => body(driven.enter()?.connection()?),
            Place::Worker(worker, id) => {
                let mut worker = worker.enter()?;
                let connection = worker.as_mut().and_then(|it| it.connection(*id));
                body(connection.ok_or(Error::Closed(CloseReason::Local))?)
            }
        });
        done.map_err(|error| errors::of(py, error))
    }

    /// Posts a request. Its buffers belong to the caller again if it is refused.
    fn post<E: Into<Error>>(
        &self,
        py: Python<'_>,
        post: impl FnOnce(&mut zerolane::Connection) -> Result<RequestId, E> + Send,
    ) -> PyResult<u64> {
        let id = self.with(py, |connection| post(connection).map_err(Into::into))?;
        Ok(id.to_u64())
    }
}

/// Memory to send, if any.
pub(crate) fn payload(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Memory>> {
    object.map(pin_source).transpose()
}

/// Memory to receive into, if any.
pub(crate) fn place(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Region>> {
    object.map(|it| pin(it, Use::Write)).transpose()
}

/// A message with or without payload.
pub(crate) fn message<'a>(
    control: impl Into<Cow<'a, [u8]>>,
    payload: Option<Memory>,
) -> Message<'a> {
    let message = Message::new(control);
    match payload {
        Some(payload) => message.payload(payload),
        None => message,
    }
}

#[pymethods]
impl Requests {
    /// The peer's address: host and port.
    #[getter]
    fn peer_addr(&self) -> (String, u16) {
        pair(self.peer)
    }

    /// This end's current address; None while there is no route to the peer, and when the connection is over.
    #[getter]
    fn local_addr(&self, py: Python<'_>) -> Option<(String, u16)> {
        let local = self.with(py, |connection| Ok(connection.local_addr()));
        local.ok().flatten().map(pair)
    }

    /// The key that the peer proved it owns; None if the connection is plain.
    #[getter]
    fn peer_key(&self) -> Option<String> {
        self.peer_key.map(|key| key.to_string())
    }

    /// The peer's private data: of its request, or of its answer. Empty if there were none.
    #[getter]
    fn peer_data(&self) -> &[u8] {
        &self.peer_data
    }

    /// The number of requests in flight.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> usize {
        let count = self.with(py, |connection| Ok(connection.in_flight()));
        count.unwrap_or(0)
    }

    /// Posts the send of `buffer`. The buffer must not be changed, and cannot be resized, until the request is done. A
    /// list or tuple of buffers is sent as one message, without a copy that joins them; the completion has them in
    /// `pieces`. `delivery`: see `Connection.send`.
    #[pyo3(signature = (buffer, *, delivery="interrupt", signalled=true, context=0))]
    fn post_send(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        delivery: &str,
        signalled: bool,
        context: u64,
    ) -> PyResult<u64> {
        let delivery = read_delivery(delivery)?;
        let send = Transfer::new(pin_source(buffer)?).delivery(delivery);
        let send = send.signalled(signalled).context(context);
        self.post(py, |connection| connection.post(send))
    }

    /// Posts a receive into `buffer`: the n-th receive gets the peer's n-th message, if it fits. Receives complete when
    /// their messages do: after a lost datagram, a later one may complete first. The buffer's content is undefined, and
    /// it cannot be resized, until the request is done.
    #[pyo3(signature = (buffer, *, context=0))]
    fn post_recv(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, context: u64) -> PyResult<u64> {
        let receive = Receive::new(pin(buffer, Use::Write)?).context(context);
        self.post(py, |connection| connection.post(receive))
    }

    /// Posts a message of at most 128 bytes, with a payload: a buffer, or a list or tuple of buffers. With `inline` the
    /// payload is a buffer of at most 256 bytes, which are copied, so that it may change at once.
    #[pyo3(signature = (control, payload=None, *, inline=false, fence=false, signalled=true, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn post_message(
        &self,
        py: Python<'_>,
        control: &[u8],
        payload: Option<&Bound<'_, PyAny>>,
        inline: bool,
        fence: bool,
        signalled: bool,
        context: u64,
    ) -> PyResult<u64> {
        if let Some(payload) = payload.filter(|_| inline) {
            let message = MessageInline::new(control, copied(payload)?).fence(fence);
            let message = message.signalled(signalled).context(context);
            return self.post(py, |connection| connection.post(message));
        }
        let message = message(control, self::payload(payload)?);
        let message = message.fence(fence).signalled(signalled).context(context);
        self.post(py, |connection| connection.post(message))
    }

    /// Posts a receive of a message: its completion has the message in `control`, and the payload in `memory`.
    #[pyo3(signature = (payload=None, *, context=0))]
    fn post_message_recv(
        &self,
        py: Python<'_>,
        payload: Option<&Bound<'_, PyAny>>,
        context: u64,
    ) -> PyResult<u64> {
        let receive = ReceiveMessage::new().payload(place(payload)?);
        self.post(py, |connection| connection.post(receive.context(context)))
    }

    /// Sets whether the delivery that senders ask for counts: see `Connection.send`. Unless set, every completion ends
    /// a wait.
    fn honour_delivery(&self, py: Python<'_>, honours: bool) -> PyResult<()> {
        self.with(py, |connection| {
            connection.honour_delivery(honours);
            Ok(())
        })
    }

    /// Makes the completion of request `id` end a wait, whatever delivery its sender chose, also if it is already held
    /// back. False if there is no such request, or its completion was taken.
    fn notify(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.with(py, |connection| {
            Ok(connection.notify(RequestId::from_u64(id)))
        })
    }

    /// Finishes sending. Requests posted before are delivered; later sends and messages raise Finished, and so do the
    /// peer's receives that no message matches, now and later. The other direction stays open, and so do operations on
    /// remote memory. While messages wait for receives that the peer does not post, it may not learn of the finish.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, zerolane::Connection::finish)
    }

    /// Bytes at the start of the memory of receive or get `id` that are verified and in place; they may be read before
    /// the request completes. Bytes after them are undefined. None if no such request is in progress.
    fn arrived(&self, py: Python<'_>, id: u64) -> PyResult<Option<u64>> {
        self.with(py, |connection| {
            Ok(connection.arrived(RequestId::from_u64(id)))
        })
    }

    /// Cancels a request: it completes with the error Cancelled. False if it is already over.
    fn cancel(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.with(py, |connection| {
            Ok(connection.cancel(RequestId::from_u64(id)))
        })
    }

    /// Returns the connection's counters so far.
    fn account(&self, py: Python<'_>) -> PyResult<Account> {
        self.with(py, |connection| Ok(connection.account().into()))
    }

    /// Sets how many completions are kept for later calls: while there are many, the peer waits with messages and
    /// immediates. No effect when the connection is over. For `aio`; a `Connection` does this itself.
    fn _set_kept(&self, py: Python<'_>, kept: usize) {
        // The peer of a connection that is over does not wait.
        let _ = self.with(py, |connection| {
            connection.set_unprocessed(kept);
            Ok(())
        });
    }

    /// All bytes of `buffer`, in memory order, whatever its shape and elements. For `aio`.
    #[staticmethod]
    fn _bytes_of<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        view(buffer, usize::MAX)
    }

    /// Returns the current paths.
    fn paths(&self, py: Python<'_>) -> PyResult<Vec<Path>> {
        let paths = self.with(py, |connection| Ok(connection.paths()))?;
        Ok(paths.into_iter().filter_map(Path::of).collect())
    }

    /// Adds a path, "LOCAL=PEER", as in `Options(links=...)`. False if the connection cannot have several: its lane is
    /// neither UDP nor raw Ethernet, or neither `paths` nor `links` asked for several. `paths()` shows its state.
    fn add_path(&self, py: Python<'_>, link: &str) -> PyResult<bool> {
        let link = path::addresses(link)?;
        self.with(py, |connection| Ok(connection.add_path(link)))
    }

    /// Stops using path `index`, which must not be 0. Its payload in flight is sent over other paths.
    fn remove_path(&self, py: Python<'_>, index: usize) -> PyResult<()> {
        let path = u8::try_from(index).ok().and_then(PathId::new);
        if path == Some(PathId::FIRST) {
            return Err(PyValueError::new_err("the first path cannot be removed"));
        }
        self.with(py, |connection| {
            if let Some(path) = path {
                connection.remove_path(path);
            }
            Ok(())
        })
    }

    /// Exports memory to the connection's peer; give it the key.
    fn export(
        &self,
        py: Python<'_>,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Key> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        self.with(py, |connection| {
            connection.export(&region, rights).map(Key::new)
        })
    }

    /// Like `export`; the peer can also ask for the memory with `open_region` by `name`, 1 to 32 bytes of UTF-8
    /// without NUL.
    fn export_named(
        &self,
        py: Python<'_>,
        name: &str,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Key> {
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        self.with(py, |connection| {
            connection.export_named(name, &region, rights).map(Key::new)
        })
    }

    /// Like `export`, under `number`, below 2**24, of the program's own: the peer makes the key with `Key.numbered` and
    /// need not be told it. ValueError if the number is taken. After revocation it is free; a request that the peer
    /// posted before then meets the memory that has the number when it arrives.
    fn export_numbered(
        &self,
        py: Python<'_>,
        number: u32,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
    ) -> PyResult<Key> {
        let number = exported::number(number)?;
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        self.with(py, |connection| {
            connection
                .export_numbered(number, &region, rights)
                .map(Key::new)
        })
    }

    /// Ends an export to this connection's peer, at once. False if `key` names no export of this connection.
    fn revoke(&self, py: Python<'_>, key: &Bound<'_, Key>) -> PyResult<bool> {
        let key = key.get().region();
        self.with(py, |connection| Ok(connection.revoke(&key)))
    }

    /// Ends all exports of `region` to this connection's peer, under any key and name, including those of
    /// `Worker.export` and `EndpointHandle.export`. Other peers keep theirs. False if there is none.
    fn revoke_region(&self, py: Python<'_>, region: &Bound<'_, ExportedRegion>) -> PyResult<bool> {
        let region = region.get().region(py)?;
        self.with(py, |connection| Ok(connection.revoke_region(&region)))
    }

    /// Asks the peer for the memory that it exports as `name`, with `rights`: the completion has its key in `region`.
    /// It fails with UnknownRegion if there is none, and Denied if it lacks one of the rights.
    #[pyo3(signature = (name, rights, *, context=0))]
    fn post_open_region(
        &self,
        py: Python<'_>,
        name: &str,
        rights: u8,
        context: u64,
    ) -> PyResult<u64> {
        let rights = exported::rights(rights)?;
        let open = OpenRegion::new(name, rights).context(context);
        self.post(py, |connection| connection.post(open))
    }

    /// Posts a put: see `Connection.put`. With `fence` it starts when all earlier requests of the connection are
    /// complete. With `inline`, at most 256 bytes of one buffer are copied, so that it may change at once.
    #[pyo3(signature = (key, offset, buffer, *, immediate=None, inline=false, fence=false, signalled=true, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn post_put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        immediate: Option<u32>,
        inline: bool,
        fence: bool,
        signalled: bool,
        context: u64,
    ) -> PyResult<u64> {
        let key = key.get().region();
        if inline {
            let put = PutInline::new(&key, offset, copied(buffer)?).immediate(immediate);
            let put = put.fence(fence).signalled(signalled).context(context);
            return self.post(py, |connection| connection.post(put));
        }
        let memory = pin_source(buffer)?;
        let put = Put::new(&key, offset, memory).immediate(immediate);
        let put = put.fence(fence).signalled(signalled).context(context);
        self.post(py, |connection| connection.post(put))
    }

    /// Posts one put of any number of pieces, each an offset and a buffer, or `Pieces` of one buffer: gathered here and
    /// scattered there. From 4096 on, pieces wait for others to complete; until all are posted, later operations on
    /// remote memory and messages raise QueueFull.
    #[pyo3(signature = (key, pieces, *, immediate=None, fence=false, signalled=true, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn post_put_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Given<'_>,
        immediate: Option<u32>,
        fence: bool,
        signalled: bool,
        context: u64,
    ) -> PyResult<u64> {
        let put = pieces.put(key)?.immediate(immediate);
        let put = put.fence(fence).signalled(signalled).context(context);
        self.post(py, |connection| connection.post(put))
    }

    /// Posts a get: see `Connection.get`. The buffer's content is undefined until it is done.
    #[pyo3(signature = (key, offset, buffer, *, fence=false, context=0))]
    fn post_get(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        fence: bool,
        context: u64,
    ) -> PyResult<u64> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Write)?);
        let get = Get::new(&key, offset, region).fence(fence).context(context);
        self.post(py, |connection| connection.post(get))
    }

    /// Posts one get of pieces, gathered there and scattered here: otherwise like `post_put_vectored`.
    #[pyo3(signature = (key, pieces, *, fence=false, context=0))]
    fn post_get_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Given<'_>,
        fence: bool,
        context: u64,
    ) -> PyResult<u64> {
        let get = pieces.get(key)?.fence(fence).context(context);
        self.post(py, |connection| connection.post(get))
    }

    /// Posts an atomic operation on the word at `offset`; the `value` of its completion is the word's previous value.
    #[pyo3(signature = (key, offset, op, *, fence=false, signalled=true, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn post_fetch_op(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        op: &Bound<'_, FetchOp>,
        fence: bool,
        signalled: bool,
        context: u64,
    ) -> PyResult<u64> {
        let (key, op) = (key.get().region(), op.get().0);
        let fetch = op.on(&key, offset).fence(fence);
        let fetch = fetch.signalled(signalled).context(context);
        self.post(py, |connection| connection.post(fetch))
    }

    fn __repr__(&self) -> String {
        format!("Requests('{}')", self.peer)
    }
}
