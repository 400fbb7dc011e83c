//! Posts requests on connections of a worker's thread.

use crate::address;
use crate::connection::{write_json, zl_account, zl_connection};
use crate::exported::{self, rights, zl_exported, zl_key};
use crate::fetch::fetch_op;
use crate::message::payload;
use crate::pending::{waited, zl_pending};
use crate::pointer::{Output, bytes, free, give, handle, text};
use crate::region::{gathered, zl_part, zl_region};
use crate::remote::{pieces, zl_piece};
use crate::security;
use crate::status::{self, Failure, guard, zl_status};
use crate::work::{DELIVERY, PUT, ZL_WORK_FENCE, ZL_WORK_UNSIGNALLED, message, work, zl_work};
use std::ffi::{c_char, c_void};
use zerolane::memory::Memory;
use zerolane::request::{Get, GetPieces, Message, OpenRegion, Put, PutPieces, ReceiveMessage};
use zerolane::worker::{ConnectionHandle, Pending};
use zerolane::{Completion, Region};

/// A connection of a worker's thread. Any thread posts requests; those of one thread start in
/// its order, and wait in order if there is no room. Each request has a zl_pending.
pub struct zl_handle(ConnectionHandle);

impl zl_handle {
    pub(crate) fn give(connection: ConnectionHandle) -> *mut zl_handle {
        give(zl_handle(connection))
    }

    pub(crate) fn connection(&self) -> &ConnectionHandle {
        &self.0
    }
}

/// Posts a request.
///
/// # Safety
/// As for [`handle`] and [`Output::new`].
unsafe fn post(
    connection: *const zl_handle,
    pending: *mut *mut zl_pending,
    post: impl FnOnce(&ConnectionHandle) -> Result<Pending<Completion>, Failure>,
) -> zl_status {
    // SAFETY: the caller's promises.
    unsafe { post_into(connection, pending, |it| Ok((post(it)?, None))) }
}

/// Posts a request; `post` also returns the memory of a receive, once more.
///
/// # Safety
/// As for [`post`].
unsafe fn post_into(
    connection: *const zl_handle,
    pending: *mut *mut zl_pending,
    post: impl FnOnce(&ConnectionHandle) -> Result<(Pending<Completion>, Option<Region>), Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(pending, "pending")?,
            )
        };
        let (answer, place) = post(&connection.0)?;
        output.set(zl_pending::give(answer, place));
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the worker's answer to `ask`, and writes it to `output`,
/// C's parameter `name`.
///
/// # Safety
/// As for [`handle`] and [`Output::new`].
unsafe fn tell<T, O: From<T>>(
    connection: *const zl_handle,
    (output, name): (*mut O, &str),
    timeout_ms: i64,
    ask: impl FnOnce(&ConnectionHandle) -> Result<Pending<T>, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(output, name)?,
            )
        };
        let Ok(told) = waited(ask(&connection.0)?, timeout_ms) else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(told?.into());
        Ok(zl_status::ZL_OK)
    })
}

/// Sends `len` bytes of `region` from `offset` as one Transfer. `how` may be null; the request
/// is always signalled. `pending` gets the request, as in the functions below: wait for it with
/// zl_pending_wait and free it with zl_pending_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_send(
    connection: *const zl_handle,
    region: *const zl_region,
    offset: usize,
    len: usize,
    how: *const zl_work,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let part = handle(region, "region")?.part(offset, len)?.share();
            Ok(connection.post(work(how, DELIVERY)?.transfer(part)))
        })
    }
}

/// Sends `count` parts of regions, one after another, as one Transfer: see
/// zl_post_send_vectored. `how` may be null; the request is always signalled.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_send_vectored(
    connection: *const zl_handle,
    parts: *const zl_part,
    count: usize,
    how: *const zl_work,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let how = work(how, DELIVERY)?;
            Ok(connection.post(how.transfer(gathered(parts, count)?)))
        })
    }
}

/// Receives the next Transfer into `len` bytes of `region` from `offset`.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_recv(
    connection: *const zl_handle,
    region: *const zl_region,
    offset: usize,
    len: usize,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        post_into(connection, pending, |connection| {
            let region = handle(region, "region")?;
            let place = region.part(offset, len)?;
            Ok((connection.recv(region.part(offset, len)?), Some(place)))
        })
    }
}

/// Sends a message: `control_len` bytes of control, at most ZL_CONTROL_LENGTH, which are copied
/// before the call returns, and `len` bytes of `region` from `offset`, none if `region` is
/// null.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_send_message(
    connection: *const zl_handle,
    control: *const c_void,
    control_len: usize,
    region: *const zl_region,
    offset: usize,
    len: usize,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let control = bytes(control.cast(), control_len, "control")?;
            let payload = payload(region, offset, len)?.map(|it| Memory::from(it.share()));
            Ok(connection.post(message(control.to_vec(), payload)))
        })
    }
}

/// Sends a message whose payload is `count` parts of regions: see zl_post_message_vectored.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_send_message_vectored(
    connection: *const zl_handle,
    control: *const c_void,
    control_len: usize,
    parts: *const zl_part,
    count: usize,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let control = bytes(control.cast(), control_len, "control")?;
            let message = Message::new(control.to_vec());
            Ok(connection.post(message.payload(gathered(parts, count)?)))
        })
    }
}

/// Receives the next message, with its payload into `len` bytes of `region` from `offset`; null
/// if no payload is expected. The completion has the control.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_recv_message(
    connection: *const zl_handle,
    region: *const zl_region,
    offset: usize,
    len: usize,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        post_into(connection, pending, |connection| {
            let place = payload(region, offset, len)?.unwrap_or_else(Region::empty);
            let receive = ReceiveMessage::new().payload(payload(region, offset, len)?);
            Ok((connection.post(receive), Some(place)))
        })
    }
}

/// Puts `len` bytes of `region` from `region_offset` into the peer's memory at `offset`: see
/// zl_post_put. `how` may be null; the request is always signalled.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_put(
    connection: *const zl_handle,
    to: *const zl_key,
    offset: u64,
    region: *const zl_region,
    region_offset: usize,
    len: usize,
    how: *const zl_work,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let to = handle(to, "to")?.read()?;
            let part = handle(region, "region")?.part(region_offset, len)?.share();
            let how = work(how, PUT & !ZL_WORK_UNSIGNALLED)?;
            let put = Put::new(&to, offset, part).context(how.context);
            Ok(connection.post(put.fence(how.fence).immediate(how.immediate)))
        })
    }
}

/// Gets `len` bytes of the peer's memory at `offset` into `region` from `region_offset`: see
/// zl_post_get. `how` may be null; the request is always signalled.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_get(
    connection: *const zl_handle,
    from: *const zl_key,
    offset: u64,
    region: *const zl_region,
    region_offset: usize,
    len: usize,
    how: *const zl_work,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let from = handle(from, "from")?.read()?;
            let part = handle(region, "region")?.part(region_offset, len)?;
            let how = work(how, ZL_WORK_FENCE)?;
            let get = Get::new(&from, offset, part).context(how.context);
            Ok(connection.post(get.fence(how.fence)))
        })
    }
}

/// Puts pieces: see zl_post_put_vectored. `how` may be null; the request is always
/// signalled.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_put_vectored(
    connection: *const zl_handle,
    to: *const zl_key,
    pieces: *const zl_piece,
    count: usize,
    how: *const zl_work,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let to = handle(to, "to")?.read()?;
            let pieces = self::pieces(pieces, count, |part| part.share().into())?;
            let how = work(how, PUT & !ZL_WORK_UNSIGNALLED)?;
            let put = PutPieces::new(&to, pieces).context(how.context);
            Ok(connection.post(put.fence(how.fence).immediate(how.immediate)))
        })
    }
}

/// Gets pieces: see zl_post_get_vectored. `how` may be null; the request is always
/// signalled.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_get_vectored(
    connection: *const zl_handle,
    from: *const zl_key,
    pieces: *const zl_piece,
    count: usize,
    how: *const zl_work,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let from = handle(from, "from")?.read()?;
            let pieces = self::pieces(pieces, count, |part| part)?;
            let how = work(how, ZL_WORK_FENCE)?;
            let get = GetPieces::new(&from, pieces).context(how.context);
            Ok(connection.post(get.fence(how.fence)))
        })
    }
}

/// Does a zl_fetch_op. The `value` of the completion is the word's previous value.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_fetch_op(
    connection: *const zl_handle,
    on: *const zl_key,
    offset: u64,
    op: u32,
    operand: u64,
    expected: u64,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let on = handle(on, "on")?.read()?;
            let op = fetch_op(op, operand, expected)?;
            Ok(connection.post(op.on(&on, offset)))
        })
    }
}

/// Asks for the peer's memory by name: see zl_post_open_region. The completion has the key in
/// `region`.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_open_region(
    connection: *const zl_handle,
    name: *const c_char,
    rights: u32,
    pending: *mut *mut zl_pending,
) -> zl_status {
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        post(connection, pending, |connection| {
            let (name, rights) = (text(name, "name")?, self::rights(rights)?);
            Ok(connection.post(OpenRegion::new(name.to_owned(), rights)))
        })
    }
}

/// Exports memory to the peer: see zl_export.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_export(
    connection: *const zl_handle,
    exported: *const zl_exported,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        tell(connection, (key, "key"), -1, |connection| {
            let region = handle(exported, "exported")?.region()?;
            Ok(connection.export(&region, self::rights(rights)?))
        })
    }
}

/// Exports memory to the peer by `name`: see zl_export_named.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_export_named(
    connection: *const zl_handle,
    name: *const c_char,
    exported: *const zl_exported,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        tell(connection, (key, "key"), -1, |connection| {
            let (name, region) = (text(name, "name")?, handle(exported, "exported")?.region()?);
            Ok(connection.export_named(name, &region, self::rights(rights)?))
        })
    }
}

/// Exports memory to the peer under `number`: see zl_export_numbered.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_export_numbered(
    connection: *const zl_handle,
    number: u32,
    exported: *const zl_exported,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        tell(connection, (key, "key"), -1, |connection| {
            let region = handle(exported, "exported")?.region()?;
            let (number, rights) = (exported::number(number)?, self::rights(rights)?);
            Ok(connection.export_numbered(number, &region, rights))
        })
    }
}

/// Ends an export to the peer, at once: see zl_revoke.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_revoke(
    connection: *const zl_handle,
    key: *const zl_key,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        let (connection, key) = unsafe {
            (
                handle(connection, "connection")?,
                handle(key, "key")?.read()?,
            )
        };
        match connection.0.revoke(&key).wait()? {
            true => Ok(zl_status::ZL_OK),
            false => Err(Failure::argument("the key names nothing exported here")),
        }
    })
}

/// Ends all exports of `exported` to this peer: see zl_revoke_region.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_revoke_region(
    connection: *const zl_handle,
    exported: *const zl_exported,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (connection, region) = unsafe {
            (
                handle(connection, "connection")?,
                handle(exported, "exported")?.region()?,
            )
        };
        match connection.0.revoke_region(&region).wait()? {
            true => Ok(zl_status::ZL_OK),
            false => Err(Failure::argument("nothing of it is exported here")),
        }
    })
}

/// Takes the connection out of the worker, so that the program can drive it or give it to
/// another worker, for example from an accepting worker to others that answer on the same port.
/// The handle is then unusable; free it. ZL_ERROR_BUSY, and nothing changes, if requests are
/// not over, or received data or numbers were not taken.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_release(
    connection: *const zl_handle,
    released: *mut *mut zl_connection,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(released, "released")?,
            )
        };
        let connection = connection.0.release().wait()?;
        output.set(give(zl_connection::new(connection)));
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the next number of the peer's puts
/// (ZL_WORK_IMMEDIATE, zl_put_with_immediate); ZL_TIMEOUT if none came. Numbers that came
/// before the end of the connection can be taken after it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_immediate(
    connection: *const zl_handle,
    timeout_ms: i64,
    immediate: *mut u32,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(immediate, "immediate")?,
            )
        };
        let Ok(told) = waited(connection.0.immediate(), timeout_ms) else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(told?.number);
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until the peer announces a Transfer
/// that no receive matches, and writes its length: see zl_announced. ZL_TIMEOUT if none was
/// announced.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_announced(
    connection: *const zl_handle,
    timeout_ms: i64,
    len: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        tell(
            connection,
            (len, "len"),
            timeout_ms,
            |it| Ok(it.announced()),
        )
    }
}

/// Writes the peer's address at the time when the connection was made to `buffer`: see
/// zl_peer_addr.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_peer_addr(
    connection: *const zl_handle,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        unsafe {
            let peer = handle(connection, "connection")?.0.peer_addr();
            address::write(peer, buffer, capacity)?;
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the key that the peer proved it owns to `buffer`: see zl_peer_key.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_peer_key(
    connection: *const zl_handle,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        unsafe {
            let key = handle(connection, "connection")?.0.peer_key();
            security::write(key, buffer, capacity)?;
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the connection's counters so far to `account`: see zl_account_read.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_account(
    connection: *const zl_handle,
    account: *mut zl_account,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe { tell(connection, (account, "account"), -1, |it| Ok(it.account())) }
}

/// Writes all of the connection's counters to `buffer` as one line of JSON: see zl_account_json.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_account_json(
    connection: *const zl_handle,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection")? };
        let account = connection.0.account().wait()?;
        // SAFETY: C's promises about memory and outputs.
        unsafe { write_json(&account, buffer, capacity, length) }
    })
}

/// Finishes sending after all requests made before: see zl_finish.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_finish(connection: *const zl_handle) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection")? };
        connection.0.finish().wait()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until the connection is over, whichever
/// end closed it; `reason` then gets why, such as ZL_ERROR_PEER_DEAD or ZL_ERROR_CLOSED. ZL_TIMEOUT
/// while it lives. An idle connection over a network notices a dead peer only with
/// ZL_OPTION_KEEP_ALIVE.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_closed(
    connection: *const zl_handle,
    timeout_ms: i64,
    reason: *mut zl_status,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        tell(connection, (reason, "reason"), timeout_ms, |it| {
            Ok(it.closed())
        })
    }
}

/// Makes the worker's thread call `closed` with `context` once, when the connection is over,
/// whichever end closed it, even if its handle is freed by then; soon if it is over already.
/// `reason` says why, as in zl_handle_closed; ZL_ERROR_CLOSED if the worker ended or the
/// connection was released. The function must neither block, because all connections of the
/// worker would wait, nor unwind. It is never called in a child of fork.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_on_closed(
    connection: *const zl_handle,
    closed: Option<unsafe extern "C" fn(reason: zl_status, context: *mut c_void)>,
    context: *mut c_void,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection")? };
        let closed = closed.ok_or_else(|| Failure::null("closed"))?;
        let context = Context(context);
        connection.0.on_closed(move |reason| {
            // SAFETY: C's function for this context, called once.
            unsafe { closed(status::of_error(reason), context.pointer()) }
        });
        Ok(zl_status::ZL_OK)
    })
}

/// C's argument for its own function.
struct Context(*mut c_void);

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the library does not use what it points to; C was told which thread gets it.
unsafe impl Send for Context {}

/// Waits until posted sends are completed, disconnects, and frees the handle, also on failure.
/// Gives up after the idle timeout without progress; fails if something was not sent.
/// ZL_ERROR_ARGUMENT for null.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_close(connection: *mut zl_handle) -> zl_status {
    guard(|| {
        if connection.is_null() {
            return Err(Failure::null("connection"));
        }
        // SAFETY: from give, and C's promise that it is not used afterwards.
        unsafe { Box::from_raw(connection) }.0.close().wait()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Frees the handle. The connection closes in the background once posted sends are completed.
/// Null does nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_handle_free(connection: *mut zl_handle) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(connection) };
        Ok(zl_status::ZL_OK)
    });
}
