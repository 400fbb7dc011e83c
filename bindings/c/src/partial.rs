//! Reports how much of a request of a worker thread's connection has arrived.

use crate::handle::zl_handle;
use crate::pending::{waited, zl_pending};
use crate::pointer::{Output, handle};
use crate::status::{Failure, guard, zl_status};

/// Writes to `bytes` how many bytes at the start of the request's memory are verified and in
/// place, as zl_arrived does; 0 while the request waits for room. ZL_ERROR_ARGUMENT if it is
/// over, receives nothing, or belongs to another connection.
///
/// Threads: any, also while another waits for the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_arrived(
    connection: *const zl_handle,
    pending: *const zl_pending,
    bytes: *mut u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, pending, output) = unsafe {
            (
                handle(connection, "connection")?,
                handle(pending, "pending")?,
                Output::new(bytes, "bytes")?,
            )
        };
        let arrived = connection.connection().arrived(pending.id).wait()?;
        output.set(arrived.ok_or_else(not_in_progress)?);
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until more than `beyond` bytes of the
/// request have arrived, and writes how many to `bytes`. ZL_TIMEOUT if they did not;
/// ZL_ERROR_ARGUMENT if the request is over: its completion has the result.
///
/// Threads: any, also while another waits for the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_wait_arrived(
    connection: *const zl_handle,
    pending: *const zl_pending,
    beyond: u64,
    timeout_ms: i64,
    bytes: *mut u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, pending, output) = unsafe {
            (
                handle(connection, "connection")?,
                handle(pending, "pending")?,
                Output::new(bytes, "bytes")?,
            )
        };
        let more = connection.connection().wait_arrived(pending.id, beyond);
        let Ok(arrived) = waited(more, timeout_ms) else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(arrived?.ok_or_else(not_in_progress)?);
        Ok(zl_status::ZL_OK)
    })
}

fn not_in_progress() -> Failure {
    Failure::argument("nothing is being received by this request")
}
