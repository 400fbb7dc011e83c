//! Defines the reasons why no program runs in the driver, and their messages.

use std::fmt;
use std::io;

/// Why the program that validates frames does not run at an interface. It is inside the [`io::Error`] that reports it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NoXdp {
    /// Another XDP program is attached to the interface.
    Taken,
    /// This network namespace has no such interface.
    NoInterface,
    /// This process may not load programs into the kernel.
    NotPermitted,
    /// This kernel refuses the program, with this message.
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
                write!(f, "this kernel refuses the program that validates frames: {what}")
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

impl NoXdp {
    /// The meaning of an error on the way to a program, by the system call at its root.
    pub(crate) fn of(error: &(dyn std::error::Error + 'static)) -> NoXdp {
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
}
