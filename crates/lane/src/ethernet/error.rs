//! Why raw Ethernet does not carry something, in words.

use std::fmt;
use std::io;

/// Why raw Ethernet does not carry a connection, or not any more. It is inside of the [`io::Error`] that says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoEthernet {
    /// The address names no interface, or no hardware address of one host: see
    /// [`EthernetAddress`](crate::EthernetAddress).
    NoAddress,
    /// There is no interface of this name, or with this number, in this network namespace.
    NoInterface(String),
    /// This interface is no Ethernet.
    OtherKind(String),
    /// The hardware address to listen on is not the interface's.
    OtherHost,
    /// Something on this host listens on that port of the interface.
    InUse,
    /// [`Options::device`](crate::Options::device) is another interface's.
    OtherDevice,
    /// This process may not use packet sockets.
    NotPermitted,
    /// The interface is gone: removed, or moved to another network namespace. One that is down, or has another name now, is
    /// not.
    Gone,
}

impl fmt::Display for NoEthernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoEthernet::NoAddress => f.write_str(
                "raw Ethernet needs an address with an interface and a hardware address: ether:IFACE/MAC:PORT, or the \
                 link-local IPv6 address that follows from them, with the interface's number",
            ),
            NoEthernet::NoInterface(which) => {
                write!(f, "there is no interface {which} in this network namespace")
            }
            NoEthernet::OtherKind(name) => write!(f, "the interface {name} is no Ethernet"),
            NoEthernet::OtherHost => f.write_str("the hardware address is not that of the interface"),
            NoEthernet::OtherDevice => f.write_str("the device of the options is another interface's"),
            NoEthernet::InUse => f.write_str("something else listens on that port of the interface"),
            NoEthernet::NotPermitted => f.write_str(
                "raw Ethernet needs CAP_NET_RAW: run as root, or let the program have it with `setcap cap_net_raw+ep PROGRAM`",
            ),
            NoEthernet::Gone => f.write_str("the interface is gone"),
        }
    }
}

impl std::error::Error for NoEthernet {}

impl From<NoEthernet> for io::Error {
    fn from(why: NoEthernet) -> io::Error {
        let kind = match why {
            NoEthernet::NoAddress | NoEthernet::OtherDevice => io::ErrorKind::InvalidInput,
            NoEthernet::NoInterface(_) | NoEthernet::OtherHost => io::ErrorKind::AddrNotAvailable,
            NoEthernet::OtherKind(_) => io::ErrorKind::Unsupported,
            NoEthernet::InUse => io::ErrorKind::AddrInUse,
            NoEthernet::NotPermitted => io::ErrorKind::PermissionDenied,
            NoEthernet::Gone => io::ErrorKind::NetworkDown,
        };
        io::Error::new(kind, why)
    }
}
