//! Interfaces opened for raw Ethernet.

use pyo3::prelude::*;
use std::sync::Arc;
use zerolane::options::{self, DeviceOptions};

/// An interface opened for raw Ethernet past the kernel's network stack (AF_XDP), to be given to connections and
/// endpoints by `Options(lane="ethernet", device=...)`. Opened once for each interface; needs root, or CAP_BPF,
/// CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW. docs/reference/lanes.md, "AF_XDP".
///
/// `queue` is the receive queue whose frames come so; None: frames come by packet sockets, and what nobody granted is
/// dropped in the driver. `max_connections` may use it at a time, 1 to 1024. `exclusive` drops frames of the protocol
/// that are for none of them. With `zero_copy` it is refused where the kernel would have to copy each frame. With
/// `fall_back` connections use packet sockets where something is refused, and `refused` says what; else that is an
/// error. `busy_poll` polls the driver for so many frames a call.
#[pyclass(frozen, module = "zerolane")]
#[derive(Debug)]
pub(crate) struct EthernetDevice(pub(crate) Arc<options::EthernetDevice>);

#[pymethods]
impl EthernetDevice {
    #[new]
    // What is shown says 0, as an expression of Rust is not.
    #[pyo3(signature = (interface, *, queue=Some(0), max_connections=None, exclusive=false, zero_copy=false, fall_back=false,
                        busy_poll=None),
           text_signature = "(interface, *, queue=0, max_connections=None, exclusive=False, zero_copy=False, \
                             fall_back=False, busy_poll=None)")]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn new(
        py: Python<'_>,
        interface: &str,
        queue: Option<u32>,
        max_connections: Option<u32>,
        exclusive: bool,
        zero_copy: bool,
        fall_back: bool,
        busy_poll: Option<u16>,
    ) -> PyResult<EthernetDevice> {
        let default = DeviceOptions::default();
        let options = DeviceOptions {
            queue,
            max_connections: max_connections.unwrap_or(default.max_connections),
            exclusive,
            zero_copy,
            fall_back,
            busy_poll,
        };
        let opened = py.detach(|| options::EthernetDevice::open(interface, options));
        Ok(EthernetDevice(opened?))
    }

    /// Why AF_XDP or the program in the driver is not used, in words, although it was asked for.
    #[getter]
    fn refused(&self) -> Option<String> {
        self.0.refused().map(ToString::to_string)
    }

    /// Whether the driver itself reads and writes the memory; else the kernel copies each frame once more.
    #[getter]
    fn is_zero_copy(&self) -> bool {
        self.0.is_zero_copy()
    }

    fn __repr__(&self) -> String {
        format!(
            "EthernetDevice(is_zero_copy={}, refused={:?})",
            if self.0.is_zero_copy() {
                "True"
            } else {
                "False"
            },
            self.refused()
        )
    }
}
