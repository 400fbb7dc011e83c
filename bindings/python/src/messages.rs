//! Sends and receives messages, and waits: up to 128 bytes of control, with or without payload.

use crate::connection::Connection;
use crate::requests::{message, payload, place};
use crate::view::view;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use zerolane::request::ReceiveMessage;

#[pymethods]
impl Connection {
    /// Sends a message of at most 128 bytes, with `payload`, a buffer or a list or tuple of buffers; returns when the
    /// peer has received it.
    #[pyo3(signature = (control, payload=None))]
    fn send_message(
        &self,
        py: Python<'_>,
        control: &[u8],
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let payload = self::payload(payload)?;
        self.driven
            .complete(py, |connection| connection.post(message(control, payload)))?;
        Ok(())
    }

    /// Receives the next message, and its payload into `payload`. Returns the message, and the memory of `payload` cut
    /// to the received bytes, or None without payload.
    #[pyo3(signature = (payload=None))]
    fn recv_message<'py>(
        &self,
        py: Python<'py>,
        payload: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyBytes>, Option<Bound<'py, PyMemoryView>>)> {
        let region = place(payload)?;
        let completion = self.driven.complete(py, |connection| {
            connection.post(ReceiveMessage::new().payload(region))
        })?;
        let length = completion.result.unwrap_or(0);
        let memory = payload.map(|it| view(it, length)).transpose()?;
        let control = completion.control().unwrap_or_default();
        Ok((PyBytes::new(py, control), memory))
    }
}
