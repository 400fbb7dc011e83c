//! Converts completions for Python.

use crate::exported::Key;
use crate::view::view;
use crate::{errors, pinned};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use zerolane::Delivery;
use zerolane::failure::TransferError;
use zerolane::memory::Memory;
use zerolane::request::{Immediate, Output, WorkKind};

/// A finished request. Its buffer is free again.
#[pyclass(frozen, weakref, module = "zerolane")]
pub(crate) struct Completion {
    /// The request's number, returned by the call that posted it.
    #[pyo3(get)]
    id: u64,
    /// The kind: "send", "receive", "put", "get", "fetch_op", "message", "message_received", "immediate" (a put of the
    /// peer's, not posted here), "open_region", or "other".
    #[pyo3(get)]
    kind: &'static str,
    /// The `context` given to the call.
    #[pyo3(get)]
    context: u64,
    /// The posted object; None if there was none, or several.
    #[pyo3(get)]
    buffer: Option<Py<PyAny>>,
    /// "fetch_op": the word's previous value. "immediate": the peer's number. Otherwise 0.
    #[pyo3(get)]
    value: u64,
    /// "receive": the sender's delivery mode, "silent", "polled" or "interrupt". Otherwise "interrupt".
    #[pyo3(get)]
    delivery: &'static str,
    /// "open_region": the key of the peer's memory. "immediate": the key of the memory here that the put wrote, as its
    /// export returned it. Otherwise None.
    #[pyo3(get)]
    region: Option<Key>,
    /// The objects of a request of several pieces.
    pieces: Vec<Py<PyAny>>,
    control: Vec<u8>,
    result: Result<usize, TransferError>,
}

impl Completion {
    pub(crate) fn new(py: Python<'_>, completion: zerolane::Completion) -> Completion {
        let (buffer, pieces) = match completion.memory() {
            Some(Memory::Gathered(pieces)) => (None, pinned::objects(py, pieces)),
            Some(memory) => (pinned::object(py, memory).map(Bound::unbind), Vec::new()),
            None => (None, Vec::new()),
        };
        let sent = match completion.output {
            Output::Receive { delivery, .. } | Output::Read { delivery, .. } => delivery,
            _ => Delivery::Interrupt,
        };
        let immediate = completion.immediate();
        let number = immediate.map(|it| u64::from(it.number));
        let region = completion.key().or(immediate.map(|it| it.region));
        Completion {
            id: completion.id.to_u64(),
            kind: kind(completion.kind()),
            context: completion.context,
            region: region.map(Key::new),
            pieces,
            buffer,
            value: completion.before().or(number).unwrap_or(0),
            delivery: delivery(sent),
            control: completion.control().unwrap_or_default().to_vec(),
            result: completion.result,
        }
        // Releases the buffer here, together with the completion's memory.
    }

    /// The completion that tells of an immediate.
    pub(crate) fn of_immediate(it: &Immediate) -> Completion {
        Completion {
            id: 0,
            kind: kind(WorkKind::Immediate),
            context: 0,
            region: Some(Key::new(it.region)),
            pieces: Vec::new(),
            buffer: None,
            value: it.number.into(),
            delivery: delivery(Delivery::Interrupt),
            control: Vec::new(),
            result: Ok(it.length),
        }
    }

    pub(crate) fn all(py: Python<'_>, completions: Vec<zerolane::Completion>) -> Vec<Completion> {
        let completions = completions.into_iter();
        completions.map(|it| Completion::new(py, it)).collect()
    }

    /// The completion, or its error as an exception.
    pub(crate) fn succeeded(self, py: Python<'_>) -> PyResult<Completion> {
        match self.result {
            Ok(_) => Ok(self),
            Err(error) => Err(errors::of_request(py, error)),
        }
    }
}

/// The delivery modes by name.
const DELIVERIES: [(&str, Delivery); 3] = [
    ("silent", Delivery::Silent),
    ("polled", Delivery::Polled),
    ("interrupt", Delivery::Interrupt),
];

/// The name of a delivery mode.
fn delivery(delivery: Delivery) -> &'static str {
    let known = DELIVERIES.iter().find(|it| it.1 == delivery);
    known.map_or("other", |it| it.0)
}

/// The delivery mode called `name`.
pub(crate) fn read_delivery(name: &str) -> PyResult<Delivery> {
    let known = DELIVERIES.iter().find(|it| it.0 == name);
    known.map(|it| it.1).ok_or_else(|| {
        PyValueError::new_err(format!(
            "delivery={name:?}: use silent, polled or interrupt"
        ))
    })
}

fn kind(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Send | WorkKind::Offer => "send",
        WorkKind::Receive | WorkKind::Read => "receive",
        WorkKind::Put => "put",
        WorkKind::Get => "get",
        WorkKind::FetchOp => "fetch_op",
        WorkKind::Message => "message",
        WorkKind::MessageReceived => "message_received",
        WorkKind::Immediate => "immediate",
        WorkKind::Open => "open_region",
        _ => "other",
    }
}

#[pymethods]
impl Completion {
    /// "message_received": the message. Otherwise empty.
    #[getter]
    fn control<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.control)
    }

    /// The posted memory, cut to the bytes moved: the received data, without a copy. None if there was none, or several
    /// pieces.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let buffer = self.buffer.as_ref();
        buffer
            .map(|it| view(it.bind(py), self.length()))
            .transpose()
    }

    /// The memory of each posted piece, whole; that of the one buffer of `Pieces`. Its content is undefined if the
    /// request failed.
    #[getter]
    fn pieces<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyMemoryView>>> {
        let pieces = self.pieces.iter();
        pieces.map(|it| view(it.bind(py), usize::MAX)).collect()
    }

    /// Bytes moved; 0 if it failed. "immediate": bytes of the put; of a put of several pieces, those of the last.
    #[getter]
    fn length(&self) -> usize {
        self.result.unwrap_or(0)
    }

    /// The error if it failed, otherwise None.
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

    /// Returns the bytes moved; raises the error if it failed.
    fn result(&self, py: Python<'_>) -> PyResult<usize> {
        self.result.map_err(|error| errors::of_request(py, error))
    }

    fn __repr__(&self) -> String {
        match self.result {
            Ok(length) => format!(
                "Completion('{}', id={}, length={length})",
                self.kind, self.id
            ),
            Err(error) => format!(
                "Completion('{}', id={}, error='{error}')",
                self.kind, self.id
            ),
        }
    }
}
