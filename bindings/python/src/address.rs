//! Addresses: "host:port" or "ether:IFACE/MAC:PORT", or a tuple as Python's sockets have it.

use pyo3::prelude::*;
use std::net::SocketAddr;
use zerolane::lanes;
use zerolane::options::LaneChoice;

/// What Python calls an address.
#[derive(FromPyObject)]
pub(crate) enum Address {
    Text(String),
    Pair(String, u16),
}

impl Address {
    /// Asks for its addresses for this lane; may wait for a name server.
    pub(crate) fn resolve(&self, lane: LaneChoice) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Address::Text(text) => lanes::resolve(text, lane),
            Address::Pair(host, port) => lanes::resolve_host(host, *port, lane),
        }
    }

    /// The first of its addresses.
    pub(crate) fn first(&self, py: Python<'_>, lane: LaneChoice) -> PyResult<SocketAddr> {
        let first = py.detach(|| Ok(self.resolve(lane)?.into_iter().next()));
        first
            .and_then(|it| it.ok_or(zerolane::Error::NoAddress))
            .map_err(|error| crate::errors::of(py, error))
    }
}

/// As Python's sockets say it.
pub(crate) fn pair(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}
