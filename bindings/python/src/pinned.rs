//! Pins Python's memory while it is in use.

use crate::buffer::Buffer;
use crate::errors;
use crate::release::{release, release_left};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyTuple, PyType};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use zerolane::Region;
use zerolane::memory::Memory;
use zerolane::request::MAX_INLINE;

/// Keeps a buffer in place: its exporter must not move or free it (resizing a bytearray raises BufferError) until this
/// is dropped with the last region made of it, or released.
pub(crate) struct Pinned {
    /// Released on drop, by a thread of Python.
    buffer: Mutex<Option<Buffer>>,
    object: Py<PyAny>,
}

impl Pinned {
    /// Releases the buffer although regions made of it exist.
    ///
    /// # Safety
    /// Nothing accesses the bytes of those regions any more.
    pub(crate) unsafe fn release(&self) {
        let buffer = self
            .buffer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(buffer);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let buffer = self.buffer.get_mut();
        if let Some(buffer) = buffer.unwrap_or_else(PoisonError::into_inner).take() {
            release(buffer);
        }
    }
}

/// The use of a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Only read: any buffer is accepted.
    Read,
    /// Written: a read-only buffer is refused.
    Write,
}

/// How far to follow views of views. Deeper ones count as a possible mapped file.
const MAX_VIEWS: usize = 8;

/// Pins the bytes of `object`.
///
/// # Errors
/// As for [`Buffer::get`]; BufferError if it is read-only and to be written.
pub(crate) fn pin(object: &Bound<'_, PyAny>, purpose: Use) -> PyResult<Region> {
    Ok(pin_for_release(object, purpose)?.0)
}

/// Like [`pin`], with a handle that can release the buffer early.
pub(crate) fn pin_for_release(
    object: &Bound<'_, PyAny>,
    purpose: Use,
) -> PyResult<(Region, Arc<Pinned>)> {
    let held = hold(object, purpose)?;
    Ok((held.part(0, held.len), held.owner))
}

/// Pins the bytes of `object` once, and returns its parts, each an offset and a length.
///
/// # Errors
/// As for [`pin`]; ValueError if a part lies outside of the buffer.
pub(crate) fn pin_parts(
    object: &Bound<'_, PyAny>,
    purpose: Use,
    parts: impl Iterator<Item = (u64, u64)>,
) -> PyResult<Vec<Region>> {
    let held = hold(object, purpose)?;
    let part = |(index, (offset, len))| {
        let inside = usize::try_from(offset).ok().zip(usize::try_from(len).ok());
        let inside =
            inside.filter(|(at, len)| at.checked_add(*len).is_some_and(|end| end <= held.len));
        let (at, len) = inside.ok_or_else(|| {
            let whole = held.len;
            PyValueError::new_err(format!(
                "piece {index}: {len} bytes at {offset} of a buffer of {whole}"
            ))
        })?;
        Ok(held.part(at, len))
    };
    parts.enumerate().map(part).collect()
}

/// Pinned bytes.
struct Held {
    start: NonNull<u8>,
    len: usize,
    /// Whether they may be a mapped file.
    file: bool,
    owner: Arc<Pinned>,
}

impl Held {
    /// The `len` bytes at `offset`, which lie in it.
    fn part(&self, offset: usize, len: usize) -> Region {
        debug_assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        let keep = Box::new(Arc::clone(&self.owner));
        // SAFETY: the exporter keeps the contiguous bytes mapped until the buffer is released, and the part lies in
        // them. Dropping the owner releases it, or a call of `release`, which promises that nothing accesses them any
        // more. The callers of pin ensure that read-only buffers are only sent. The region is posted and never
        // dereferenced, so a concurrent write corrupts only content.
        unsafe { Region::foreign(self.start.add(offset), len, self.file, keep) }
    }
}

fn hold(object: &Bound<'_, PyAny>, purpose: Use) -> PyResult<Held> {
    release_left(object.py());
    let buffer = Buffer::get(object)?;
    if purpose == Use::Write && buffer.is_read_only() {
        return Err(PyBufferError::new_err("the buffer is read-only"));
    }
    let (start, len) = (buffer.start(), buffer.len());
    let file = may_be_file(object)?;
    let owner = Arc::new(Pinned {
        buffer: Mutex::new(Some(buffer)),
        object: object.clone().unbind(),
    });
    Ok(Held {
        start,
        len,
        file,
        owner,
    })
}

/// Pins the source of a send: a buffer, or a list or tuple of buffers that are sent as one.
///
/// # Errors
/// As for [`pin`], for each buffer.
pub(crate) fn pin_source(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
    let one = |it: &Bound<'_, PyAny>| Ok(Memory::from(pin(it, Use::Read)?.share()));
    let pieces: PyResult<Vec<Memory>> = if let Ok(list) = object.cast::<PyList>() {
        list.iter().map(|it| one(&it)).collect()
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        tuple.iter().map(|it| one(&it)).collect()
    } else {
        return one(object);
    };
    Ok(pieces?.into())
}

/// A copy of the bytes of `object`, a buffer, for a request that is posted inline. Nothing stays pinned.
///
/// # Errors
/// As for [`Buffer::get`]; ValueError if they are more than [`MAX_INLINE`].
pub(crate) fn copied(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = Buffer::get(object)?;
    let len = buffer.len();
    if len > MAX_INLINE {
        let error = zerolane::Error::NotInline { len };
        return Err(errors::of(object.py(), error));
    }
    let mut copy: Vec<u8> = Vec::with_capacity(len);
    // SAFETY: the exporter keeps `len` contiguous bytes at `start` mapped until the buffer is released, behind this, and
    // there is room for as many. A concurrent write corrupts only content.
    unsafe {
        copy.as_mut_ptr()
            .copy_from_nonoverlapping(buffer.start().as_ptr(), len);
        copy.set_len(len);
    }
    Ok(copy)
}

/// The object whose bytes were pinned, if any.
pub(crate) fn object<'py>(py: Python<'py>, memory: &Memory) -> Option<Bound<'py, PyAny>> {
    let pinned = memory.owner()?.downcast_ref::<Arc<Pinned>>()?;
    Some(pinned.object.bind(py).clone())
}

/// The objects whose bytes were pinned, those of [`pin_parts`] once.
pub(crate) fn objects(py: Python<'_>, pieces: &[Memory]) -> Vec<Py<PyAny>> {
    let owner = |it: &Memory| it.owner()?.downcast_ref::<Arc<Pinned>>().cloned();
    let mut owners: Vec<Arc<Pinned>> = pieces.iter().filter_map(owner).collect();
    owners.dedup_by(|one, other| Arc::ptr_eq(one, other));
    owners.iter().map(|it| it.object.clone_ref(py)).collect()
}

/// Whether the bytes may be a mapped file, whose pages are gone if it shrinks: a mmap, or a view of one.
fn may_be_file(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static MMAP: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if object.is_exact_instance_of::<PyBytes>() || object.is_exact_instance_of::<PyByteArray>() {
        return Ok(false);
    }
    let mmap = MMAP.import(object.py(), "mmap", "mmap")?;
    let mut object = object.clone();
    for _ in 0..MAX_VIEWS {
        if object.is_instance(mmap)? {
            return Ok(true);
        }
        // numpy's arrays have the viewed object in `base`, memoryviews in `obj`.
        let viewed = object.getattr_opt("base")?;
        let viewed = match viewed {
            None => object.getattr_opt("obj")?,
            found => found,
        };
        match viewed {
            Some(viewed) if !viewed.is_none() => object = viewed,
            _ => return Ok(false),
        }
    }
    Ok(true)
}
