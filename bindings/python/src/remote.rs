//! Access to the peer's memory: export, put, get, fetch-op.

use crate::connection::Connection;
use crate::exported::{self, ExportedRegion, Key, Word};
use crate::pinned::{Use, pin};
use pyo3::prelude::*;
use zerolane::memory::Memory;
use zerolane::{FetchOp, Region, Work};

/// How a posted request is to be done.
fn work(signalled: bool, fence: bool, immediate: Option<u32>) -> Work {
    Work {
        signalled,
        fence,
        immediate,
        ..Work::default()
    }
}

impl Connection {
    fn fetch(&self, py: Python<'_>, key: &Key, offset: u64, op: FetchOp) -> PyResult<u64> {
        let key = key.region();
        let completion = self.finish(py, |connection| {
            connection.post_fetch_op(&key, offset, op, Work::default())
        })?;
        Ok(completion.value)
    }

    fn post_fetch(
        &self,
        py: Python<'_>,
        key: &Key,
        offset: u64,
        op: FetchOp,
        work: Work,
    ) -> PyResult<u32> {
        let key = key.region();
        self.post(py, |connection| {
            connection.post_fetch_op(&key, offset, op, work)
        })
    }
}

#[pymethods]
impl Connection {
    /// Exports memory to the peer of this connection. If it has a `name`, at most 32 bytes of UTF-8,
    /// the peer may ask for it by that with `open`; else give the key to it.
    #[pyo3(signature = (region, rights, name=None))]
    fn export(
        &self,
        py: Python<'_>,
        region: &Bound<'_, ExportedRegion>,
        rights: u8,
        name: Option<&str>,
    ) -> PyResult<Key> {
        let region = region.get().region(py)?;
        let rights = exported::rights(rights)?;
        self.with(py, |state| {
            let connection = state.connection()?;
            match name {
                None => connection.export(&region, rights),
                Some(name) => connection.export_named(name, &region, rights),
            }
            .map(Key::new)
        })
    }

    /// Takes memory back from the peer of this connection, at once. False if `key` names nothing
    /// exported here.
    fn revoke(&self, py: Python<'_>, key: &Bound<'_, Key>) -> PyResult<bool> {
        let key = key.get().region();
        self.with(py, |state| Ok(state.connection()?.revoke(&key)))
    }

    /// Asks the peer for the key of the memory it exports as `name`, with `rights`. Raises UnknownRegion
    /// if there is none, and Denied if it is exported without one of those rights.
    fn open(&self, py: Python<'_>, name: &str, rights: u8) -> PyResult<Key> {
        let rights = exported::rights(rights)?;
        self.with(py, |state| {
            state.connection()?.open_region(name, rights).map(Key::new)
        })
    }

    /// Writes the bytes of `buffer` to the peer's memory, `offset` bytes behind its start; returns when
    /// they are placed and visible there. With `immediate`, a number of 32 bits, the peer gets a
    /// completion that has it as `value`.
    #[pyo3(signature = (key, offset, buffer, *, immediate=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        immediate: Option<u32>,
    ) -> PyResult<()> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Read)?.share());
        self.finish(py, |connection| {
            connection.post_put(&key, offset, region, work(true, false, immediate))
        })?;
        Ok(())
    }

    /// Reads the peer's memory, from `offset` bytes behind its start, into the whole of `buffer`.
    fn get(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Write)?);
        self.finish(py, |connection| {
            connection.post_get(&key, offset, region, Work::default())
        })?;
        Ok(())
    }

    /// Adds `value` to the word of 8 bytes at `offset` of the peer's memory, wrapping, atomically and
    /// exactly once; returns what it was before.
    #[pyo3(signature = (key, offset, value=Word(1)))]
    fn fetch_add(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        value: Word,
    ) -> PyResult<u64> {
        self.fetch(py, key.get(), offset, FetchOp::Add(value.0))
    }

    /// Sets the word at `offset` of the peer's memory to zero; returns what it was before.
    fn fetch_clear(&self, py: Python<'_>, key: &Bound<'_, Key>, offset: u64) -> PyResult<u64> {
        self.fetch(py, key.get(), offset, FetchOp::Clear)
    }

    /// Sets the word at `offset` of the peer's memory; returns what it was before.
    fn swap(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        value: Word,
    ) -> PyResult<u64> {
        self.fetch(py, key.get(), offset, FetchOp::Swap(value.0))
    }

    /// Sets the word at `offset` of the peer's memory if it equals `expected`; returns what it was
    /// before: `expected`, if it was set.
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        expected: Word,
        value: Word,
    ) -> PyResult<u64> {
        let (expected, new) = (expected.0, value.0);
        self.fetch(
            py,
            key.get(),
            offset,
            FetchOp::CompareAndSwap { expected, new },
        )
    }

    /// Posts a `put`; returns the request's number. With `fence` it begins when all earlier requests of
    /// the connection are complete; without `signalled` it has a completion only if it fails.
    #[pyo3(signature = (key, offset, buffer, *, immediate=None, fence=false, signalled=true))]
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
    ) -> PyResult<u32> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Read)?.share());
        let work = work(signalled, fence, immediate);
        self.post(py, |connection| {
            connection.post_put(&key, offset, region, work)
        })
    }

    /// Posts one put of several pieces, of an offset and a buffer each, gathered here and scattered
    /// there.
    #[pyo3(signature = (key, pieces, *, immediate=None, fence=false, signalled=true))]
    fn post_put_pieces(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Vec<(u64, Bound<'_, PyAny>)>,
        immediate: Option<u32>,
        fence: bool,
        signalled: bool,
    ) -> PyResult<u32> {
        let key = key.get().region();
        let pieces: Vec<(u64, Memory)> = pieces
            .iter()
            .map(|(offset, buffer)| Ok((*offset, pin(buffer, Use::Read)?.share().into())))
            .collect::<PyResult<_>>()?;
        let work = work(signalled, fence, immediate);
        self.post(py, |connection| {
            connection.post_put_vectored(&key, pieces, work)
        })
    }

    /// Posts a `get`; returns the request's number. The buffer's content is undefined until it is done.
    #[pyo3(signature = (key, offset, buffer, *, fence=false))]
    fn post_get(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
        fence: bool,
    ) -> PyResult<u32> {
        let (key, region) = (key.get().region(), pin(buffer, Use::Write)?);
        let work = work(true, fence, None);
        self.post(py, |connection| {
            connection.post_get(&key, offset, region, work)
        })
    }

    /// Posts one get of several pieces, of an offset and a buffer each, gathered there and scattered
    /// here.
    #[pyo3(signature = (key, pieces, *, fence=false))]
    fn post_get_pieces(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        pieces: Vec<(u64, Bound<'_, PyAny>)>,
        fence: bool,
    ) -> PyResult<u32> {
        let key = key.get().region();
        let pieces: Vec<(u64, Region)> = pieces
            .iter()
            .map(|(offset, buffer)| Ok((*offset, pin(buffer, Use::Write)?)))
            .collect::<PyResult<_>>()?;
        let work = work(true, fence, None);
        self.post(py, |connection| {
            connection.post_get_vectored(&key, pieces, work)
        })
    }

    /// Posts a `fetch_add`; its completion has what the word was before as `value`.
    #[pyo3(signature = (key, offset, value=Word(1), *, fence=false, signalled=true))]
    fn post_fetch_add(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        value: Word,
        fence: bool,
        signalled: bool,
    ) -> PyResult<u32> {
        let work = work(signalled, fence, None);
        self.post_fetch(py, key.get(), offset, FetchOp::Add(value.0), work)
    }

    /// Posts a `compare_and_swap`; its completion has what the word was before as `value`.
    #[pyo3(signature = (key, offset, expected, value, *, fence=false))]
    fn post_compare_and_swap(
        &self,
        py: Python<'_>,
        key: &Bound<'_, Key>,
        offset: u64,
        expected: Word,
        value: Word,
        fence: bool,
    ) -> PyResult<u32> {
        let (expected, new) = (expected.0, value.0);
        let op = FetchOp::CompareAndSwap { expected, new };
        self.post_fetch(py, key.get(), offset, op, work(true, fence, None))
    }
}
