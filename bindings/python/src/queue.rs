//! Completions of many connections in one place.

use crate::completion::Completion;
use crate::patience::Patience;
use pyo3::prelude::*;
use std::os::fd::{AsFd, AsRawFd};

/// A queue for the completions of many connections. When it is full, connections keep theirs, and take
/// no more from their peers. It drives nothing: each connection moves in its own calls, such as `wait` in a thread for
/// it. A program that has many connections in one thread takes a `Worker`, which drives all of them, and whose events
/// have the completions. It takes the memory for all `capacity` completions when it is made. After a fork it belongs to the parent.
#[pyclass(frozen, module = "zerolane")]
pub(crate) struct CompletionQueue(zerolane::CompletionQueue);

impl CompletionQueue {
    pub(crate) fn inner(&self) -> &zerolane::CompletionQueue {
        &self.0
    }

    /// A child of fork is to learn that it finds nothing.
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

    /// The next completion, with the tag of its connection, whether it wakes or not; None if there is none.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<(u64, Completion)>> {
        self.check_process(py)?;
        let next = self.0.poll();
        Ok(next.map(|(tag, completion)| (tag, Completion::new(py, completion))))
    }

    /// Up to `max` completions that are there, each with the tag of its connection.
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

    /// Waits for the next completion that wakes, or returns one that came before it, while another thread drives
    /// the connections; None if none comes within `timeout` seconds. A timeout of 0 polls.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(u64, Completion)>> {
        let next = Patience::new(timeout)?.wait(py, |time| self.0.wait(Some(time)))?;
        Ok(next.map(|(tag, completion)| (tag, Completion::new(py, completion))))
    }

    /// A descriptor that is readable while there is something in the queue that wakes. Do not read it.
    fn fileno(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }
}
