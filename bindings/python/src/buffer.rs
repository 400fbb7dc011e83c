//! Takes the buffer of a Python object: contiguous bytes without object pointers.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Contiguous in any order.
const ANY_ORDER: c_char = b'A' as c_char;

/// A buffer, whose exporter keeps the bytes in place until this is dropped. PyO3's type refuses buffers of one
/// element, and those without strides, such as those of ctypes.
pub(crate) struct Buffer {
    /// Boxed, because an exporter may store pointers into the view.
    view: NonNull<ffi::Py_buffer>,
}

// SAFETY: any thread with the interpreter may read and release a view; nothing else here changes.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// # Errors
    /// TypeError if `object` has no buffer, or one of Python objects or pointers; BufferError if it is not contiguous.
    pub(crate) fn get(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let place = Box::into_raw(Box::<MaybeUninit<ffi::Py_buffer>>::new(
            MaybeUninit::uninit(),
        ));
        // SAFETY: an object, with the interpreter, and a place for its view.
        let got =
            unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), place.cast(), ffi::PyBUF_FULL_RO) };
        if got != 0 {
            // SAFETY: from the box above, whose content is unused.
            drop(unsafe { Box::from_raw(place) });
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: a box is not null.
        let view = unsafe { NonNull::new_unchecked(place.cast()) };
        let buffer = Buffer { view };
        // SAFETY: a filled view.
        if unsafe { ffi::PyBuffer_IsContiguous(view.as_ptr(), ANY_ORDER) } == 0 {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        if buffer.has_references() {
            return Err(PyTypeError::new_err(
                "the buffer holds Python objects or pointers, which mean nothing to another process",
            ));
        }
        Ok(buffer)
    }

    fn view(&self) -> &ffi::Py_buffer {
        // SAFETY: filled, and unchanged until it is dropped.
        unsafe { self.view.as_ref() }
    }

    /// Whether some of its bytes are object references: numpy's arrays of `object`, also as a field of others.
    fn has_references(&self) -> bool {
        let format = self.view().format;
        // SAFETY: the exporter's text, which lives as long as the view.
        !format.is_null() && has_references(unsafe { CStr::from_ptr(format) })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        NonNull::new(self.view().buf.cast()).unwrap_or(NonNull::dangling())
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.view().len).unwrap_or(0)
    }

    /// Copies `bytes` to the offset `at`; those that do not fit are left out. A concurrent write corrupts only content.
    /// The buffer must not be read-only.
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        let len = bytes.len().min(self.len().saturating_sub(at));
        debug_assert!(len == bytes.len() && !self.is_read_only());
        // SAFETY: the exporter keeps its bytes at `start` until this is dropped, and these are inside. Python's memory is
        // none of `bytes`, which lie in the library.
        unsafe {
            let place = self.start().add(at.min(self.len()));
            place.as_ptr().copy_from(bytes.as_ptr(), len);
        }
    }

    /// Copies from the offset `at` into the whole of `place`; what is behind the end stays as it was. A concurrent write
    /// corrupts only content.
    pub(crate) fn load(&self, at: usize, place: &mut [u8]) {
        let len = place.len().min(self.len().saturating_sub(at));
        debug_assert!(len == place.len());
        // SAFETY: as in `store`.
        unsafe {
            let source = self.start().add(at.min(self.len()));
            place.as_mut_ptr().copy_from(source.as_ptr(), len);
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.view().readonly != 0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // If the interpreter has ended, there is no exporter.
        let _ = Python::try_attach(|_| {
            // SAFETY: filled, and released once, with the interpreter.
            unsafe { ffi::PyBuffer_Release(self.view.as_ptr()) }
        });
        // SAFETY: from the box that `get` made, freed once.
        drop(unsafe { Box::from_raw(self.view.as_ptr().cast::<MaybeUninit<ffi::Py_buffer>>()) });
    }
}

/// Whether a PEP 3118 format has object references, or pointers that ctypes follows: to characters (`z`, `Z`), values (`&`)
/// and functions (`X`). `Z` before a letter of a floating-point type is a complex number. Field names stand between colons.
fn has_references(format: &CStr) -> bool {
    let format = format.to_bytes();
    let mut in_name = false;
    format.iter().enumerate().any(|(index, &byte)| {
        in_name ^= byte == b':';
        let refers = match byte {
            b'Z' => !matches!(format.get(index + 1), Some(b'f' | b'd' | b'g')),
            _ => b"Oz&X".contains(&byte),
        };
        refers && !in_name
    })
}
