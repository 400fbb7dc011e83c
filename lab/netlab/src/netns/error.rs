//! Defines the errors of making and using namespaces.

use std::io;
use std::time::Duration;

/// Result of a namespace operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a namespace operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process may not make or enter network namespaces.
    #[error(
        "not permitted to use network namespaces (needs root or CAP_SYS_ADMIN and CAP_NET_ADMIN): {0}"
    )]
    NotPermitted(String),
    /// The prefix is not 1 to 8 characters from a-z and 0-9.
    #[error("bad prefix {0:?}: it must be 1 to 8 characters from a-z and 0-9")]
    BadPrefix(String),
    /// A star of too few or too many hosts.
    #[error("{0} hosts: a star has 2 to {max}", max = super::MAX_HOSTS)]
    BadHostCount(usize),
    /// Hosts of no interface, or of too many.
    #[error("{0} interfaces: a host has 1 to {max}", max = super::MAX_INTERFACES)]
    BadInterfaceCount(usize),
    /// Frames that are put out together at once, or too late.
    #[error("{0:?}: frames can be held for 1 us to 10 ms and sent together")]
    BadModeration(Duration),
    /// The system refused something else: it may say more than its number, as in `mtu greater than device maximum`.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Wraps the system's error, naming what was tried. A lack of rights
    /// becomes [`Error::NotPermitted`].
    pub(crate) fn io(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NotPermitted(format!("cannot {action}"))
        } else {
            Self::Io { action, source }
        }
    }
}
