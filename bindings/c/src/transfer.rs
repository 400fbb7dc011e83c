//! Sends and receives Transfers, and takes completions of a connection.

use crate::completion::zl_completion;
use crate::connection::{drive, with, zl_connection};
use crate::pointer::{Output, Outputs, bytes, bytes_mut, handle, timeout};
use crate::region::{gathered, zl_part, zl_region};
use crate::status::{Failure, zl_status};
use crate::work::{SEND, ZL_WORK_UNSIGNALLED, work, zl_work};
use std::ffi::c_void;
use zerolane::request::Receive;
use zerolane::{Completion, Connection, RequestId, Waited};

/// Sends `len` bytes at `data` as one Transfer; returns when the peer has received all of it.
/// ZL_ERROR_TOO_LARGE if the peer's receive was smaller.
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

/// Receives the next Transfer into `buffer` and writes its length to `len`. If it is larger
/// than `capacity`, both ends get ZL_ERROR_TOO_LARGE and nothing is written; the next Transfer
/// can be received. ZL_ERROR_FINISHED if the peer finished sending (zl_finish).
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

/// Waits `timeout_ms` milliseconds (negative: no limit) until the peer announces a Transfer
/// that no posted receive matches, and writes its length to `len`, so that you can allocate a
/// buffer of that size. ZL_TIMEOUT if none was announced.
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
                Waited::Got(length) => output.set(length),
                Waited::TimedOut => return Ok(zl_status::ZL_TIMEOUT),
                Waited::Woken => return Ok(zl_status::ZL_WOKEN),
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts the send of `len` bytes of `region` from `offset`; many may be in flight. `how` may be
/// null; it sets the delivery at the receiver, whether success is reported here, and the
/// context. `id` gets the request's number. ZL_ERROR_TOO_MANY if too many requests are in
/// flight: take a completion and try again.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_send(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let part = handle(region, "region")?.part(offset, len)?.share();
            let how = work(how, SEND)?;
            let id = connection.post(how.transfer(part))?;
            output.set(id.to_u64());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts the send of `count` parts of regions, one after another, as one Transfer with one
/// completion, gathered in place. Parts may overlap; no parts make a Transfer of no bytes.
/// `how` and `id` as for zl_post_send.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_send_vectored(
    connection: *mut zl_connection,
    parts: *const zl_part,
    count: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let parts = gathered(parts, count)?;
            let how = work(how, SEND)?;
            let id = connection.post(how.transfer(parts))?;
            output.set(id.to_u64());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts a receive into `len` bytes of `region` from `offset`. The n-th receive gets the peer's
/// n-th Transfer, if it fits. Receives complete when their Transfers do: after a lost datagram,
/// a later one may complete first. `how` may be null, or have a context and
/// ZL_WORK_UNSIGNALLED. `id` gets the request's number.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_recv(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let part = handle(region, "region")?.part(offset, len)?;
            let how = work(how, ZL_WORK_UNSIGNALLED)?;
            let receive = Receive::new(part).context(how.context);
            let id = connection.post(receive.signalled(how.signalled))?;
            output.set(id.to_u64());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Makes progress without sleeping and returns a completion if there is one, otherwise
/// ZL_TIMEOUT. It returns ZL_DELIVERY_POLLED completions too.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_poll(
    connection: *mut zl_connection,
    completion: *mut zl_completion,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        take(connection, completion, |connection| {
            Ok(connection.poll()?.map_or(Waited::TimedOut, Waited::Got))
        })
    }
}

/// Like zl_poll, for up to `capacity` completions, at least 1, after one round of progress.
/// `count` gets their number; ZL_TIMEOUT if there were none.
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

/// Waits `timeout_ms` milliseconds (negative: no limit) for a completion, or for one that wakes
/// (zl_honour_delivery), and returns the first completion there is. 0 polls, as zl_poll does.
/// ZL_TIMEOUT if none came, ZL_WOKEN after zl_wake, or if completions went to a queue.
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
    take: impl FnOnce(&mut Connection) -> zerolane::Result<Waited<Completion>>,
) -> zl_status {
    // SAFETY: the caller's promises.
    unsafe {
        drive(connection, |connection| {
            let output = Output::new(completion, "completion")?;
            match take(connection)? {
                Waited::Got(completion) => output.set(zl_completion::new(0, completion)),
                Waited::TimedOut => return Ok(zl_status::ZL_TIMEOUT),
                Waited::Woken => return Ok(zl_status::ZL_WOKEN),
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Sets whether the delivery that senders ask for counts: 1, or 0 as unless set. If not, every
/// completion ends a zl_wait and makes a queue's descriptor readable.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_honour_delivery(
    connection: *mut zl_connection,
    honours: u32,
) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(connection, |connection| {
            let honours = match honours {
                0 => false,
                1 => true,
                _ => return Err(Failure::argument("honours must be 0 or 1")),
            };
            connection.honour_delivery(honours);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Makes the completion of request `id` end a zl_wait, whatever delivery its sender chose, also
/// if it is already held back. ZL_ERROR_ARGUMENT if there is no such request, or its completion
/// was taken.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_notify(connection: *mut zl_connection, id: u64) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(connection, |connection| {
            if !connection.notify(RequestId::from_u64(id)) {
                return Err(Failure::argument(format!(
                    "no request {id} is in flight or waiting to be taken"
                )));
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Finishes sending. Requests posted before are delivered; later sends and messages return
/// ZL_ERROR_FINISHED. Receives at the peer that no Transfer or message matches end with that
/// code, now and later. The other direction stays open, and so do operations on remote memory.
/// While messages wait for receives that the peer does not post, it may not learn of the
/// finish.
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

/// Writes to `bytes` how many bytes at the start of the memory of receive or get `id` are
/// verified and in place. You may read them and pass them on before the request completes. The
/// number never shrinks; bytes after them are undefined. ZL_ERROR_ARGUMENT if no such request
/// is in progress.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_arrived(
    connection: *const zl_connection,
    id: u64,
    bytes: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(bytes, "bytes")?;
            output.set(
                connection
                    .arrived(RequestId::from_u64(id))
                    .ok_or_else(|| not_in_progress(id))?,
            );
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until more than `beyond` bytes of
/// request `id` have arrived, and writes how many to `bytes`. ZL_TIMEOUT if they did not, or if
/// zl_wake was called; ZL_ERROR_ARGUMENT if the request is over: its completion has the result.
///
/// Threads: one at a time; zl_wake of another ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_wait_arrived(
    connection: *mut zl_connection,
    id: u64,
    beyond: u64,
    timeout_ms: i64,
    bytes: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        drive(connection, |connection| {
            let output = Output::new(bytes, "bytes")?;
            let request = RequestId::from_u64(id);
            match connection.wait_arrived(request, beyond, timeout(timeout_ms))? {
                Waited::Got(Some(arrived)) => output.set(arrived),
                Waited::Got(None) => return Err(not_in_progress(id)),
                Waited::TimedOut => return Ok(zl_status::ZL_TIMEOUT),
                Waited::Woken => return Ok(zl_status::ZL_WOKEN),
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

fn not_in_progress(id: u64) -> Failure {
    Failure::argument(format!("nothing is being received by request {id}"))
}

/// Cancels a request. Its memory is in use until its completion, with ZL_ERROR_CANCELLED.
/// ZL_ERROR_ARGUMENT if it is already over.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_cancel(connection: *mut zl_connection, id: u64) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(connection, |connection| {
            if !connection.cancel(RequestId::from_u64(id)) {
                return Err(Failure::argument(format!("no request {id} is in flight")));
            }
            Ok(zl_status::ZL_OK)
        })
    }
}
