//! Shows received memory to Python: the posted buffer, cut to the received bytes.

use crate::buffer::Buffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::c_int;

/// The first bytes of a buffer, in memory order, whatever its shape.
#[pyclass(frozen, weakref, module = "zerolane._zerolane")]
struct Prefix {
    buffer: Buffer,
    length: usize,
}

#[pymethods]
impl Prefix {
    /// # Safety
    /// The interpreter calls it, with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let prefix = slf.get();
        let length = ffi::Py_ssize_t::try_from(prefix.length)
            .map_err(|_| PyBufferError::new_err("the buffer is too long"))?;
        let start = prefix.buffer.start().as_ptr().cast();
        let readonly = c_int::from(prefix.buffer.is_read_only());
        // SAFETY: the interpreter owns view, to be filled. The exporter keeps the bytes, of which there are at least
        // `length`, until `buffer` is dropped, which the view keeps by its reference to `slf`.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, readonly, flags) };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// The first `length` bytes of `object`, without a copy.
///
/// # Errors
/// As for [`Buffer::get`].
pub(crate) fn view<'py>(
    object: &Bound<'py, PyAny>,
    length: usize,
) -> PyResult<Bound<'py, PyMemoryView>> {
    let buffer = Buffer::get(object)?;
    let length = length.min(buffer.len());
    let prefix = Bound::new(object.py(), Prefix { buffer, length })?;
    PyMemoryView::from(prefix.as_any())
}
