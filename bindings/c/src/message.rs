//! Sends and receives messages: up to 128 bytes of control, with or without payload.

use crate::completion::ZL_CONTROL_LENGTH;
use crate::connection::{drive, post, zl_connection};
use crate::pointer::{Output, bytes, bytes_mut, handle};
use crate::region::{gathered, zl_part, zl_region};
use crate::status::{Failure, zl_status};
use crate::work::{MESSAGE, MESSAGE_RECEIVE, zl_work};
use std::ffi::c_void;
use zerolane::Region;
use zerolane::memory::Memory;
use zerolane::request::{MessageInline, ReceiveMessage};

/// The payload in `region`; none if it is null.
///
/// # Safety
/// As for [`handle`].
unsafe fn payload(
    region: *const zl_region,
    offset: usize,
    len: usize,
) -> Result<Option<Region>, Failure> {
    if region.is_null() && offset == 0 && len == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { handle(region, "region") }?
        .part(offset, len)
        .map(Some)
}

/// Sends a message: `control_len` bytes of control, at most ZL_CONTROL_LENGTH, and `len` bytes
/// of payload; for none, null and 0. Returns when the peer has received it. ZL_ERROR_TOO_LARGE if
/// the peer's receive was smaller.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_send_message(
    connection: *mut zl_connection,
    control: *const c_void,
    control_len: usize,
    payload: *const c_void,
    len: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        drive(connection, |connection| {
            let control = bytes(control.cast(), control_len, "control")?;
            let content = bytes(payload.cast(), len, "payload")?;
            connection.send_message(control, (!payload.is_null()).then_some(content))?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Receives the next message. `control` has room for ZL_CONTROL_LENGTH bytes; `control_len`
/// gets their number. `payload` has room for `capacity` bytes; if no payload is expected, null and
/// 0. `len` gets the payload's length.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_recv_message(
    connection: *mut zl_connection,
    control: *mut c_void,
    control_len: *mut usize,
    payload: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        drive(connection, |connection| {
            let place = bytes_mut(control.cast(), ZL_CONTROL_LENGTH, "control")?;
            let control_output = Output::new(control_len, "control_len")?;
            let output = Output::new(len, "len")?;
            let room = bytes_mut(payload.cast(), capacity, "payload")?;
            let message = connection.recv_message_uninit((!payload.is_null()).then_some(room))?;
            place[..message.control.len()].write_copy_of_slice(&message.control);
            control_output.set(message.control.len());
            output.set(message.payload);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts a zl_send_message. Its payload is `len` bytes of `region` from `offset`; for none, null
/// and twice 0. The control is copied before the call returns. `how` may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_message(
    connection: *mut zl_connection,
    control: *const c_void,
    control_len: usize,
    region: *const zl_region,
    offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &MESSAGE), |how| {
            let control = bytes(control.cast(), control_len, "control")?;
            let payload = payload(region, offset, len)?.map(|it| Memory::from(it.share()));
            Ok(how.message(control, payload))
        })
    }
}

/// Posts a zl_send_message. Its payload is a copy of `len` bytes at `payload`, at most
/// ZL_INLINE_LENGTH; you may reuse `control` and `payload` at once. With ZL_WORK_UNSIGNALLED it
/// has no completion unless it fails. `how` may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_message_inline(
    connection: *mut zl_connection,
    control: *const c_void,
    control_len: usize,
    payload: *const c_void,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &MESSAGE), |how| {
            let control = bytes(control.cast(), control_len, "control")?;
            let payload = bytes(payload.cast(), len, "payload")?;
            let message = MessageInline::new(control.to_vec(), payload.to_vec());
            let message = message.context(how.context).signalled(how.signalled);
            Ok(message.fence(how.fence))
        })
    }
}

/// Posts a zl_send_message. Its payload is `count` parts of regions, one after another,
/// gathered in place. Parts may overlap; no parts make a message without payload. The control
/// is copied before the call returns. `how` may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_message_vectored(
    connection: *mut zl_connection,
    control: *const c_void,
    control_len: usize,
    parts: *const zl_part,
    count: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &MESSAGE), |how| {
            let control = bytes(control.cast(), control_len, "control")?;
            Ok(how.message(control, Some(gathered(parts, count)?)))
        })
    }
}

/// Posts a receive of a message, with its payload into `len` bytes of `region` from `offset`; if
/// no payload is expected, null and twice 0. The n-th receive gets the peer's n-th message. Its
/// completion has the control. `how` may be null, or have a context.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_message_recv(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        post(connection, id, (how, &MESSAGE_RECEIVE), |how| {
            let receive = ReceiveMessage::new().payload(payload(region, offset, len)?);
            Ok(receive.context(how.context))
        })
    }
}
