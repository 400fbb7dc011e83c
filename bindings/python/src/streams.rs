//! Opens, accepts, reads and writes the byte streams of a connection.

use crate::address::pair;
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::dropped;
use crate::errors;
use crate::options::seconds;
use crate::patience::Patience;
use crate::pending::PendingSet;
use pyo3::exceptions::{PyBufferError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use zerolane::{Error, Process};
use zerolane_streams::limits::PRIORITIES;
use zerolane_streams::{Ready, Role, wait};

/// The streams of one connection: each carries bytes in both directions, with a flow control of its own, so that one
/// that is not read holds up no other. Each end may have opened 4096. The other end of the connection makes one, too;
/// `role` is "connector" for the end that connected, and "acceptor" for the other.
///
/// It takes the connection over, and drives it in a thread that never needs the interpreter. As a context manager it
/// closes on exit, at once on an exception. One that is dropped unclosed disconnects at once, with a ResourceWarning;
/// its streams keep it. Any thread may call methods. After a fork it belongs to the parent: in the child methods raise
/// Closed.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct Streams {
    inner: zerolane_streams::Streams,
    peer: SocketAddr,
    closed: AtomicBool,
    process: Process,
}

impl Drop for Streams {
    fn drop(&mut self) {
        if self.process.is_current() && !self.closed.load(Ordering::SeqCst) {
            self.inner.abort();
            dropped::warn(&format!(
                "unclosed Streams to {}: they disconnect at once. Close them, or use them in a with statement",
                self.peer
            ));
        }
    }
}

#[pymethods]
impl Streams {
    #[new]
    fn new(py: Python<'_>, connection: &Bound<'_, Connection>, role: &str) -> PyResult<Streams> {
        let role = match role {
            "connector" => Role::Connector,
            "acceptor" => Role::Acceptor,
            _ => {
                let why = format!("role={role:?}: use connector or acceptor");
                return Err(PyValueError::new_err(why));
            }
        };
        let connection = Box::new(connection.get().give_up(py)?);
        let peer = connection.peer_addr();
        let inner = py.detach(|| zerolane_streams::Streams::new(*connection, role));
        Ok(Streams {
            inner: inner.map_err(|error| errors::of(py, error.into()))?,
            peer,
            closed: AtomicBool::new(false),
            process: Process::current(),
        })
    }

    /// The peer's address at the time when the streams were made: host and port.
    #[getter]
    fn peer_addr(&self) -> (String, u16) {
        pair(self.peer)
    }

    /// Opens a stream, which can be written at once. `purpose`, at most 1024 bytes, tells the peer what it is for.
    /// `priority` is 0, whose bytes go first, to 7. Raises QueueFull if this end has 4096 open.
    #[pyo3(signature = (purpose=b"".as_slice(), *, priority=3))]
    fn open(slf: &Bound<'_, Self>, purpose: &[u8], priority: u8) -> PyResult<Stream> {
        if usize::from(priority) >= PRIORITIES {
            let why = format!("priority={priority}: 0, which goes first, to 7");
            return Err(PyValueError::new_err(why));
        }
        let (py, streams) = (slf.py(), slf.get());
        let opened = py.detach(|| streams.inner.open_with_priority(purpose, priority));
        let opened = opened.map_err(|error| errors::of(py, error.into()))?;
        Ok(Stream::new(opened, slf))
    }

    /// Waits for a stream that the peer opens, and accepts it; None when the peer, or this end, has disconnected. Raises
    /// TimeoutError if none comes within `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn accept(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Option<Stream>> {
        let inner = &slf.get().inner;
        let accepted = Patience::new(timeout)?.wait(slf.py(), |time| {
            Ok(wait(Some(time), |cx| inner.poll_accept(cx)).transpose()?)
        })?;
        match accepted {
            Some(stream) => Ok(stream.map(|it| Stream::new(it, slf))),
            None => Err(PyTimeoutError::new_err("no stream came in time")),
        }
    }

    /// Puts `token`, a number from 0 to 2**64 - 1, into `set`, once, when `accept` returns at once; now if it does.
    /// Replaces the token given before.
    fn watch(&self, py: Python<'_>, set: &Bound<'_, PendingSet>, token: u64) -> PyResult<()> {
        let set = set.get().inner();
        let watched = py.detach(|| self.inner.watch(set, token));
        watched.map_err(|error| errors::of(py, error.into()))
    }

    /// Delivers what was written to the peer's library, and disconnects; opens and accepts no more streams. Raises
    /// TimeoutError if that is not done within `timeout` seconds. Ctrl-C disconnects at once. What a peer that
    /// disconnects first did not take is lost.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let closed = Patience::new(timeout)?.wait(py, |time| {
            Ok(wait(Some(time), |cx| self.inner.poll_close(cx)).transpose()?)
        });
        match closed {
            Ok(None) => Err(PyTimeoutError::new_err(
                "the peer has not answered: close again, or abort",
            )),
            Ok(Some(())) => {
                self.closed.store(true, Ordering::SeqCst);
                Ok(())
            }
            Err(error) => {
                // What failed is over; after an interrupt this takes the place of a later close.
                self.abort(py);
                Err(error)
            }
        }
    }

    /// Disconnects at once; what was not delivered is lost.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| self.inner.abort());
        self.closed.store(true, Ordering::SeqCst);
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
            return self.close(py, None);
        }
        self.abort(py);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<zerolane.Streams to {}>", self.peer)
    }
}

/// One stream: bytes in both directions, each of which ends by itself. It is a raw file to Python: `io.BufferedReader`
/// and `io.BufferedWriter` take it.
///
/// A peer that is gone, or that reset the stream, raises, and is no end of file. Any thread may call methods: each byte
/// goes to one reader. As a context manager it closes on exit, and is reset on an exception.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct Stream {
    inner: zerolane_streams::Stream,
    closed: AtomicBool,
    /// How long a call may wait.
    timeout: Mutex<Option<Duration>>,
    /// Kept open.
    _streams: Py<Streams>,
}

fn unsupported(py: Python<'_>) -> PyErr {
    let class = py
        .import("io")
        .and_then(|it| it.getattr("UnsupportedOperation"));
    match class.and_then(|it| it.call1(("a stream has no position",))) {
        Ok(raised) => PyErr::from_value(raised),
        Err(error) => error,
    }
}

impl Stream {
    fn new(inner: zerolane_streams::Stream, streams: &Bound<'_, Streams>) -> Stream {
        Stream {
            inner,
            closed: AtomicBool::new(false),
            timeout: Mutex::new(None),
            _streams: streams.clone().unbind(),
        }
    }

    fn limit(&self) -> Option<Duration> {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `poll`, within the timeout.
    fn within<T: Send>(
        &self,
        py: Python<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>> + Send,
    ) -> PyResult<T> {
        let limit = self.limit();
        let ready =
            Patience::of(limit).wait(py, |time| Ok(wait(Some(time), &mut poll).transpose()?))?;
        ready.ok_or_else(|| errors::of(py, Error::TimedOut(limit.unwrap_or_default())))
    }

    /// Reads up to `most` bytes that are there or come.
    fn some(&self, py: Python<'_>, most: usize, into: &mut Vec<u8>) -> PyResult<usize> {
        self.within(py, |cx| {
            self.inner
                .poll_read_with(cx, most, |bytes| into.extend_from_slice(bytes))
        })
    }
}

#[pymethods]
impl Stream {
    /// What its opener said of it.
    #[getter]
    fn purpose<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner.purpose())
    }

    /// Its number, unique in its connection.
    #[getter]
    fn id(&self) -> u64 {
        self.inner.id()
    }

    /// Seconds that a call may wait; None, the default, is no limit. A call that would wait for longer raises TimedOut. No
    /// byte is lost then, except by `read` to the end; `write` may have written some.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.limit().map(|it| it.as_secs_f64())
    }

    /// Sets `timeout`.
    #[pyo3(signature = (timeout))]
    fn set_timeout(&self, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(|it| seconds(it, "timeout")).transpose()?;
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
        Ok(())
    }

    /// Waits until the peer's program accepts the stream. Raises StreamReset if it refuses. A stream can be written
    /// before.
    fn accepted(&self, py: Python<'_>) -> PyResult<()> {
        self.within(py, |cx| self.inner.poll_accepted(cx))
    }

    /// Waits for bytes, and returns those available, up to `size`; b"" at the end of the peer's direction. If `size` is
    /// negative, returns everything until that end.
    #[pyo3(signature = (size=-1))]
    fn read<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = Vec::new();
        match usize::try_from(size) {
            Ok(most) => {
                self.some(py, most, &mut bytes)?;
            }
            Err(_) => while self.some(py, usize::MAX, &mut bytes)? > 0 {},
        }
        Ok(PyBytes::new(py, &bytes))
    }

    /// Waits for bytes, and writes those available to `buffer`. Returns how many; 0 at the end of that direction.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::get(buffer)?;
        if buffer.is_read_only() {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        let mut read = 0;
        self.within(py, |cx| {
            self.inner.poll_read_with(cx, buffer.len(), |bytes| {
                buffer.store(read, bytes);
                read += bytes.len();
            })
        })
    }

    /// Writes the whole of `buffer`, and returns its length. It waits while the stream's queue, of 256 KiB, is full, or
    /// the peer does not read.
    fn write(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::get(buffer)?;
        let mut written = 0;
        while written < buffer.len() {
            written += self.within(py, |cx| {
                let left = buffer.len() - written;
                self.inner
                    .poll_write_with(cx, left, |place| buffer.load(written, place))
            })?;
        }
        Ok(written)
    }

    /// Ends the direction to the peer, as a half-closed socket does; what was written arrives before.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let finished = py.detach(|| self.inner.finish());
        finished.map_err(|error| errors::of(py, error.into()))
    }

    /// Ends both directions at once: calls at both ends raise StreamReset, with `words`, up to 512 bytes of them.
    #[pyo3(signature = (words=""))]
    fn reset(&self, py: Python<'_>, words: &str) -> PyResult<()> {
        let reset = py.detach(|| self.inner.reset(words));
        reset.map_err(|error| errors::of(py, error.into()))
    }

    /// Puts `token`, a number from 0 to 2**64 - 1, into `set`, once, when the stream is ready; now if it is. `what` is
    /// "read", "write" or "accepted". Replaces the token that was given for the same before. Another thread may be faster.
    fn watch(
        &self,
        py: Python<'_>,
        what: &str,
        set: &Bound<'_, PendingSet>,
        token: u64,
    ) -> PyResult<()> {
        let what = match what {
            "read" => Ready::Read,
            "write" => Ready::Write,
            "accepted" => Ready::Accepted,
            _ => {
                let why = format!("what={what:?}: use read, write or accepted");
                return Err(PyValueError::new_err(why));
            }
        };
        let set = set.get().inner();
        let watched = py.detach(|| self.inner.watch(what, set, token));
        watched.map_err(|error| errors::of(py, error.into()))
    }

    /// What is there to read, up to `most` bytes; b"" at the end. None: nothing now.
    fn _read_now<'py>(
        &self,
        py: Python<'py>,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut bytes = Vec::new();
        let now = py.detach(|| {
            wait(Some(Duration::ZERO), |cx| {
                self.inner
                    .poll_read_with(cx, most, |it| bytes.extend_from_slice(it))
            })
        });
        let now = now.transpose();
        let now = now.map_err(|error| errors::of(py, error.into()))?;
        Ok(now.map(|_| PyBytes::new(py, &bytes)))
    }

    /// Writes the start of `buffer`, as much as there is room for; returns how much, 0 if there is none.
    fn _write_now(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::get(buffer)?;
        let now = py.detach(|| {
            wait(Some(Duration::ZERO), |cx| {
                self.inner
                    .poll_write_with(cx, buffer.len(), |place| buffer.load(0, place))
            })
        });
        let now = now.transpose();
        Ok(now
            .map_err(|error| errors::of(py, error.into()))?
            .unwrap_or(0))
    }

    /// Ends the use of the stream: calls, also of other threads that wait, raise Closed. What was written is delivered,
    /// then the end. If the peer writes more, or had written what was not read, the stream is reset.
    fn close(&self, py: Python<'_>) {
        // A child of fork has nothing to close.
        let _ = py.detach(|| self.inner.close());
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether this end has closed it.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// True, as for files.
    fn readable(&self) -> bool {
        true
    }

    /// True, as for files.
    fn writable(&self) -> bool {
        true
    }

    /// False, as for files.
    fn seekable(&self) -> bool {
        false
    }

    /// Raises io.UnsupportedOperation, as pipes do.
    #[pyo3(signature = (pos, whence=0, /))]
    #[expect(unused_variables, reason = "named as those of files")]
    fn seek(&self, py: Python<'_>, pos: i64, whence: i64) -> PyResult<i64> {
        Err(unsupported(py))
    }

    /// Raises io.UnsupportedOperation, as pipes do.
    fn tell(&self, py: Python<'_>) -> PyResult<i64> {
        Err(unsupported(py))
    }

    /// Raises io.UnsupportedOperation, as pipes do.
    #[pyo3(signature = (size, /))]
    #[expect(unused_variables, reason = "named as that of files")]
    fn truncate(&self, py: Python<'_>, size: i64) -> PyResult<i64> {
        Err(unsupported(py))
    }

    /// Does nothing: what was written leaves by itself.
    fn flush(&self) {}

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        if !class.is_none() {
            // The exception being raised here is not replaced.
            let _ = self.reset(py, "the program at the other end failed");
        }
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<zerolane.Stream {}>", self.inner.id())
    }
}
