//! Collects completions of many connections.

use crate::completion::Completion;
use crate::patience::Patience;
use pyo3::prelude::*;
use std::os::fd::{AsFd, AsRawFd};

/// A queue for the completions of many connections, with memory for all `capacity` completions. When it is full,
/// connections keep their completions and make their peers wait. It drives no connection: use it if each connection has
/// a thread of its own, and a `Worker` if one thread drives many. After a fork it belongs to the parent.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct CompletionQueue(zerolane::CompletionQueue);

impl CompletionQueue {
    pub(crate) fn inner(&self) -> &zerolane::CompletionQueue {
        &self.0
    }

    /// Fails in a child of fork, where the queue is empty.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        let checked = self.0.check_process();
        checked.map_err(|error| crate::errors::of(py, error))
    }
}

#[pymethods]
impl CompletionQueue {
    #[new]
    #[pyo3(signature = (capacity=1024))]
    fn new(py: Python<'_>, capacity: usize) -> PyResult<CompletionQueue> {
        zerolane::CompletionQueue::new(capacity)
            .map(CompletionQueue)
            .map_err(|error| crate::errors::of(py, error))
    }

    /// Returns the tag of a connection and its completion, whether it wakes or not; None if there is none.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<(u64, Completion)>> {
        self.check_process(py)?;
        let next = self.0.poll();
        Ok(next.map(|(tag, completion)| (tag, Completion::new(py, completion))))
    }

    /// Returns up to `max` completions that are there, each after the tag of its connection.
    #[pyo3(signature = (max=256))]
    fn poll_batch(&self, py: Python<'_>, max: usize) -> PyResult<Vec<(u64, Completion)>> {
        self.check_process(py)?;
        let mut ready = Vec::new();
        self.0.poll_batch(&mut ready, max);
        let ready = ready.into_iter();
        Ok(ready
            .map(|(tag, completion)| (tag, Completion::new(py, completion)))
            .collect())
    }

    /// Waits for a completion that wakes, while other threads drive the connections, and returns the first completion
    /// there is; None if none comes within `timeout` seconds. A timeout of 0 polls.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(u64, Completion)>> {
        let next = Patience::new(timeout)?.wait(py, |time| self.0.wait(Some(time)))?;
        Ok(next.map(|(tag, completion)| (tag, Completion::new(py, completion))))
    }

    /// A descriptor that is readable while the queue has completions that wake. Do not read it.
    fn fileno(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }
}
