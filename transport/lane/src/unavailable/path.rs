//! Says why a path cannot be added.

use super::NoEthernet;
use std::{fmt, io};

/// Why a path could not be added. See [`Account::no_path`](crate::account::Account::no_path).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoPath {
    /// The connection already has as many paths as both ends accept.
    Full,
    /// This process may not open packet sockets, which a path over raw Ethernet needs.
    NotPermitted,
    /// The interface is gone, or is not Ethernet.
    NoInterface,
    /// The path is over UDP and the first is over raw Ethernet, so the path must name an address of the peer, and does
    /// not.
    NoAddress,
    /// Another path of the connection connects these two interfaces by raw Ethernet.
    Taken,
    /// The system refused a socket or a thread, with this errno; 0: without one.
    Refused(i32),
}

impl From<io::Error> for NoPath {
    fn from(error: io::Error) -> NoPath {
        match error.get_ref().and_then(|it| it.downcast_ref()) {
            Some(NoEthernet::NotPermitted) => NoPath::NotPermitted,
            Some(_) => NoPath::NoInterface,
            None => NoPath::Refused(error.raw_os_error().unwrap_or(0)),
        }
    }
}

impl fmt::Display for NoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPath::Full => f.write_str("both ends allow no more paths"),
            NoPath::NotPermitted => NoEthernet::NotPermitted.fmt(f),
            NoPath::NoInterface => f.write_str("the interface of the path is gone, or not Ethernet"),
            NoPath::NoAddress => f.write_str(
                "the first path is over raw Ethernet: a path over UDP must name the peer's IP address, as in 192.0.2.1=192.0.2.2",
            ),
            NoPath::Taken => f.write_str(
                "another path over raw Ethernet already joins these two interfaces",
            ),
            NoPath::Refused(0) => f.write_str("the system refuses the path"),
            NoPath::Refused(errno) => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "the system refuses the path: {error}")
            }
        }
    }
}
