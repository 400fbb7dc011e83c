//! Requests on handles of connections that a worker's thread moves.

use crate::completion::zl_completion;
use crate::owned::Owned;
use crate::pointer::{Output, free, give, handle, timeout};
use crate::status::{Failure, guard, zl_status};
use zerolane::Completion;
use zerolane::worker::{Pending, Refused, RequestId};

/// A request of a zl_handle that was not waited for yet.
pub struct zl_pending {
    /// None when its end was told.
    pending: Owned<Option<Pending<Completion>>>,
    pub(crate) id: RequestId,
}

impl zl_pending {
    pub(crate) fn give(pending: Pending<Completion>) -> *mut zl_pending {
        give(zl_pending {
            id: pending.id(),
            pending: Owned::new(Some(pending)),
        })
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for what a worker was asked for.
///
/// # Errors
/// It is not there yet; what to wait for on.
pub(crate) fn waited<T>(
    mut pending: Pending<T>,
    timeout_ms: i64,
) -> Result<Result<T, Refused>, Pending<T>> {
    match timeout(timeout_ms) {
        None => Ok(pending.wait()),
        Some(timeout) => pending.wait_for(timeout).ok_or(pending),
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the end of the request, and tells how it ended. After
/// ZL_TIMEOUT it goes on. After another status it is over, and is only to be freed: a failure says that the worker or
/// the connection refused it, or is no more; one of the request itself is in `status` of the completion, whose id
/// and tag are the worker's and without a meaning here.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pending_wait(
    pending: *mut zl_pending,
    timeout_ms: i64,
    completion: *mut zl_completion,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (pending, output) = unsafe {
            (
                handle(pending, "pending")?,
                Output::new(completion, "completion")?,
            )
        };
        let mut place = pending.pending.enter()?;
        let Some(taken) = place.take() else {
            return Err(Failure::argument("its end was told already"));
        };
        match waited(taken, timeout_ms) {
            Ok(ended) => output.set(zl_completion::new(0, ended?)),
            Err(goes_on) => {
                *place = Some(goes_on);
                return Ok(zl_status::ZL_TIMEOUT);
            }
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Frees it. Null does nothing. A request that is not over is cancelled, in the background: memory of
/// zl_region_new and zl_region_map_file stays until then, but that of zl_region_wrap must stay until zl_pending_wait
/// told the end, or the worker's thread has ended. A Transfer or message that came by then is the next one's.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pending_free(pending: *mut zl_pending) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(pending) };
        Ok(zl_status::ZL_OK)
    });
}
