//! What is posted to a connection, whichever way it is driven.

use crate::account::Account;
use crate::address::pair;
use crate::completion::read_delivery;
use crate::driven::Driven;
use crate::errors;
use crate::exported::{self, ExportedRegion, Key};
use crate::fetch::FetchOp;
use crate::path::{self, Path};
use crate::pinned::{Use, pin, pin_source};
use crate::shared::Loop;
use crate::view::view;
use pyo3::exceptions::{PyDeprecationWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::net::SocketAddr;
use std::sync::Arc;
use zerolane::failure::CloseReason;
use zerolane::memory::Memory;
use zerolane::security::PublicKey;
use zerolane::worker::ConnectionId;
use zerolane::{Error, Region, TransferId, Work};

/// Where the connection is.
enum Place {
    /// Python's own, driven by its calls.
    Own(Arc<Driven>),
    /// A worker's.
    Worker(Arc<Loop>, ConnectionId),
}

/// The requests of a connection: all that is posted to it. `Worker.connection` returns one; a `Connection` is one,
/// and has calls that wait besides.
///
/// Each `post_...` returns the request's number, by which its completion is known; `context`, a number of 64 bits of
/// the program's own, comes back in the completion too. Without `signalled` a request has a completion only if it
/// fails.
#[pyclass(frozen, subclass, module = "zerolane")]
pub(crate) struct Requests {
    place: Place,
    peer: SocketAddr,
    peer_key: Option<PublicKey>,
}

impl Requests {
    /// Of a connection that its caller drives.
    pub(crate) fn own(
        driven: Arc<Driven>,
        peer: SocketAddr,
        peer_key: Option<PublicKey>,
    ) -> Requests {
        Requests {
            place: Place::Own(driven),
            peer,
            peer_key,
        }
    }

    /// Of a connection of a worker.
    pub(crate) fn of_worker(
        worker: &Arc<Loop>,
        id: ConnectionId,
        connection: &zerolane::Connection,
    ) -> Requests {
        Requests {
            peer: connection.peer_addr(),
            peer_key: connection.peer_key(),
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

    /// Posts a request. Its buffers are the caller's again if it is refused.
    fn post<E: Into<Error>>(
        &self,
        py: Python<'_>,
        post: impl FnOnce(&mut zerolane::Connection) -> Result<TransferId, E> + Send,
    ) -> PyResult<TransferId> {
        self.with(py, |connection| post(connection).map_err(Into::into))
    }
}

/// Memory to be sent, if there is some.
pub(crate) fn payload(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Memory>> {
    object.map(pin_source).transpose()
}

/// Memory to be received into, if there is some.
pub(crate) fn place(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Region>> {
    object.map(|it| pin(it, Use::Write)).transpose()
}

/// Pieces of an offset and a buffer each, and what `of` makes of the buffers' memory.
pub(crate) fn pieces<M>(
    pieces: &[(u64, Bound<'_, PyAny>)],
    using: Use,
    of: fn(Region) -> M,
) -> PyResult<Vec<(u64, M)>> {
    let piece = |(offset, buffer): &(u64, Bound<'_, PyAny>)| Ok((*offset, of(pin(buffer, using)?)));
    pieces.iter().map(piece).collect()
}

/// How a request on the peer's memory is to be done.
pub(crate) fn work(signalled: bool, fence: bool, immediate: Option<u32>, context: u64) -> Work {
    Work {
        signalled,
        fence,
        immediate,
        context,
        ..Work::default()
    }
}

#[pymethods]
impl Requests {
    /// The peer's address: host and port.
    #[getter]
    fn peer_addr(&self) -> (String, u16) {
        pair(self.peer)
    }

    /// This end's address at present; None while there is no way to the peer, and when the connection is over.
    #[getter]
    fn local_addr(&self, py: Python<'_>) -> Option<(String, u16)> {
        let local = self.with(py, |connection| Ok(connection.local_addr()));
        local.ok().flatten().map(pair)
    }

    /// The key that the peer proved to own; None if the connection is plain.
    #[getter]
    fn peer_key(&self) -> Option<String> {
        self.peer_key.map(|key| key.to_string())
    }

    /// Requests posted and not done.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> usize {
        let count = self.with(py, |connection| Ok(connection.in_flight()));
        count.unwrap_or(0)
    }

    /// Posts the send of `buffer`. The buffer must not be changed, and cannot be resized, until the request is
    /// done. A list or tuple of buffers is sent as one message, one behind the other, without a copy that joins them;
    /// the completion has them as `pieces`. `delivery`: see `Connection.send`.
    #[pyo3(signature = (buffer, *, delivery="interrupt", signalled=true, context=0))]
    fn post_send(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        delivery: &str,
        signalled: bool,
        context: u64,
    ) -> PyResult<u32> {
        let work = work(signalled, false, None, context).delivered(read_delivery(delivery)?);
        let memory = pin_source(buffer)?;
        self.post(py, |connection| connection.post_send_with(memory, work))
    }

    /// Posts a receive into `buffer`: the n-th posted gets the n-th message the peer sends, if it
    /// fits. Requests are done as their messages are: where a datagram was lost, a later one may be done
    /// first. The buffer's content is undefined, and it cannot be resized, until the request is done.
    #[pyo3(signature = (buffer, *, context=0))]
    fn post_recv(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, context: u64) -> PyResult<u32> {
        let region = pin(buffer, Use::Write)?;
        self.post(py, |connection| connection.post_recv_with(region, context))
    }

    /// Posts a message of at most 128 bytes, and a payload: a buffer, or several in a list or tuple.
    #[pyo3(signature = (control, payload=None, *, fence=false, signalled=true, context=0))]
    fn post_message(
        &self,
        py: Python<'_>,
        control: &[u8],
        payload: Option<&Bound<'_, PyAny>>,
        fence: bool,
        signalled: bool,
        context: u64,
    ) -> PyResult<u32> {
        let payload = self::payload(payload)?;
        let work = work(signalled, fence, None, context);
        self.post(py, |connection| {
            connection.post_message(control, payload, work)
        })
    }

    /// Posts a receive of a message: its completion has the message as `control`, and the payload as `memory`.
    #[pyo3(signature = (payload=None, *, context=0))]
    fn post_message_recv(
        &self,
        py: Python<'_>,
        payload: Option<&Bound<'_, PyAny>>,
        context: u64,
    ) -> PyResult<u32> {
        let payload = place(payload)?;
        self.post(py, |connection| {
            connection.post_message_recv_with(payload, context)
        })
    }

    /// Asks to be told of the end of request `id`, however its sender wants it delivered: it ends a wait, also if
    /// it is over and held back. False if there is no such request, or its completion was taken.
    fn notify(&self, py: Python<'_>, id: u32) -> PyResult<bool> {
        self.with(py, |connection| Ok(connection.notify(id)))
    }

    /// Finishes sending: what was posted is delivered; sends and messages after it raise Finished, and so do the
    /// peer's receives that none of it meets, now and later. The other direction goes on, and so does all that names
    /// memory. While messages wait for receives that the peer does not post, it may not learn of it.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, zerolane::Connection::finish)
    }

    /// Bytes at the start of what request `id` receives or gets that are verified and in place, long before all of
    /// it is; they may be read, and what is behind them is undefined. None if no such request is in progress.
    fn arrived(&self, py: Python<'_>, id: u32) -> PyResult<Option<u64>> {
        self.with(py, |connection| Ok(connection.arrived(id)))
    }

    /// Cancels a request, whose completion then has the error Cancelled. False if it is over already.
    fn cancel(&self, py: Python<'_>, id: u32) -> PyResult<bool> {
        self.with(py, |connection| Ok(connection.cancel(id)))
    }

    /// What the connection did so far.
    fn account(&self, py: Python<'_>) -> PyResult<Account> {
        self.with(py, |connection| Ok(connection.account().into()))
    }

    /// Tells how many completions are kept for calls that have not come yet: the peer waits with messages and immediates
    /// while those are many. Without effect when the connection is over. For `aio`; a `Connection` tells by itself.
    fn _set_kept(&self, py: Python<'_>, kept: usize) {
        // A connection that is over has no peer that waits.
        let _ = self.with(py, |connection| {
            connection.set_kept(kept);
            Ok(())
        });
    }

    /// All bytes of `buffer`, in the order of memory, whatever its shape and elements. For `aio`.
    #[staticmethod]
    fn _bytes_of<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        view(buffer, usize::MAX)
    }

    /// The paths that there are.
    fn paths(&self, py: Python<'_>) -> PyResult<Vec<Path>> {
        let paths = self.with(py, |connection| Ok(connection.paths()))?;
        Ok(paths.into_iter().filter_map(Path::of).collect())
    }

    /// Adds a path, "LOCAL=PEER", as `Options(links=...)` has it. False if the connection can have none: what carries it
    /// is neither UDP nor raw Ethernet, or neither `paths` nor `links` asked for several. `paths()` tells what becomes of it.
    fn add_path(&self, py: Python<'_>, link: &str) -> PyResult<bool> {
        let link = path::addresses(link)?;
        self.with(py, |connection| Ok(connection.add_path(link)))
    }

    /// Uses path `index`, which is not 0, no more: what it had in flight goes by others.
    fn remove_path(&self, py: Python<'_>, index: usize) -> PyResult<()> {
        if index == 0 {
            return Err(PyValueError::new_err("the first path is not removed"));
        }
        self.with(py, |connection| {
            connection.remove_path(index);
            Ok(())
        })
    }

    /// Exports memory to the peer of this connection: give the key to it. (A `name` is deprecated: `export_named`.)
    #[pyo3(signature = (region, rights, name=None))]
    fn export(
        &self,
        py: Python<'_>,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
        name: Option<&str>,
    ) -> PyResult<Key> {
        if let Some(name) = name {
            let class = py.get_type::<PyDeprecationWarning>();
            let message =
                c"export with a name is called export_named, and goes with the next release";
            PyErr::warn(py, &class, message, 1)?;
            return self.export_named(py, name, region, rights);
        }
        let (region, rights) = (region.get().region(py)?, exported::rights(rights)?);
        self.with(py, |connection| {
            connection.export(&region, rights).map(Key::new)
        })
    }

    /// The same, and the peer may ask for it with `open_region` by `name`, at most 32 bytes of UTF-8.
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

    /// Takes memory back from the peer of this connection, at once. False if `key` names nothing
    /// exported here.
    fn revoke(&self, py: Python<'_>, key: &Bound<'_, Key>) -> PyResult<bool> {
        let key = key.get().region();
        self.with(py, |connection| Ok(connection.revoke(&key)))
    }

    /// The same for all exports of `region` on this connection, by whatever key and name, also those that
    /// `Worker.export` and `EndpointHandle.export` made: for this peer alone. False if there is none.
    fn revoke_region(&self, py: Python<'_>, region: &Bound<'_, ExportedRegion>) -> PyResult<bool> {
        let region = region.get().region(py)?;
        self.with(py, |connection| Ok(connection.revoke_region(&region)))
    }

    /// Asks the peer for the memory it exports as `name`, with `rights`: the completion has its key as `region`.
    /// It fails with UnknownRegion if there is none, and Denied if it is exported without one of those rights.
    #[pyo3(signature = (name, rights, *, context=0))]
    fn post_open_region(
        &self,
        py: Python<'_>,
        name: &str,
        rights: u8,
        context: u64,
    ) -> PyResult<u32> {
        let rights = exported::rights(rights)?;
        self.post(py, |connection| {
            connection.post_open_region(name, rights, context)
        })
    }

    /// Posts a put: see `Connection.put`. With `fence` it begins when all earlier requests of the connection are
    /// complete.
    #[pyo3(signature = (key, offset, buffer, *, immediate=None, fence=false, signalled=true, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn post_put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        immediate: Option<u32>,
        fence: bool,
        signalled: bool,
        context: u64,
    ) -> PyResult<u32> {
        let (key, memory) = (key.get().region(), pin_source(buffer)?);
        let work = work(signalled, fence, immediate, context);
        self.post(py, |connection| {
            connection.post_put(&key, offset, memory, work)
        })
    }

    /// Posts one put of several pieces, of an offset and a buffer each, 4096 at most, gathered here and scattered
    /// there.
    #[pyo3(signature = (key, pieces, *, immediate=None, fence=false, signalled=true, context=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn post_put_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Vec<(u64, Bound<'_, PyAny>)>,
        immediate: Option<u32>,
        fence: bool,
        signalled: bool,
        context: u64,
    ) -> PyResult<u32> {
        let key = key.get().region();
        let pieces: Vec<(u64, Memory)> = self::pieces(&pieces, Use::Read, |it| it.share().into())?;
        let work = work(signalled, fence, immediate, context);
        self.post(py, |connection| {
            connection.post_put_vectored(&key, pieces, work)
        })
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
    ) -> PyResult<u32> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Write)?);
        let work = work(true, fence, None, context);
        self.post(py, |connection| {
            connection.post_get(&key, offset, region, work)
        })
    }

    /// Posts one get of several pieces, of an offset and a buffer each, 4096 at most, gathered there and scattered
    /// here.
    #[pyo3(signature = (key, pieces, *, fence=false, context=0))]
    fn post_get_vectored(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Vec<(u64, Bound<'_, PyAny>)>,
        fence: bool,
        context: u64,
    ) -> PyResult<u32> {
        let key = key.get().region();
        let pieces = self::pieces(&pieces, Use::Write, |it| it)?;
        let work = work(true, fence, None, context);
        self.post(py, |connection| {
            connection.post_get_vectored(&key, pieces, work)
        })
    }

    /// Posts an atomic operation on the word at `offset`; its completion has what the word was before as `value`.
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
    ) -> PyResult<u32> {
        let (key, op) = (key.get().region(), op.get().0);
        let work = work(signalled, fence, None, context);
        self.post(py, |connection| {
            connection.post_fetch_op(&key, offset, op, work)
        })
    }

    fn __repr__(&self) -> String {
        format!("Requests('{}')", self.peer)
    }
}
