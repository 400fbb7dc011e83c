//! Warns of objects that a program drops while they are in use.

use pyo3::exceptions::PyResourceWarning;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CString;

/// Issues a ResourceWarning. For `Drop` of Python's classes: Python may drop an object because of an exception, which
/// stays as it is, and at its end, when it drops what is left.
pub(crate) fn warn(text: &str) {
    // SAFETY: any thread may ask; without the interpreter it gets null.
    if unsafe { ffi::PyThreadState_GetDict() }.is_null() {
        return;
    }
    // SAFETY: this thread has the interpreter. `Python::try_attach` would refuse at the end of the interpreter.
    let py = unsafe { Python::assume_attached() };
    let Ok(text) = CString::new(text) else {
        return;
    };
    let raised = PyErr::take(py);
    if let Err(error) = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &text, 1) {
        error.write_unraisable(py, None);
    }
    if let Some(raised) = raised {
        raised.restore(py);
    }
}
