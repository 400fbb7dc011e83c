//! Classifies errors: the listener's, the system's, or an unauthenticated peer's.

use crate::socket::icmp;
use crate::unavailable::NoEthernet;
use std::io;

/// Whether the process, the system or the device has exhausted a resource that a connection needs.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|it| it.downcast_ref());
    if let Some(NoEthernet::Full | NoEthernet::Refused { .. }) = why {
        return true;
    }
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC)
    )
}

/// A lane to a peer; `None` if the peer cannot be reached.
pub(super) fn reachable<L>(lane: io::Result<L>) -> io::Result<Option<L>> {
    match lane {
        Ok(lane) => Ok(Some(lane)),
        Err(error) if is_peers(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it belongs to an earlier answer, or to a peer that is not there.
pub(super) fn is_peers(error: &io::Error) -> bool {
    icmp::report(error).is_some()
        || matches!(
            error.raw_os_error(),
            Some(libc::ENETDOWN | libc::EPERM | libc::EINTR)
        )
}
