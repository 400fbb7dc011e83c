//! Parses addresses: "host:port", "[ip%interface]:port", "ether:IFACE/MAC:PORT", or a tuple of Python's sockets.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use zerolane::lanes;
use zerolane::options::LaneChoice;

/// An address given by Python.
pub(crate) enum Address {
    Text(String),
    Pair(String, u16),
    /// An IPv6 tuple: host, port, flow and interface number.
    Full(String, u16, u32, u32),
}

impl<'py> FromPyObject<'_, 'py> for Address {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Address> {
        if let Ok(text) = object.extract() {
            return Ok(Address::Text(text));
        }
        let port = |it: i128| {
            let no_port =
                || PyValueError::new_err(format!("{it} is not a port: expected 0 to 65535"));
            u16::try_from(it).map_err(|_| no_port())
        };
        if let Ok((host, number)) = object.extract::<(String, i128)>() {
            return Ok(Address::Pair(host, port(number)?));
        }
        match object.extract::<(String, i128, u32, u32)>() {
            Ok((host, number, flow, interface)) => {
                Ok(Address::Full(host, port(number)?, flow, interface))
            }
            Err(_) => Err(PyTypeError::new_err(
                "an address is \"host:port\", or a tuple of a host and a port",
            )),
        }
    }
}

impl Address {
    /// Resolves to addresses for this lane; may block on a name server.
    pub(crate) fn resolve(&self, lane: LaneChoice) -> zerolane::Result<Vec<SocketAddr>> {
        let found = match self {
            Address::Text(text) => lanes::resolve(text, lane),
            Address::Pair(host, port) => lanes::resolve_host(host, *port, lane),
            Address::Full(host, port, flow, interface) => {
                let found = lanes::resolve_host(host, *port, lane);
                found.map(|it| {
                    it.into_iter()
                        .map(|it| full(it, *flow, *interface))
                        .collect()
                })
            }
        };
        found.map_err(zerolane::Error::Address)
    }

    /// Like `resolve`, at `port` unless the address names one.
    pub(crate) fn resolve_at(
        &self,
        port: u16,
        lane: LaneChoice,
    ) -> zerolane::Result<Vec<SocketAddr>> {
        let bare = match self {
            Address::Text(text) => without_port(text),
            Address::Pair(..) | Address::Full(..) => None,
        };
        match bare {
            Some(bare) => lanes::resolve_host(bare, port, lane).map_err(zerolane::Error::Address),
            None => self.resolve(lane),
        }
    }

    /// Resolves without the interpreter.
    pub(crate) fn found(&self, py: Python<'_>, lane: LaneChoice) -> PyResult<Vec<SocketAddr>> {
        let found = py.detach(|| self.resolve(lane));
        found.map_err(|error| crate::errors::of(py, error))
    }
}

/// The host, if `text` has no port.
fn without_port(text: &str) -> Option<&str> {
    if let Some(inside) = text.strip_prefix('[') {
        return inside.strip_suffix(']');
    }
    (!text.contains(':') || text.parse::<IpAddr>().is_ok()).then_some(text)
}

/// The address with that flow, and with that interface unless it has one.
fn full(mut address: SocketAddr, flow: u32, interface: u32) -> SocketAddr {
    if let SocketAddr::V6(it) = &mut address {
        it.set_flowinfo(flow);
        if it.scope_id() == 0 {
            it.set_scope_id(interface);
        }
    }
    address
}

/// Host and port, as for Python's sockets. A link-local host has the number of its interface after a `%`.
pub(crate) fn pair(address: SocketAddr) -> (String, u16) {
    let host = match address {
        SocketAddr::V6(it) if it.scope_id() != 0 => format!("{}%{}", it.ip(), it.scope_id()),
        _ => address.ip().to_string(),
    };
    (host, address.port())
}

/// As text.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Text(text) => f.write_str(text),
            Address::Full(host, port, _, interface) if *interface != 0 && !host.contains('%') => {
                write!(f, "[{host}%{interface}]:{port}")
            }
            Address::Pair(host, port) | Address::Full(host, port, ..) => match host.contains(':') {
                true => write!(f, "[{host}]:{port}"),
                false => write!(f, "{host}:{port}"),
            },
        }
    }
}
