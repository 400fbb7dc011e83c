//! Accesses the peer's memory and waits: open, put, get, fetch-op.

use crate::connection::Connection;
use crate::errors;
use crate::exported::{self, Key};
use crate::fetch::{AnyFetchOp, FetchOp, Word};
use crate::pinned::{Use, pin, pin_source};
use crate::view::view;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use zerolane::failure::{Reason, TransferError};
use zerolane::request::{Get, OpenRegion, Put};

impl Connection {
    fn fetch(&self, py: Python<'_>, key: &Key, offset: u64, op: AnyFetchOp) -> PyResult<u64> {
        let key = key.region();
        let completion = self
            .driven
            .complete(py, |connection| connection.post(op.on(&key, offset)))?;
        Ok(completion.before().unwrap_or(0))
    }
}

#[pymethods]
impl Connection {
    /// Asks the peer for the key of the memory that it exports as `name`, with `rights`. Raises UnknownRegion if there
    /// is none, and Denied if it lacks one of the rights.
    fn open_region(&self, py: Python<'_>, name: &str, rights: u8) -> PyResult<Key> {
        let rights = exported::rights(rights)?;
        let completion = self.driven.complete(py, |connection| {
            connection.post(OpenRegion::new(name, rights))
        })?;
        let unknown = || errors::of_request(py, TransferError::Refused(Reason::Unknown));
        completion.key().map(Key::new).ok_or_else(unknown)
    }

    /// Writes the bytes of `buffer`, or of a list or tuple of buffers one after another, to the peer's memory at
    /// `offset`; returns when they are placed and visible there. With `immediate`, a 32-bit number, the peer gets a
    /// completion with that `value`, its key in `region`, and how many bytes in `length`.
    #[pyo3(signature = (key, offset, buffer, *, immediate=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        immediate: Option<u32>,
    ) -> PyResult<()> {
        let (key, memory) = (key.get().region(), pin_source(buffer)?);
        self.driven.complete(py, |connection| {
            connection.post(Put::new(&key, offset, memory).immediate(immediate))
        })?;
        Ok(())
    }

    /// Reads the peer's memory at `offset` into the whole of `buffer`; returns its memory.
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, Key>,
        offset: u64,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Write)?);
        let completion = self.driven.complete(py, |connection| {
            connection.post(Get::new(&key, offset, region))
        })?;
        view(buffer, completion.result.unwrap_or(0))
    }

    /// Does an atomic operation on the word at `offset` of the peer's memory, exactly once; returns its previous value.
    fn fetch_op(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        op: &Bound<'_, FetchOp>,
    ) -> PyResult<u64> {
        self.fetch(py, key.get(), offset, op.get().0)
    }

    /// Adds `value` to the word of 8 bytes at `offset` of the peer's memory, wrapping, atomically and exactly once;
    /// returns its previous value.
    #[pyo3(signature = (key, offset, value=Word(1)))]
    fn fetch_add(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        value: Word,
    ) -> PyResult<u64> {
        let op = zerolane::FetchOp::Add(value.u64()?);
        self.fetch(py, key.get(), offset, AnyFetchOp::U64(op))
    }

    /// Sets the word at `offset` of the peer's memory to 0; returns its previous value.
    fn fetch_clear(&self, py: Python<'_>, key: &Bound<'_, Key>, offset: u64) -> PyResult<u64> {
        let op = AnyFetchOp::U64(zerolane::FetchOp::Clear);
        self.fetch(py, key.get(), offset, op)
    }

    /// Sets the word at `offset` of the peer's memory; returns its previous value.
    fn swap(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        value: Word,
    ) -> PyResult<u64> {
        let op = zerolane::FetchOp::Swap(value.u64()?);
        self.fetch(py, key.get(), offset, AnyFetchOp::U64(op))
    }

    /// Sets the word at `offset` of the peer's memory if it equals `expected`; returns its previous value, which is
    /// `expected` if it was set.
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        expected: Word,
        value: Word,
    ) -> PyResult<u64> {
        let (expected, new) = (expected.u64()?, value.u64()?);
        let op = zerolane::FetchOp::CompareAndSwap { expected, new };
        self.fetch(py, key.get(), offset, AnyFetchOp::U64(op))
    }
}
