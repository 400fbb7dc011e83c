//! Why there is no program in the driver, in words.

use std::fmt;
use std::io;

/// Why the program that validates frames does not run at an interface. It is inside of the [`io::Error`] that says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoXdp {
    /// Another XDP program is attached to the interface.
    Taken,
    /// There is no such interface in this network namespace.
    NoInterface,
    /// This process may not load programs into the kernel.
    NotPermitted,
    /// This kernel does not take it: what it said.
    Refused(String),
}

impl fmt::Display for NoXdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoXdp::Taken => f.write_str("the interface has an XDP program already"),
            NoXdp::NoInterface => f.write_str("there is no such interface in this network namespace"),
            NoXdp::NotPermitted => f.write_str(
                "validation in the driver needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: run as root",
            ),
            NoXdp::Refused(what) => {
                write!(f, "this kernel does not take the program that validates frames: {what}")
            }
        }
    }
}

impl std::error::Error for NoXdp {}

impl From<NoXdp> for io::Error {
    fn from(why: NoXdp) -> io::Error {
        let kind = match why {
            NoXdp::Taken => io::ErrorKind::ResourceBusy,
            NoXdp::NoInterface => io::ErrorKind::AddrNotAvailable,
            NoXdp::NotPermitted => io::ErrorKind::PermissionDenied,
            NoXdp::Refused(_) => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, why)
    }
}

/// What an error on the way to a program means, by the system call that is at its root.
pub(super) fn refused(error: &(dyn std::error::Error + 'static)) -> NoXdp {
    let mut at = Some(error);
    let mut root = None;
    while let Some(error) = at {
        let code = error.downcast_ref::<io::Error>();
        root = code.and_then(io::Error::raw_os_error).or(root);
        at = error.source();
    }
    match root {
        Some(libc::EPERM | libc::EACCES) => NoXdp::NotPermitted,
        Some(libc::EBUSY | libc::EEXIST) => NoXdp::Taken,
        Some(libc::ENODEV) => NoXdp::NoInterface,
        _ => NoXdp::Refused(error.to_string()),
    }
}
