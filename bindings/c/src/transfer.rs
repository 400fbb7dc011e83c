//! Transfers: one send is one receive.

use crate::completion::{read_delivery, zl_completion};
use crate::connection::{with, zl_connection};
use crate::pointer::{Output, bytes, bytes_mut, handle, timeout};
use crate::region::zl_region;
use crate::status::{Failure, zl_status};
use std::ffi::c_void;
use zerolane::{Completion, Connection, Region, TransferId};

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
        with(connection, |connection| {
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
pub unsafe extern "C" fn zl_receive(
    connection: *mut zl_connection,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(len, "len")?;
            output.set(connection.recv_into(bytes_mut(buffer.cast(), capacity, "buffer")?)?);
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
        with(connection, |connection| {
            let output = Output::new(len, "len")?;
            match connection.announced(timeout(timeout_ms))? {
                Some(length) => output.set(length),
                None => return Ok(zl_status::ZL_TIMEOUT),
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts the send of `len` bytes of `region` from `offset` on; many may be in flight. `id` names it.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_send(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    id: *mut u32,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        post(connection, region, offset, len, id, |connection, region| {
            Ok(connection.post_send(region.share())?)
        })
    }
}

/// As zl_post_send, and the peer's receive is delivered there as `delivery` says, a value of enum
/// zl_delivery: whether it is an event, and wakes. zl_post_send asks for ZL_DELIVERY_INTERRUPT.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_send_with(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    delivery: u32,
    id: *mut u32,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        post(connection, region, offset, len, id, |connection, region| {
            Ok(connection.post_send_with(region.share(), read_delivery(delivery)?)?)
        })
    }
}

/// Posts a receive into `len` bytes of `region` from `offset` on: the n-th posted gets the n-th
/// Transfer the peer sends, if it fits. `id` names it.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_receive(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    id: *mut u32,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        post(connection, region, offset, len, id, |connection, region| {
            Ok(connection.post_recv(region)?)
        })
    }
}

unsafe fn post(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    id: *mut u32,
    post: impl FnOnce(&mut Connection, Region) -> Result<TransferId, Failure>,
) -> zl_status {
    // SAFETY: the caller's promises.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let part = handle(region, "region")?.part(offset, len)?;
            output.set(post(connection, part)?);
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
        with(connection, |connection| {
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
