//! Exports Python's buffers, which peers may read and write.

use crate::errors::{self, exception};
use crate::fetch::{AnyFetchOp, FetchOp, Word};
use crate::pinned::{Pinned, Use, pin_for_release};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerolane::failure::{Reason, TransferError};
use zerolane::{Error, Process, RegionKey, RegionNumber, Rights};

/// The number of a region.
pub(crate) fn number(number: u32) -> PyResult<RegionNumber> {
    RegionNumber::new(number)
        .ok_or_else(|| PyValueError::new_err(format!("number {number}: a region's is below 2**24")))
}

/// Converts the bits of `zerolane.Rights`.
pub(crate) fn rights(bits: u8) -> PyResult<Rights> {
    if bits > 7 {
        return Err(PyValueError::new_err(format!("unknown rights {bits:#x}")));
    }
    Ok(Rights {
        read: bits & 1 != 0,
        write: bits & 2 != 0,
        atomic: bits & 4 != 0,
    })
}

/// Names exported memory on one connection. Give `bytes(key)` to the peer by any means; `Key.from_bytes` makes it a key
/// again, and so does pickle.
#[pyclass(frozen, eq, hash, weakref, module = "zerolane")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(RegionKey);

impl Key {
    pub(crate) fn new(key: RegionKey) -> Key {
        Key(key)
    }

    pub(crate) fn region(&self) -> RegionKey {
        self.0
    }
}

#[pymethods]
impl Key {
    /// Makes the key of the memory that the peer exports under `number`, from byte `offset` on, which is offset 0 of
    /// the key. The peer is not asked; it refuses a request that it does not permit.
    #[staticmethod]
    #[pyo3(signature = (number, offset=0))]
    fn numbered(number: u32, offset: u64) -> PyResult<Key> {
        Ok(Key(RegionKey::numbered(self::number(number)?, offset)))
    }

    /// The key as an int of 64 bits: its number times 2**40 plus its offset. ValueError unless it is the key of
    /// numbered memory with an offset below 2**40. Length and rights are not part of it.
    #[expect(clippy::wrong_self_convention, reason = "a method of Python's")]
    fn to_int(&self) -> PyResult<u64> {
        self.0.to_u64().ok_or_else(|| {
            PyValueError::new_err("not the key of numbered memory, or its offset is 2**40 or more")
        })
    }

    /// Makes the key that `to_int` returned, as `numbered` does.
    #[staticmethod]
    fn from_int(value: u64) -> Key {
        Key(RegionKey::from_u64(value))
    }

    /// Makes a key from `bytes(key)`.
    #[staticmethod]
    fn from_bytes(bytes: [u8; RegionKey::BYTES]) -> PyResult<Key> {
        let key = RegionKey::from_bytes(bytes).map(Key);
        key.ok_or_else(|| PyValueError::new_err("these are not the bytes of a key"))
    }

    /// The number that the memory is exported under; None if the library chose the key.
    #[getter]
    fn number(&self) -> Option<u32> {
        self.0.number().map(RegionNumber::get)
    }

    /// Length of the memory in bytes.
    #[getter]
    fn length(&self) -> u64 {
        self.0.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// For pickle.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let from_bytes = py.get_type::<Key>().getattr("from_bytes")?;
        Ok((from_bytes, (self.__bytes__(py),)))
    }

    fn __repr__(&self) -> String {
        format!("Key(length={})", self.length())
    }
}

/// A buffer that peers may read and write while this program uses it. As a context manager it revokes the buffer on
/// exit.
///
/// The buffer must be writable and contiguous, and start at a multiple of 8 in memory (as those of numpy and mmap do).
/// It cannot be resized until it is revoked. Use the methods of this class, which are atomic, for words of 8 bytes that
/// peers change with `fetch_add` and the like.
///
/// `ExportedRegion.memfd(length)` makes memory of its own instead, for `read` and `write`: a peer on this host that is
/// connected through shared memory puts and gets there without this program.
///
/// After a fork it belongs to the parent: in the child its methods raise Closed.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct ExportedRegion {
    /// `None` once revoked.
    region: Mutex<Option<zerolane::ExportedRegion>>,
    /// Held, without the interpreter, while it is revoked: a second call waits until no peer uses the memory.
    revoking: Mutex<()>,
    /// The buffer, if the memory is a buffer's.
    pinned: Option<Arc<Pinned>>,
    process: Process,
}

impl ExportedRegion {
    /// The lock is held only for a check or a copy.
    fn enter(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<zerolane::ExportedRegion>>> {
        match self.process.is_current() {
            true => Ok(self.region.lock().unwrap_or_else(PoisonError::into_inner)),
            // In a child of fork, another thread's lock is never released, and a memfd's memory does not exist.
            false => Err(errors::of(py, Error::Forked)),
        }
    }

    /// The region, to export on a connection.
    pub(crate) fn region(&self, py: Python<'_>) -> PyResult<zerolane::ExportedRegion> {
        self.enter(py)?.clone().ok_or_else(|| revoked(py))
    }

    fn of(region: zerolane::Region, pinned: Option<Arc<Pinned>>) -> PyResult<ExportedRegion> {
        let region = zerolane::ExportedRegion::new(region).map_err(|_| {
            PyValueError::new_err("the buffer does not begin at a multiple of 8 in memory")
        })?;
        Ok(ExportedRegion {
            region: Mutex::new(Some(region)),
            revoking: Mutex::new(()),
            pinned,
            process: Process::current(),
        })
    }

    /// Runs `body` on the region, if the `len` bytes at `offset` lie in it. It is not revoked meanwhile.
    fn with_bytes<T>(
        &self,
        py: Python<'_>,
        offset: usize,
        len: usize,
        body: impl FnOnce(&zerolane::ExportedRegion) -> T,
    ) -> PyResult<T> {
        let region = self.enter(py)?;
        let region = region.as_ref().ok_or_else(|| revoked(py))?;
        if offset.checked_add(len).is_none_or(|end| end > region.len()) {
            return Err(PyIndexError::new_err(format!(
                "{len} bytes at {offset} of {}",
                region.len()
            )));
        }
        Ok(body(region))
    }

    fn with_word<T>(
        &self,
        py: Python<'_>,
        offset: usize,
        body: impl FnOnce(&AtomicU64) -> T,
    ) -> PyResult<T> {
        self.with_words(py, offset, |region| body(region.word(offset)))
    }

    /// Calls `body` if the region has the aligned word at `offset`.
    fn with_words<T>(
        &self,
        py: Python<'_>,
        offset: usize,
        body: impl FnOnce(&zerolane::ExportedRegion) -> T,
    ) -> PyResult<T> {
        let region = self.enter(py)?;
        let region = region.as_ref().ok_or_else(|| revoked(py))?;
        if !offset.is_multiple_of(8) || offset.checked_add(8).is_none_or(|end| end > region.len()) {
            return Err(PyIndexError::new_err(format!(
                "no aligned word at {offset} of {} bytes",
                region.len()
            )));
        }
        Ok(body(region))
    }
}

fn revoked(py: Python<'_>) -> PyErr {
    exception(py, "Revoked", "the region was revoked".to_owned())
}

/// The exception for a mapped file that shrank.
fn faulted(py: Python<'_>) -> PyErr {
    errors::of_request(py, TransferError::Refused(Reason::MemoryFault))
}

#[pymethods]
impl ExportedRegion {
    #[new]
    fn new(buffer: &Bound<'_, PyAny>) -> PyResult<ExportedRegion> {
        let (region, pinned) = pin_for_release(buffer, Use::Write)?;
        ExportedRegion::of(region, Some(pinned))
    }

    /// Makes `length` zero bytes of its own memory. A peer on this host that is connected through shared memory maps
    /// them, and puts, gets and does atomic operations there without this program. The system allocates all of it at
    /// once; raises MemoryError if the machine or the process's control group has less.
    #[staticmethod]
    fn memfd(py: Python<'_>, length: usize) -> PyResult<ExportedRegion> {
        let region = py.detach(|| zerolane::Region::memfd(length));
        let region = region.map_err(|error| errors::of(py, error.into()))?;
        ExportedRegion::of(region, None)
    }

    /// Length in bytes.
    #[getter]
    fn length(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.region(py)?.len())
    }

    /// Returns a copy of the `length` bytes at `offset`. Each word is read before or after a concurrent write of a
    /// peer. Raises MemoryFault if it is a mapped file that shrank.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: usize,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.with_bytes(py, offset, length, |region| {
            PyBytes::new_with(py, length, |into| {
                region.try_read(offset, into).map_err(|_| faulted(py))
            })
        })?
    }

    /// Copies `data` to `offset`. Raises MemoryFault if it is a mapped file that shrank.
    fn write(&self, py: Python<'_>, offset: usize, data: &[u8]) -> PyResult<()> {
        self.with_bytes(py, offset, data.len(), |region| {
            region.try_write(offset, data).map_err(|_| faulted(py))
        })?
    }

    /// Whether it was revoked.
    #[getter]
    fn revoked(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.enter(py)?.is_none())
    }

    /// Returns the word at `offset` bytes, a multiple of 8.
    fn load(&self, py: Python<'_>, offset: usize) -> PyResult<u64> {
        self.with_word(py, offset, |word| word.load(Ordering::SeqCst))
    }

    /// Sets the word at `offset` bytes, a multiple of 8.
    fn store(&self, py: Python<'_>, offset: usize, value: Word) -> PyResult<()> {
        let value = value.u64()?;
        self.with_word(py, offset, |word| word.store(value, Ordering::SeqCst))
    }

    /// Adds to the word at `offset` bytes, wrapping; returns its previous value.
    #[pyo3(signature = (offset, value=Word(1)))]
    fn fetch_add(&self, py: Python<'_>, offset: usize, value: Word) -> PyResult<u64> {
        let value = value.u64()?;
        self.with_word(py, offset, |word| word.fetch_add(value, Ordering::SeqCst))
    }

    /// Does an atomic operation on the word at `offset` bytes, as a peer does; returns its previous value. IndexError
    /// unless the memory has the 8 aligned bytes that are or hold the word.
    fn fetch_op(&self, py: Python<'_>, offset: usize, op: &Bound<'_, FetchOp>) -> PyResult<u64> {
        let op = op.get().0;
        if !offset.is_multiple_of(op.bytes()) {
            return Err(PyIndexError::new_err(format!(
                "{offset} is not a multiple of {}",
                op.bytes()
            )));
        }
        self.with_words(py, offset - offset % 8, |region| match op {
            AnyFetchOp::U64(op) => region.fetch_op(offset, op),
            AnyFetchOp::U32(op) => region.fetch_op(offset, op),
        })
    }

    /// Ends all exports of the memory, to all peers, at once. After it returns, no operation of a peer reads or writes
    /// the memory, however late it comes, and the buffer is free. A second call waits for the first, and does nothing.
    fn revoke(&self, py: Python<'_>) -> PyResult<()> {
        if !self.process.is_current() {
            return Err(errors::of(py, Error::Forked));
        }
        // Whether this call is the first.
        let ended = py.detach(|| {
            let _turn = self.revoking.lock().unwrap_or_else(PoisonError::into_inner);
            let mut region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = region.take();
            // Released before the wait for peers: threads with the interpreter use this lock, and must not block.
            drop(region);
            taken.map(zerolane::ExportedRegion::end).is_some()
        });
        if let Some(pinned) = self.pinned.as_ref().filter(|_| ended) {
            // SAFETY: no word is accessed any more, since the region is gone, and `end` has returned: from then on no
            // connection touches the memory.
            unsafe { pinned.release() };
        }
        Ok(())
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
    ) -> PyResult<()> {
        match self.process.is_current() {
            true => self.revoke(py),
            // In a child of fork, the region is the parent's, and the exception being raised here is not replaced.
            false => Ok(()),
        }
    }
}
