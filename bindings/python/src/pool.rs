//! Shares memory for messages among connections.

use crate::pinned::{self, Use};
use pyo3::prelude::*;
use zerolane::memory::Memory;

/// Memory for messages, shared by any number of connections: `Worker.share_receives`, `Connection.set_receive_pool`. A
/// message takes the first piece when it arrives and no posted receive matches it, so an idle connection holds none. Its
/// completion, "message_received", has the buffer and the context; add the buffer again after use. A message longer than
/// its piece fails at both ends, and no other does. While the pool is empty, peers wait. Memory that no message used
/// returns when its connection ends.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct ReceivePool(zerolane::ReceivePool);

impl ReceivePool {
    pub(crate) fn inner(&self) -> &zerolane::ReceivePool {
        &self.0
    }
}

#[pymethods]
impl ReceivePool {
    #[new]
    fn new() -> ReceivePool {
        ReceivePool(zerolane::ReceivePool::new())
    }

    /// Adds a buffer for the payload of one message, and lets a peer that waits continue, from any thread. `context`
    /// returns with the completion. Closed if the pool is closed.
    #[pyo3(signature = (buffer, context=0))]
    fn add(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, context: u64) -> PyResult<()> {
        let added = self.0.add(pinned::pin(buffer, Use::Write)?, context);
        added.map_err(|refused| crate::errors::of(py, refused.error))
    }

    /// Takes out the first buffer that no message has taken: the buffer and its context. None if there is none.
    fn remove(&self, py: Python<'_>) -> Option<(Py<PyAny>, u64)> {
        let (region, context) = self.0.remove()?;
        let buffer = pinned::object(py, &Memory::from(region))?;
        Some((buffer.unbind(), context))
    }

    /// Ends the pool: no message takes memory of it, and nothing can be added. What no message has taken, and what
    /// returns from connections that end, stays for `remove`.
    fn close(&self) {
        self.0.close();
    }

    /// The number of buffers that no message has taken.
    fn __len__(&self) -> usize {
        self.0.len()
    }
}
