//! Waits for requests on connections of a worker's thread.

use crate::completion::zl_completion;
use crate::owned::Owned;
use crate::pointer::{Output, free, give, handle, timeout};
use crate::status::{Failure, guard, zl_status};
use zerolane::Completion;
use zerolane::worker::{Pending, Refused, RequestId};

/// A request of a zl_handle, to wait for.
pub struct zl_pending {
    /// `None` once its result was returned.
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

/// Waits `timeout_ms` milliseconds (negative: no limit) for a worker's answer.
///
/// # Errors
/// There is no answer yet: returns `pending`.
pub(crate) fn waited<T>(
    mut pending: Pending<T>,
    timeout_ms: i64,
) -> Result<Result<T, Refused>, Pending<T>> {
    match timeout(timeout_ms) {
        None => Ok(pending.wait()),
        Some(timeout) => pending.wait_for(timeout).ok_or(pending),
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the request and writes its
/// completion, whose id and tag have no meaning here. After ZL_TIMEOUT the request continues.
/// After any other result it is over: free it. The result of the request itself is the `status`
/// of the completion; this function fails if the worker or the connection refused the request
/// or has ended.
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
            return Err(Failure::argument("the completion was already reported"));
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

/// Frees it. Null does nothing. A request that is not over is cancelled in the background, and
/// uses its memory until then: free wrapped memory in its `release` (zl_region_wrap). A Transfer
/// or message that has come by then goes to the next receive.
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
