//! Waits for requests on connections of a worker's thread.

use crate::completion::zl_completion;
use crate::owned::Owned;
use crate::pointer::{Output, free, give, handle, timeout};
use crate::status::{Failure, guard, zl_status};
use std::ptr;
use zerolane::memory::Memory;
use zerolane::worker::{Outcome, Pending, PendingSet};
use zerolane::{Completion, Region, RequestId};

/// A request of a zl_handle, to wait for.
pub struct zl_pending {
    /// `None` once its result was returned.
    pending: Owned<Option<Waited>>,
    pub(crate) id: RequestId,
}

struct Waited {
    answer: Pending<Completion>,
    /// The memory of a receive.
    place: Option<Region>,
}

impl zl_pending {
    /// A request; `place` is its memory if it receives.
    pub(crate) fn give(answer: Pending<Completion>, place: Option<Region>) -> *mut zl_pending {
        give(zl_pending {
            id: answer.id(),
            pending: Owned::new(Some(Waited { answer, place })),
        })
    }

    /// Makes `set` have `token` once the result is there.
    pub(crate) fn add_to(&self, set: &PendingSet, token: u64) -> Result<(), Failure> {
        match self.pending.enter()?.as_mut() {
            Some(waited) => Ok(set.add(&mut waited.answer, token)?),
            None => Err(returned()),
        }
    }
}

fn returned() -> Failure {
    Failure::argument("the completion was already reported")
}

/// The completion for C. What came for a receive that was given up comes in the memory of that receive; C looks for it
/// in `place`, the memory of this one.
fn completed(ended: Completion, place: Option<Region>) -> zl_completion {
    let length = ended.result.unwrap_or(0);
    let Some(mut place) = place.filter(|_| length > 0) else {
        return zl_completion::new(0, ended);
    };
    if length > place.len() {
        return zl_completion {
            status: zl_status::ZL_ERROR_TOO_LARGE,
            length: 0,
            ..zl_completion::new(0, ended)
        };
    }
    // C's memory always has a slice.
    let memory = ended.memory().and_then(Memory::as_slice);
    if let Some(memory) = memory.map(<[u8]>::as_ptr)
        && memory != place.as_ptr()
    {
        // SAFETY: the completion holds `length` received bytes, `place` at least as many. They may overlap.
        unsafe { ptr::copy(memory, place.as_mut_ptr(), length) };
    }
    zl_completion::new(0, ended)
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for a worker's answer.
///
/// # Errors
/// There is no answer yet: returns `pending`.
pub(crate) fn waited<T>(
    mut pending: Pending<T>,
    timeout_ms: i64,
) -> Result<Outcome<T>, Pending<T>> {
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
        let mut untaken = pending.pending.enter()?;
        let Some(taken) = untaken.take() else {
            return Err(returned());
        };
        match waited(taken.answer, timeout_ms) {
            Ok(ended) => output.set(completed(ended?, taken.place)),
            Err(answer) => {
                *untaken = Some(Waited { answer, ..taken });
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
