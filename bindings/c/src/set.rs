//! Reports which pending requests of a set have ended, by one descriptor.

use crate::connection::{Driver, zl_connection};
use crate::pointer::{Output, Outputs, free, give, handle, timeout};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use zerolane::worker::PendingSet;

/// A set of requests on connections of workers' threads, of any of them: it has the token of each
/// request that is over. After fork it belongs to the parent.
pub struct zl_set(PendingSet);

impl zl_set {
    pub(crate) fn inner(&self) -> &PendingSet {
        &self.0
    }
}

/// Makes a set without requests. Free it with zl_set_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_new(set: *mut *mut zl_set) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(set, "set") }?;
        output.set(give(zl_set(PendingSet::new()?)));
        Ok(zl_status::ZL_OK)
    })
}

/// Makes `set` have `token`, a number of your choice, once request `id` is over: zl_wait_for then
/// returns its completion without waiting, and zl_wait does not. A request is in one set: adding it
/// again replaces its token. ZL_ERROR_ARGUMENT if there is no such request, if its completion was
/// taken, for ZL_WORK_UNSIGNALLED, and unless a worker's thread drives the connection.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_add(
    set: *const zl_set,
    connection: *const zl_connection,
    id: u64,
    token: u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (set, connection) = unsafe { (handle(set, "set")?, handle(connection, "connection")?) };
        match connection.driver() {
            Driver::ByThread(connection) => connection.requests.add_to(&set.0, id, token)?,
            Driver::Here(_) | Driver::ByWorker(_) => {
                return Err(Failure::argument(
                    "no worker's thread drives this connection",
                ));
            }
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Adds `token` now, without a request: ends another thread's zl_set_wait.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_signal(set: *const zl_set, token: u64) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { handle(set, "set") }?.0.signal(token);
        Ok(zl_status::ZL_OK)
    })
}

/// Removes up to `capacity` tokens, at least 1, the oldest first. `count` gets their number;
/// ZL_TIMEOUT if there were none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_poll_batch(
    set: *const zl_set,
    tokens: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (set, outputs) = unsafe {
            (
                handle(set, "set")?,
                Outputs::new(tokens, capacity, "tokens", count)?,
            )
        };
        set.0.check_process()?;
        let mut taken = Vec::new();
        set.0.poll_batch(&mut taken, capacity);
        Ok(outputs.set(taken.into_iter()))
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for a token, removes it and returns
/// it, the oldest first. 0 polls. ZL_TIMEOUT if none came.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_wait(
    set: *const zl_set,
    timeout_ms: i64,
    token: *mut u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (set, output) = unsafe { (handle(set, "set")?, Output::new(token, "token")?) };
        let Some(token) = set.0.wait(timeout(timeout_ms))? else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(token);
        Ok(zl_status::ZL_OK)
    })
}

/// Returns a descriptor that is readable while the set has tokens; -1 if `set` is null. Do not
/// read it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_fd(set: *const zl_set) -> c_int {
    // SAFETY: C's promise about handles.
    unsafe { handle(set, "set") }.map_or(-1, |set| set.0.as_fd().as_raw_fd())
}

/// Frees the set; its requests continue. Null does nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_free(set: *mut zl_set) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(set) };
        Ok(zl_status::ZL_OK)
    });
}
