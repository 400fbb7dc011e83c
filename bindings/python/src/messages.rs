//! Messages: up to 128 bytes of control, with or without payload.

use crate::connection::Connection;
use crate::pinned::{Use, pin};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use zerolane::Work;
use zerolane::memory::Memory;

#[pymethods]
impl Connection {
    /// Sends a message of at most 128 bytes, and `payload` with it, if there is one; returns when the
    /// peer has it in a receive.
    #[pyo3(signature = (control, payload=None))]
    fn send_message(
        &self,
        py: Python<'_>,
        control: &[u8],
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let payload = payload.map(|it| pin(it, Use::Read)).transpose()?;
        let payload = payload.map(|region| Memory::from(region.share()));
        self.finish(py, |connection| {
            connection.post_message(control, payload, Work::default())
        })?;
        Ok(())
    }

    /// Receives the next message, and its payload into `payload`; returns the message and the payload's
    /// length.
    #[pyo3(signature = (payload=None))]
    fn receive_message<'py>(
        &self,
        py: Python<'py>,
        payload: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        let payload = payload.map(|it| pin(it, Use::Write)).transpose()?;
        let completion = self.finish(py, |connection| connection.post_message_recv(payload))?;
        let control = PyBytes::new(py, &completion.control);
        Ok((control, completion.result.unwrap_or(0)))
    }

    /// Posts a `send_message`; returns the request's number.
    #[pyo3(signature = (control, payload=None, *, fence=false, signalled=true))]
    fn post_message(
        &self,
        py: Python<'_>,
        control: &[u8],
        payload: Option<&Bound<'_, PyAny>>,
        fence: bool,
        signalled: bool,
    ) -> PyResult<u32> {
        let payload = payload.map(|it| pin(it, Use::Read)).transpose()?;
        let payload = payload.map(|region| Memory::from(region.share()));
        let work = Work {
            signalled,
            fence,
            ..Work::default()
        };
        self.post(py, |connection| {
            connection.post_message(control, payload, work)
        })
    }

    /// Posts a `receive_message`: its completion has the message as `control`, and the payload's length.
    #[pyo3(signature = (payload=None))]
    fn post_receive_message(
        &self,
        py: Python<'_>,
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u32> {
        let payload = payload.map(|it| pin(it, Use::Write)).transpose()?;
        self.post(py, |connection| connection.post_message_recv(payload))
    }
}
