//! Addresses: "host:port", or a tuple as Python's sockets have it.

use pyo3::prelude::*;
use std::net::{SocketAddr, ToSocketAddrs};

/// What Python calls an address.
#[derive(FromPyObject)]
pub(crate) enum Address {
    Text(String),
    Pair(String, u16),
}

impl Address {
    /// Asks for its addresses; may wait for a name server.
    pub(crate) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Address::Text(text) => Ok(text.to_socket_addrs()?.collect()),
            Address::Pair(host, port) => Ok((host.as_str(), *port).to_socket_addrs()?.collect()),
        }
    }

    /// The first of its addresses.
    pub(crate) fn first(&self, py: Python<'_>) -> PyResult<SocketAddr> {
        let first = py.detach(|| Ok(self.resolve()?.into_iter().next()));
        first
            .and_then(|it| it.ok_or(zerolane::Error::NoAddress))
            .map_err(|error| crate::errors::of(py, error))
    }
}

/// As Python's sockets say it.
pub(crate) fn pair(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}
