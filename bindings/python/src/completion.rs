//! The end of a request.

use crate::{errors, pinned};
use pyo3::prelude::*;
use zerolane::TransferError;

/// A request that is done. Its buffer is free again.
#[pyclass(frozen, module = "zerolane")]
pub(crate) struct Completion {
    /// Which: what the call that posted it returned.
    #[pyo3(get)]
    id: u32,
    /// The object that was posted.
    #[pyo3(get)]
    buffer: Option<Py<PyAny>>,
    result: Result<usize, TransferError>,
}

impl Completion {
    pub(crate) fn new(py: Python<'_>, completion: zerolane::Completion) -> Completion {
        Completion {
            id: completion.id,
            buffer: pinned::object(py, &completion.memory).map(Bound::unbind),
            result: completion.result,
        }
        // The buffer is released here, where completion.memory goes.
    }
}

#[pymethods]
impl Completion {
    /// Bytes moved; 0 if it failed.
    #[getter]
    fn length(&self) -> usize {
        self.result.unwrap_or(0)
    }

    /// Why it failed, or None.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let error = self.result.err()?;
        Some(
            errors::of_request(py, error)
                .into_value(py)
                .into_bound(py)
                .into_any(),
        )
    }

    /// Bytes moved; raises the error if it failed.
    fn result(&self, py: Python<'_>) -> PyResult<usize> {
        self.result.map_err(|error| errors::of_request(py, error))
    }

    fn __repr__(&self) -> String {
        match self.result {
            Ok(length) => format!("Completion(id={}, length={length})", self.id),
            Err(error) => format!("Completion(id={}, error='{error}')", self.id),
        }
    }
}
