//! Transfers: one send is one receive.

use crate::completion::zl_completion;
use crate::connection::{drive, with, zl_connection};
use crate::pointer::{Output, Outputs, bytes, bytes_mut, handle, timeout};
use crate::region::{gathered, zl_part, zl_region};
use crate::status::{Failure, zl_status};
use crate::work::{work, zl_work};
use std::ffi::c_void;
use zerolane::{Completion, Connection};

/// Sends `len` bytes at `data` as one Transfer; returns when the peer has all of it.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_send(
    connection: *mut zl_connection,
    data: *const c_void,
    len: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        drive(connection, |connection| {
            connection.send(bytes(data.cast(), len, "data")?)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Receives the next Transfer into `buffer`, and its length into `len`. If it is larger than
/// `capacity`, both ends get ZL_ERROR_TOO_LARGE, nothing is written, and the next one can be
/// received.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_recv_into(
    connection: *mut zl_connection,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        drive(connection, |connection| {
            let output = Output::new(len, "len")?;
            let buffer = bytes_mut(buffer.cast(), capacity, "buffer")?;
            output.set(connection.recv_into_uninit(buffer)?);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until the peer announces a Transfer that no
/// posted receive takes, and tells its length, so that memory of that length can be made.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_announced(
    connection: *mut zl_connection,
    timeout_ms: i64,
    len: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        drive(connection, |connection| {
            let output = Output::new(len, "len")?;
            match connection.announced(timeout(timeout_ms))? {
                Some(length) => output.set(length),
                None => return Ok(zl_status::ZL_TIMEOUT),
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts the send of `len` bytes of `region` from `offset` on; many may be in flight. `how` may be null: it
/// says how the arrival is delivered to the receiver, whether success is reported here, and the context.
/// `id` names the request.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_send(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u32,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let part = handle(region, "region")?.part(offset, len)?.share();
            output.set(connection.post_send_with(part, work(how)?)?);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts the send of `count` parts of regions, one behind the other, as one Transfer with one completion, gathered
/// where they lie. They may overlap; none is a Transfer of no bytes. `how` and `id` as with zl_post_send.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_send_vectored(
    connection: *mut zl_connection,
    parts: *const zl_part,
    count: usize,
    how: *const zl_work,
    id: *mut u32,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let parts = gathered(parts, count)?;
            output.set(connection.post_send_with(parts, work(how)?)?);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts a receive into `len` bytes of `region` from `offset` on: the n-th posted gets the n-th
/// Transfer the peer sends, if it fits. Receives complete as their Transfers do: where a datagram was lost, a
/// later one may be complete first. `how` may be null; ZL_WORK_UNSIGNALLED and its context alone have a
/// meaning here. `id` names the request.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_recv(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u32,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let part = handle(region, "region")?.part(offset, len)?;
            output.set(connection.post_recv_with(part, work(how)?)?);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Makes progress without sleeping, and takes a completion if there is one, else
/// returns ZL_TIMEOUT. It finds ZL_DELIVERY_POLLED completions, too.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_poll(
    connection: *mut zl_connection,
    completion: *mut zl_completion,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe { take(connection, completion, Connection::poll) }
}

/// As zl_poll, for up to `capacity` completions, at least 1: one turn of progress for all of them. `count` says
/// how many there were, ZL_TIMEOUT that there were none.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_poll_batch(
    connection: *mut zl_connection,
    completions: *mut zl_completion,
    capacity: usize,
    count: *mut usize,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        drive(connection, |connection| {
            let outputs = Outputs::new(completions, capacity, "completions", count)?;
            let mut taken = Vec::new();
            connection.poll_batch(&mut taken, capacity)?;
            Ok(outputs.set(taken.into_iter().map(|it| zl_completion::new(0, it))))
        })
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for a completion that wakes, and takes it, or
/// the first of those before it. 0 polls, as zl_poll does. See enum zl_delivery.
///
/// Threads: one at a time; zl_wake of another ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_wait(
    connection: *mut zl_connection,
    timeout_ms: i64,
    completion: *mut zl_completion,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        take(connection, completion, |connection| {
            connection.wait(timeout(timeout_ms))
        })
    }
}

unsafe fn take(
    connection: *mut zl_connection,
    completion: *mut zl_completion,
    take: impl FnOnce(&mut Connection) -> zerolane::Result<Option<Completion>>,
) -> zl_status {
    // SAFETY: the caller's promises.
    unsafe {
        drive(connection, |connection| {
            let output = Output::new(completion, "completion")?;
            match take(connection)? {
                Some(completion) => output.set(zl_completion::new(0, completion)),
                None => return Ok(zl_status::ZL_TIMEOUT),
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Asks to be told of the end of a request, however its sender wants it delivered: zl_wait returns for
/// it, also if it is over and held back. ZL_ERROR_ARGUMENT if there is no such request, or its
/// completion was taken.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_notify(connection: *mut zl_connection, id: u32) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(connection, |connection| {
            if !connection.notify(id) {
                return Err(Failure::argument(format!(
                    "no request {id} is in flight, or waits to be taken"
                )));
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Finishes sending: what was posted is delivered; sends and messages after it return ZL_ERROR_FINISHED, and the
/// peer's receives that none of it meets end with that, now and later. The other direction goes on, and so does all
/// that names memory. While messages wait for receives that the peer does not post, it may not learn of it.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_finish(connection: *mut zl_connection) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(connection, |connection| {
            connection.finish()?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Tells how many bytes at the start of what request `id` receives or gets are verified and in place, long before
/// all of it is: they may be read, and passed on. It never becomes less. What is behind them is undefined.
/// ZL_ERROR_ARGUMENT if no such request is in progress.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_arrived(
    connection: *const zl_connection,
    id: u32,
    bytes: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(bytes, "bytes")?;
            output.set(connection.arrived(id).ok_or_else(|| not_in_progress(id))?);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until more than `beyond` bytes of request `id` have arrived,
/// and tells how many. ZL_TIMEOUT if they did not, or if zl_wake was called; ZL_ERROR_ARGUMENT if the request is
/// over: its completion tells the rest.
///
/// Threads: one at a time; zl_wake of another ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_wait_arrived(
    connection: *mut zl_connection,
    id: u32,
    beyond: u64,
    timeout_ms: i64,
    bytes: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        drive(connection, |connection| {
            let output = Output::new(bytes, "bytes")?;
            match connection.wait_arrived(id, beyond, timeout(timeout_ms))? {
                Some(arrived) => output.set(arrived),
                None if connection.arrived(id).is_some() => return Ok(zl_status::ZL_TIMEOUT),
                None => return Err(not_in_progress(id)),
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

fn not_in_progress(id: u32) -> Failure {
    Failure::argument(format!("nothing is being received by request {id}"))
}

/// Cancels a request, which then ends with ZL_ERROR_CANCELLED and whose memory is not touched any
/// more. ZL_ERROR_ARGUMENT if it is over already.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_cancel(connection: *mut zl_connection, id: u32) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(connection, |connection| {
            if !connection.cancel(id) {
                return Err(Failure::argument(format!("no request {id} is in flight")));
            }
            Ok(zl_status::ZL_OK)
        })
    }
}
