//! Opens interfaces for raw Ethernet, for `Options(device=...)`.

use pyo3::prelude::*;
use std::sync::Arc;
use zerolane::options::{self, DeviceOptions};

/// An interface opened for raw Ethernet past the kernel's network stack (AF_XDP), for `Options(lane="ethernet",
/// device=...)`. Open it once for each interface; needs root, or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW.
/// docs/reference/lanes.md, "AF_XDP".
///
/// `queue`: the receive queue whose frames come by AF_XDP; None: frames come by packet sockets, and the driver drops
/// payload that was not granted. `max_connections`: most connections at a time, 1 to 1024. `exclusive`: drop frames of
/// the protocol that belong to none of them. `zero_copy`: refuse AF_XDP if the kernel would copy each frame.
/// `fall_back`: use packet sockets if something is refused, with the reason in `refused`; otherwise that is an error.
/// `busy_poll`: poll the driver for at most this many frames a call.
#[pyclass(frozen, weakref, module = "zerolane")]
#[derive(Debug)]
pub(crate) struct EthernetDevice(pub(crate) Arc<options::EthernetDevice>);

#[pymethods]
impl EthernetDevice {
    #[new]
    // The signature that Python shows must say 0, not a Rust expression.
    #[pyo3(signature = (interface, *, queue=Some(0), max_connections=None, exclusive=false, zero_copy=false,
                        fall_back=false, busy_poll=None),
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

    /// Why AF_XDP or the program in the driver is not used although requested; None otherwise.
    #[getter]
    fn refused(&self) -> Option<String> {
        self.0.refused().map(ToString::to_string)
    }

    /// Whether the driver itself reads and writes the memory; otherwise the kernel copies each frame once more.
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
