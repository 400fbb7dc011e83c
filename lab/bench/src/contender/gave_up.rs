//! Decides whether a failure means that a contender gave up its peer.

use std::fmt;
use std::io::{self, ErrorKind};

use anyhow::Error;
use zerolane::failure::TransferError;

/// The peer did not do in time what it had to, or is gone; in these words.
#[derive(Debug)]
pub(super) struct GaveUp(pub(super) &'static str);

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for GaveUp {}

/// Whether an end failed because its contender gave up: what a bad link brings about. A machine that lacks what a
/// contender needs is no loss of that contender.
pub(crate) fn has_given_up(error: &Error) -> bool {
    error.chain().any(|it| {
        it.is::<GaveUp>()
            || it.is::<TransferError>()
            || it.downcast_ref().is_some_and(of_connection)
            || it.downcast_ref().is_some_and(of_socket)
    })
}

fn of_connection(error: &zerolane::Error) -> bool {
    use zerolane::Error::{Closed, ConnectTimeout, TimedOut, Transfer};
    matches!(
        error,
        Closed(_) | ConnectTimeout(_) | TimedOut(_) | Transfer(_)
    )
}

fn of_socket(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::TimedOut
            | ErrorKind::WouldBlock
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::time::Duration;

    use anyhow::anyhow;
    use zerolane::failure::CloseReason;

    use super::*;
    use crate::cpu;

    #[test]
    fn has_given_up__by_what_a_link_does_not_by_what_a_machine_lacks() {
        let of_links: [Error; 5] = [
            GaveUp("the peer stalled").into(),
            zerolane::Error::ConnectTimeout(Duration::ZERO).into(),
            zerolane::Error::Closed(CloseReason::PeerDead).into(),
            TransferError::Closed(CloseReason::PeerDead).into(),
            io::Error::from(ErrorKind::ConnectionReset).into(),
        ];
        for error in of_links.map(|it| it.context("sending")) {
            assert!(has_given_up(&error), "{error:#}");
        }
        let of_machines: [Error; 4] = [
            cpu::pin(1 << 9).unwrap_err(),
            io::Error::from(ErrorKind::NotFound).into(),
            zerolane::Error::Io(ErrorKind::PermissionDenied.into()).into(),
            anyhow!("a flow's thread panicked"),
        ];
        for error in of_machines {
            assert!(!has_given_up(&error), "{error:#}");
        }
    }
}
