//! Requests on the peer's memory that are done at once, where the lane has it mapped.
//!
//! | in progress | put | get, atomic operation |
//! |---|---|---|
//! | nothing | at once | at once |
//! | immediates alone, whose bytes are in place | its bytes at once, its end behind them; no fence | by the peer |
//! | anything else | by the peer | by the peer |
//!
//! A put with an immediate stores its bytes, and then posts a put of no bytes that brings the immediate. An immediate
//! promises that what was asked for before it is in place when it is shown, and nothing of what was asked for behind it.
//! So the bytes of later puts need not wait for it.
//!
//! The stores of the bytes are sequenced before the store-release with which the record of the immediate is published
//! (`shm/ring.rs`). The peer's load-acquire of that synchronizes with it, so the bytes happen before all that the peer
//! does with the record, on every processor.

use super::Driver;
use crate::Lane;
use crate::datapath::RemoteAccess;
use std::mem::MaybeUninit;
use std::time::Duration;
use zerolane_core::{Ahead, TransferError, TransferId, WorkRequest, limits};

/// Longest that such requests go on without a turn, in which the connection lives: timers fire, a dead peer is missed.
const TURN_INTERVAL: Duration = Duration::from_millis(1);

/// This end's memory of a request.
#[derive(Debug)]
pub(super) enum Local<'a> {
    None,
    Source(&'a [&'a [u8]]),
    Target(&'a mut [MaybeUninit<u8>]),
}

/// What was done at once.
#[derive(Debug)]
pub(super) enum AtOnce {
    /// All of the request.
    Done(Direct),
    /// The bytes of a put, as many as this, are in place. The same put without bytes must be posted: it brings the
    /// immediate, and completes in its turn.
    Placed(u64),
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
                WorkRequest::Put { .. } | WorkRequest::Get { .. } | WorkRequest::FetchOp { .. }
            )
    }

    /// Does `request` at once, or what can be done of it; `signalled`: its success is reported. `None`: nothing was done,
    /// and it must be posted.
    pub(super) fn access(
        &mut self,
        request: &WorkRequest,
        signalled: bool,
        local: Local<'_>,
    ) -> Option<AtOnce> {
        // First, for it is all that other lanes do of this.
        if !self.lane.reaches_memory() {
            return None;
        }
        let (at, mut access) = match (*request, local) {
            (WorkRequest::Put { place, .. }, Local::Source(parts)) => {
                (place, RemoteAccess::Put(parts))
            }
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
        let is_posted = match self.core.ahead() {
            Ahead::Work => return None,
            Ahead::Nothing => brings_immediate(request),
            Ahead::Notices if passes_notices(request) => brings_immediate(request) || signalled,
            Ahead::Notices => return None,
        };
        // Before anything is stored: what is refused must change nothing.
        if is_posted && self.core.room_for_operations() == 0 {
            return None;
        }
        let done = self.lane.access(at, &mut access)?;
        self.account.direct_operations += 1;
        let (result, value) = match done {
            Ok(value) => (Ok(access.len()), value),
            Err(reason) => (Err(TransferError::Refused(reason)), 0),
        };
        self.account.bytes_direct += result.unwrap_or(0);
        match result {
            Ok(len) if is_posted => Some(AtOnce::Placed(len)),
            result => {
                let id = self.core.new_id();
                Some(AtOnce::Done(Direct { id, result, value }))
            }
        }
    }
}

fn brings_immediate(request: &WorkRequest) -> bool {
    let immediate = match request {
        WorkRequest::Put { immediate, .. } => *immediate,
        _ => None,
    };
    immediate.is_some()
}

/// Whether it may be done while immediates are in progress. What a get or an atomic operation returns is there when it
/// completes, and it completes in its turn.
fn passes_notices(request: &WorkRequest) -> bool {
    matches!(request, WorkRequest::Put { flags, .. } if !flags.fence)
}
