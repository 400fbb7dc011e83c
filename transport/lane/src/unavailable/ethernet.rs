//! Defines the reasons why raw Ethernet is not available, and their messages.

use crate::unavailable::NoXdp;
use std::fmt;
use std::io;

/// Why raw Ethernet does not carry a connection, or no longer does. It is inside the [`io::Error`] that reports it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoEthernet {
    /// The address names no interface, or no hardware address of a single host: see
    /// [`EthernetAddress`](crate::address::EthernetAddress).
    NoAddress,
    /// The address belongs to raw Ethernet, and another lane was chosen.
    OtherLane,
    /// This network namespace has no interface with this name or index.
    NoInterface(String),
    /// No listener behind the interface claims this host name.
    NoNeighbour(String),
    /// Several hosts claim this name: the name, and their hardware addresses.
    SeveralNeighbours(String),
    /// This interface is not Ethernet.
    OtherKind(String),
    /// The hardware address to listen on does not belong to the interface.
    OtherHost,
    /// Another listener of this host has that port of the interface.
    InUse,
    /// [`LaneOptions::device`](crate::options::LaneOptions::device) belongs to another interface.
    OtherDevice,
    /// Several paths were requested ([`PathOptions::most`](crate::options::PathOptions::most),
    /// [`PathOptions::links`](crate::options::PathOptions::links)) with a
    /// [`LaneOptions::device`](crate::options::LaneOptions::device), whose connections have one path each.
    OnePath,
    /// This process may not use packet sockets.
    NotPermitted,
    /// The interface is gone: removed, or moved to another network namespace. An interface that is down, or was
    /// renamed, does not count.
    Gone,
    /// AF_XDP is refused for an [`EthernetDevice`](crate::ethernet::EthernetDevice): the part refused, and the system's reason.
    Refused {
        /// The part of AF_XDP.
        what: &'static str,
        /// The system's reason (errno); 0: none.
        errno: i32,
    },
    /// The driver does not run the device's program.
    Program(NoXdp),
    /// The driver has no zero-copy mode, and the options forbid a copy of each frame by the kernel: see
    /// [`DeviceOptions::zero_copy`](crate::ethernet::DeviceOptions::zero_copy).
    Copies,
    /// The device has no place for another connection: see
    /// [`DeviceOptions::max_connections`](crate::ethernet::DeviceOptions::max_connections).
    Full,
}

impl NoEthernet {
    /// The error for a part of AF_XDP, `what`, that the system refused.
    pub(crate) fn refused(what: &'static str, error: &io::Error) -> NoEthernet {
        let errno = error.raw_os_error().unwrap_or(0);
        NoEthernet::Refused { what, errno }
    }
}

impl fmt::Display for NoEthernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoEthernet::NoAddress => f.write_str(
                "raw Ethernet needs an address with an interface and a hardware address: ether:IFACE/MAC:PORT (ether:IFACE:PORT \
                 to listen on), or the link-local IPv6 address that follows from them, with the interface's number",
            ),
            NoEthernet::OtherLane => {
                f.write_str("an address ether:IFACE... needs raw Ethernet, but another lane was chosen")
            }
            NoEthernet::NoInterface(which) => {
                write!(f, "there is no interface {which} in this network namespace")
            }
            NoEthernet::NoNeighbour(name) => {
                write!(f, "no listener on the segment is called {name}")
            }
            NoEthernet::SeveralNeighbours(which) => {
                write!(f, "several hosts on the segment are called {which}")
            }
            NoEthernet::OtherKind(name) => write!(f, "interface {name} is not Ethernet"),
            NoEthernet::OtherHost => f.write_str("the interface has another hardware address"),
            NoEthernet::OtherDevice => f.write_str("the device of the options belongs to another interface"),
            NoEthernet::OnePath => f.write_str(
                "a connection that bypasses the kernel's network stack has one path: leave out the device \
                 (--bypass never) or the other paths",
            ),
            NoEthernet::InUse => f.write_str("another listener has that port of the interface"),
            NoEthernet::NotPermitted => f.write_str(
                "raw Ethernet needs CAP_NET_RAW: run as root, or grant it with `setcap cap_net_raw+ep PROGRAM`",
            ),
            NoEthernet::Gone => f.write_str("the interface is gone"),
            NoEthernet::Program(why) => write!(f, "AF_XDP is refused: {why}"),
            NoEthernet::Refused { what, errno } => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "AF_XDP is refused: {what}: {error}")?;
                match *errno {
                    libc::EPERM | libc::EACCES => f.write_str("; it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"),
                    libc::ENOBUFS | libc::ENOMEM => f.write_str("; it needs more locked memory than allowed (`ulimit -l`)"),
                    libc::EBUSY => f.write_str("; another program has that queue"),
                    libc::EAFNOSUPPORT => f.write_str("; this kernel has no AF_XDP"),
                    _ => Ok(()),
                }
            }
            NoEthernet::Copies => f.write_str(
                "AF_XDP is refused: the driver has no zero-copy mode for this queue, and the options forbid the kernel to copy each frame \
                 (DeviceOptions::zero_copy)",
            ),
            NoEthernet::Full => {
                f.write_str("the device has no room for another connection (DeviceOptions::max_connections)")
            }
        }
    }
}

impl std::error::Error for NoEthernet {}

impl From<NoEthernet> for io::Error {
    fn from(why: NoEthernet) -> io::Error {
        let kind = match why {
            NoEthernet::NoAddress
            | NoEthernet::OtherLane
            | NoEthernet::OtherDevice
            | NoEthernet::OnePath => io::ErrorKind::InvalidInput,
            NoEthernet::NoInterface(_)
            | NoEthernet::OtherHost
            | NoEthernet::NoNeighbour(_)
            | NoEthernet::SeveralNeighbours(_) => io::ErrorKind::AddrNotAvailable,
            NoEthernet::OtherKind(_) | NoEthernet::Copies => io::ErrorKind::Unsupported,
            NoEthernet::InUse => io::ErrorKind::AddrInUse,
            NoEthernet::NotPermitted => io::ErrorKind::PermissionDenied,
            NoEthernet::Gone => io::ErrorKind::NetworkDown,
            NoEthernet::Refused { errno, .. } => io::Error::from_raw_os_error(errno).kind(),
            NoEthernet::Program(why) => return why.into(),
            NoEthernet::Full => io::ErrorKind::QuotaExceeded,
        };
        io::Error::new(kind, why)
    }
}

/// Why frames of a connection with a device do not use AF_XDP, although it was requested:
/// [`EthernetDevice::refused`](crate::ethernet::EthernetDevice::refused) has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoBypass {
    /// The interface has another XDP program.
    Taken,
    /// This process may not load a program into the driver, or open such sockets.
    NotPermitted,
    /// This kernel refuses the program.
    NoProgram,
    /// The system refused a part of AF_XDP: its reason (errno); 0: none.
    Refused(i32),
    /// The driver has no zero-copy mode, and the options forbid a copy of each frame by the kernel.
    Copies,
    /// The device has no place for another connection.
    Full,
}

impl NoBypass {
    /// The short form of `why` there is no AF_XDP.
    pub(crate) fn of(why: &NoEthernet) -> NoBypass {
        match why {
            NoEthernet::Program(NoXdp::Taken) => NoBypass::Taken,
            NoEthernet::Program(NoXdp::NotPermitted) | NoEthernet::NotPermitted => {
                NoBypass::NotPermitted
            }
            NoEthernet::Program(NoXdp::Refused(_)) => NoBypass::NoProgram,
            NoEthernet::Refused { errno, .. } => NoBypass::Refused(*errno),
            NoEthernet::Copies => NoBypass::Copies,
            NoEthernet::Full => NoBypass::Full,
            _ => NoBypass::Refused(0),
        }
    }
}

impl fmt::Display for NoBypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoBypass::Taken => {
                f.write_str("the interface has an XDP program already: `ip link show` says which")
            }
            NoBypass::NotPermitted => f.write_str(
                "AF_XDP needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW: run as root",
            ),
            NoBypass::NoProgram => {
                f.write_str("this kernel refuses the program that AF_XDP needs")
            }
            NoBypass::Refused(0) => f.write_str("AF_XDP is refused"),
            NoBypass::Refused(errno) => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "the system refuses AF_XDP: {error}")
            }
            NoBypass::Copies => f.write_str(
                "the driver has no zero-copy mode, and the options forbid the kernel to copy each frame",
            ),
            NoBypass::Full => f.write_str("the device has no room for another connection"),
        }
    }
}
