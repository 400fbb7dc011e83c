//! Requests on the peer's memory that are done at once, where the lane has it mapped: they are over when they are
//! posted.
//!
//! One is done so only if nothing is in progress that it would have to follow; else it is posted behind that, as all
//! are on other lanes.

use super::Driver;
use crate::Lane;
use crate::datapath::RemoteAccess;
use std::mem::MaybeUninit;
use std::time::Duration;
use zerolane_core::{TransferError, TransferId, WorkRequest, limits};

/// Longest that such requests go on without a turn, in which the connection lives: timers fire, a dead peer is missed.
const TURN_INTERVAL: Duration = Duration::from_millis(1);

/// This end's memory of a request.
#[derive(Debug)]
pub(super) enum Local<'a> {
    None,
    Source(&'a [&'a [u8]]),
    Target(&'a mut [MaybeUninit<u8>]),
}

/// A request that was done at once.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) id: TransferId,
    pub(super) result: Result<u64, TransferError>,
    /// The word before an atomic operation.
    pub(super) value: u64,
}

impl<L: Lane> Driver<L> {
    /// Whether the lane may do `request` at once: a first look, that costs other lanes nothing.
    pub(super) fn may_be_direct(&self, request: &WorkRequest) -> bool {
        self.lane.reaches_memory()
            && matches!(
                request,
                WorkRequest::Put {
                    immediate: None,
                    ..
                } | WorkRequest::Get { .. }
                    | WorkRequest::FetchOp { .. }
            )
    }

    /// Does `request` at once. `None`: nothing was done, and it is to be posted.
    pub(super) fn access(&mut self, request: &WorkRequest, local: Local<'_>) -> Option<Direct> {
        // First, for it is all that other lanes do of this.
        if !self.lane.reaches_memory() {
            return None;
        }
        let (at, mut access) = match (*request, local) {
            (
                WorkRequest::Put {
                    place,
                    immediate: None,
                    ..
                },
                Local::Source(parts),
            ) => (place, RemoteAccess::Put(parts)),
            (WorkRequest::Get { place, .. }, Local::Target(into)) => {
                (place, RemoteAccess::Get(into))
            }
            (WorkRequest::FetchOp { place, atomic, .. }, Local::None)
                if place.address.is_multiple_of(8) =>
            {
                (place, RemoteAccess::FetchOp(atomic))
            }
            _ => return None,
        };
        // Who posts and does not look at what completes is refused some time.
        if self.completions.len() >= limits::MAX_POSTED {
            return None;
        }
        if self.clock.now() - self.turned > TURN_INTERVAL {
            // An error shows in the next turn as well.
            self.turn().ok()?;
        }
        if !self.core.follows_nothing() {
            return None;
        }
        let done = self.lane.access(at, &mut access)?;
        let id = self.core.new_id();
        self.account.direct_operations += 1;
        let (result, value) = match done {
            Ok(value) => (Ok(access.len()), value),
            Err(reason) => (Err(TransferError::Refused(reason)), 0),
        };
        self.account.bytes_direct += result.unwrap_or(0);
        Some(Direct { id, result, value })
    }
}
