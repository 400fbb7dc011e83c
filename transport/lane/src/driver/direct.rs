//! Carries out requests on the peer's memory at once, if the lane has mapped it.
//!
//! | in progress | put | get, atomic operation |
//! |---|---|---|
//! | nothing | at once | at once |
//! | only immediates with their bytes in place | bytes at once, completion after them; not with a fence | by the peer |
//! | anything else | by the peer | by the peer |
//!
//! A put with an immediate stores its bytes, and then posts a put without bytes that carries the immediate, and the
//! number of bytes. An immediate promises that all earlier requests are in place when it is shown. It promises nothing about later ones, so
//! the bytes of later puts need not wait for it.
//!
//! The stores of the bytes are sequenced before the store-release that publishes the record of the immediate
//! (`shm/ring.rs`). The peer's load-acquire synchronizes with that store-release, so the bytes happen before everything
//! that the peer does with the record, on every processor.

use super::{Driver, Step};
use crate::lane::{Lane, RemoteAccess};
use std::mem::MaybeUninit;
use std::time::Duration;
use zerolane_core::{Ahead, TransferError, TransferId, WorkRequest, limits};

/// Longest time that such requests continue without a turn. The connection needs turns to fire timers and to detect a
/// dead peer.
const TURN_INTERVAL: Duration = Duration::from_millis(1);

/// This end's memory of a request.
#[derive(Debug)]
pub(super) enum Local<'a> {
    None,
    Source(&'a [&'a [u8]]),
    Target(&'a mut [MaybeUninit<u8>]),
}

/// The part of a request that was done at once.
#[derive(Debug)]
pub(super) enum AtOnce {
    /// The whole request.
    Done(Direct),
    /// The bytes of a put, this many, are in place. The caller must post the rest of it: it carries the immediate, and
    /// completes in order.
    Placed(u64),
}

/// A request that was done at once.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) id: TransferId,
    pub(super) result: Result<u64, TransferError>,
    /// The old word of an atomic operation.
    pub(super) value: u64,
}

impl<L: Lane> Driver<L> {
    /// Whether the lane may carry out `request` at once: a cheap first test for lanes that cannot.
    pub(super) fn may_be_direct(&self, request: &WorkRequest<'_>) -> bool {
        self.lane.reaches_memory()
            && matches!(
                request,
                WorkRequest::Put { .. } | WorkRequest::Get { .. } | WorkRequest::FetchOp { .. }
            )
    }

    /// Carries out `request`, or a part of it, at once; `signalled`: its success is reported. `None` if nothing was
    /// done, and the caller must post the request.
    pub(super) fn access(
        &mut self,
        request: &WorkRequest<'_>,
        signalled: bool,
        local: Local<'_>,
    ) -> Option<AtOnce> {
        // Tested first: other lanes do no more than this.
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
                if place.address.is_multiple_of(atomic.word.bytes().into()) =>
            {
                (place, RemoteAccess::FetchOp(atomic))
            }
            _ => return None,
        };
        // A caller that never takes completions eventually gets `Full`.
        if self.completions.len() >= limits::MAX_POSTED {
            return None;
        }
        if self.clock.now() - self.turned > TURN_INTERVAL {
            // The next turn reports the error as well.
            self.turn(Step::Whole).ok()?;
        }
        let is_posted = match self.core.ahead() {
            Ahead::Work => return None,
            Ahead::Nothing => brings_immediate(request),
            Ahead::Notices if passes_notices(request) => brings_immediate(request) || signalled,
            Ahead::Notices => return None,
        };
        // Tested before any store: a refused request must change nothing.
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

fn brings_immediate(request: &WorkRequest<'_>) -> bool {
    let immediate = match request {
        WorkRequest::Put { immediate, .. } => *immediate,
        _ => None,
    };
    immediate.is_some()
}

/// Whether the request may be done while immediates are in progress. A get or an atomic operation may not: its result
/// must be valid at its completion, which comes in order.
fn passes_notices(request: &WorkRequest<'_>) -> bool {
    matches!(request, WorkRequest::Put { flags, .. } if !flags.fence)
}
