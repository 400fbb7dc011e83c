//! Defines the reasons why IP protocol 118 is not available, and their messages.

use std::fmt;
use std::io;

/// Why IP protocol 118 does not carry a connection. It is inside the [`io::Error`] that reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoIp118 {
    /// This process may not use raw sockets.
    NotPermitted,
    /// Another listener of this host has that port of the protocol's header, at any address.
    InUse,
}

impl fmt::Display for NoIp118 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoIp118::NotPermitted => {
                "IP protocol 118 needs CAP_NET_RAW: run as root, or grant it with \
                 `setcap cap_net_raw+ep PROGRAM`"
            }
            NoIp118::InUse => "another listener has that port of IP protocol 118",
        })
    }
}

impl std::error::Error for NoIp118 {}

impl From<NoIp118> for io::Error {
    fn from(why: NoIp118) -> io::Error {
        let kind = match why {
            NoIp118::NotPermitted => io::ErrorKind::PermissionDenied,
            NoIp118::InUse => io::ErrorKind::AddrInUse,
        };
        io::Error::new(kind, why)
    }
}
