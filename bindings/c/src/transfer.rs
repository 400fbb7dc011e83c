//! Sends and receives Transfers, and takes completions of a connection.

use crate::completion::zl_completion;
use crate::connection::{Driver, by_worker, drive, post, zl_connection};
use crate::pointer::{Output, Outputs, bytes, bytes_mut, handle, timeout};
use crate::region::{gathered, zl_part, zl_region};
use crate::requests::{ByThread, no_request, waited};
use crate::status::{Failure, guard, zl_status};
use crate::work::{RECEIVE, SEND, zl_work};
use std::ffi::c_void;
use std::time::Duration;
use zerolane::request::Receive;
use zerolane::worker::Pending;
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
        wait(
            connection,
            (len, "len"),
            |it| it.announced(timeout(timeout_ms)),
            |it| answered(it.handle.announced(), timeout(timeout_ms)),
        )
    }
}

/// Posts the send of `len` bytes of `region` from `offset`; many may be in flight. `how` may be
/// null; it sets the delivery at the receiver, whether success is reported here, and the
/// context. `id` gets the request's number; it may be null, here and in all functions that post.
/// ZL_ERROR_TOO_MANY if too many requests are in flight: take a completion and try again.
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
        post(connection, id, (how, &SEND), |how| {
            let part = handle(region, "region")?.part(offset, len)?.share();
            Ok(how.transfer(part))
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
        post(connection, id, (how, &SEND), |how| {
            Ok(how.transfer(gathered(parts, count)?))
        })
    }
}

/// Posts a receive into `len` bytes of `region` from `offset`. The n-th receive gets the peer's
/// n-th Transfer, if it fits. Receives complete when their Transfers do: after a lost datagram,
/// a later one may complete first. `how` may be null, or have a context and
/// ZL_WORK_UNSIGNALLED.
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
        post(connection, id, (how, &RECEIVE), |how| {
            let part = handle(region, "region")?.part(offset, len)?;
            let receive = Receive::new(part).context(how.context);
            Ok(receive.signalled(how.signalled))
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
        wait(
            connection,
            (completion, "completion"),
            |it| Ok(completed(it.poll()?.map_or(Waited::TimedOut, Waited::Got))),
            ByThread::poll,
        )
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
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, outputs) = unsafe {
            (
                handle(connection, "connection")?,
                Outputs::new(completions, capacity, "completions", count)?,
            )
        };
        match connection.driver() {
            Driver::Here(connection) => {
                let mut taken = Vec::new();
                connection.enter()?.poll_batch(&mut taken, capacity)?;
                Ok(outputs.set(taken.into_iter().map(|it| zl_completion::new(0, it))))
            }
            Driver::ByThread(connection) => {
                let mut next = Some(connection.poll()?);
                let taken = std::iter::from_fn(|| {
                    let completion = next.take()?.got();
                    // The end of the connection is told by the next call.
                    next = connection.poll().ok();
                    completion
                });
                Ok(outputs.set(taken))
            }
            Driver::ByWorker(_) => Err(by_worker()),
        }
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for a completion, or for one that wakes
/// (zl_honour_delivery), and returns the first completion there is. 0 polls, as zl_poll does.
/// ZL_TIMEOUT if none came, ZL_WOKEN after zl_wake, or if completions went to a queue. Once the
/// connection is over and all completions were taken, it fails with the reason, such as
/// ZL_ERROR_PEER_DEAD.
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
        wait(
            connection,
            (completion, "completion"),
            |it| Ok(completed(it.wait(timeout(timeout_ms))?)),
            |it| it.wait(timeout(timeout_ms)),
        )
    }
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for request `id`, and returns its completion;
/// others stay. ZL_TIMEOUT if it takes longer: it continues. ZL_WOKEN after zl_wake.
/// ZL_ERROR_ARGUMENT if there is no such request, or its completion was taken; also for a
/// zl_post_put_inline without a context on a connection that the program drives. ZL_ERROR_BUSY while
/// another thread waits for it.
///
/// Threads: one at a time; zl_wake of another ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_wait_for(
    connection: *mut zl_connection,
    id: u64,
    timeout_ms: i64,
    completion: *mut zl_completion,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(completion, "completion")?,
            )
        };
        let limit = timeout(timeout_ms);
        let waited = match connection.driver() {
            Driver::Here(it) => match it.enter()?.wait_for(RequestId::from_u64(id), limit)? {
                Waited::Got(Some(it)) => Waited::Got(zl_completion::new(0, it)),
                Waited::Got(None) => return Err(no_request(id)),
                Waited::TimedOut => Waited::TimedOut,
                Waited::Woken => Waited::Woken,
            },
            Driver::ByThread(it) => {
                let completion = it.requests.wait_for(id, limit)?;
                completion.map_or(Waited::TimedOut, Waited::Got)
            }
            Driver::ByWorker(_) => return Err(by_worker()),
        };
        Ok(told(waited, output))
    })
}

/// Waits for a worker's answer.
fn answered<T>(pending: Pending<T>, limit: Option<Duration>) -> Result<Waited<T>, Failure> {
    match waited(pending, limit) {
        Ok(answer) => Ok(Waited::Got(answer?)),
        Err(_) => Ok(Waited::TimedOut),
    }
}

/// Writes what a wait got, and returns how it ended.
fn told<T>(waited: Waited<T>, output: Output<T>) -> zl_status {
    match waited {
        Waited::Got(value) => output.set(value),
        Waited::TimedOut => return zl_status::ZL_TIMEOUT,
        Waited::Woken => return zl_status::ZL_WOKEN,
    }
    zl_status::ZL_OK
}

fn completed(waited: Waited<Completion>) -> Waited<zl_completion> {
    match waited {
        Waited::Got(completion) => Waited::Got(zl_completion::new(0, completion)),
        Waited::TimedOut => Waited::TimedOut,
        Waited::Woken => Waited::Woken,
    }
}

/// Waits by the program's call, or for a worker's thread, and writes what came to `output`, C's parameter `name`.
///
/// # Safety
/// As for [`handle`] and [`Output::new`].
unsafe fn wait<T>(
    connection: *const zl_connection,
    (output, name): (*mut T, &str),
    here: impl FnOnce(&mut Connection) -> zerolane::Result<Waited<T>>,
    by_thread: impl FnOnce(&ByThread) -> Result<Waited<T>, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(output, name)?,
            )
        };
        let waited = match connection.driver() {
            Driver::Here(connection) => here(&mut *connection.enter()?)?,
            Driver::ByThread(connection) => by_thread(connection)?,
            Driver::ByWorker(_) => return Err(by_worker()),
        };
        Ok(told(waited, output))
    })
}

/// Sets whether the delivery that senders ask for counts: 1, or 0 as unless set. If not, every
/// completion ends a zl_wait and makes a queue's descriptor readable. ZL_ERROR_ARGUMENT for a
/// connection of a worker's thread.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_honour_delivery(
    connection: *mut zl_connection,
    honours: u32,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let honours = match honours {
            0 => false,
            1 => true,
            _ => return Err(Failure::argument("honours must be 0 or 1")),
        };
        if let Driver::ByThread(_) = connection.driver() {
            return Err(Failure::argument(
                "a worker's thread reports each completion at once",
            ));
        }
        connection.ask(move |it| {
            it.honour_delivery(honours);
            Ok(())
        })?;
        Ok(zl_status::ZL_OK)
    })
}

/// Makes the completion of request `id` end a zl_wait, whatever delivery its sender chose, also
/// if it is already held back. ZL_ERROR_ARGUMENT if there is no such request, or its completion
/// was taken.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_notify(connection: *mut zl_connection, id: u64) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let is_there = match connection.driver() {
            // Each completion ends a wait.
            Driver::ByThread(connection) => connection.requests.has(id)?,
            _ => connection.ask(move |it| Ok(it.notify(RequestId::from_u64(id))))?,
        };
        match is_there {
            true => Ok(zl_status::ZL_OK),
            false => Err(no_request(id)),
        }
    })
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
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        match connection.driver() {
            // Behind requests that wait for room.
            Driver::ByThread(connection) => connection.handle.finish().wait()?,
            _ => connection.ask(Connection::finish)?,
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Writes to `bytes` how many bytes at the start of the memory of receive or get `id` are
/// verified and in place; 0 while the request waits for room. You may read them and pass them on
/// before the request completes. The number never shrinks; bytes after them are undefined.
/// ZL_ERROR_ARGUMENT if no such request is in progress.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_arrived(
    connection: *const zl_connection,
    id: u64,
    bytes: *mut u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(bytes, "bytes")?,
            )
        };
        let request = RequestId::from_u64(id);
        let arrived = match connection.driver() {
            Driver::ByThread(connection) => connection.handle.arrived(request).wait()?,
            _ => connection.ask(move |it| Ok(it.arrived(request)))?,
        };
        output.set(arrived.ok_or_else(|| not_in_progress(id))?);
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) until more than `beyond` bytes of
/// request `id` have arrived, and writes how many to `bytes`. ZL_TIMEOUT if they did not, ZL_WOKEN if
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
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(bytes, "bytes")?,
            )
        };
        let (request, limit) = (RequestId::from_u64(id), timeout(timeout_ms));
        let waited = match connection.driver() {
            Driver::Here(it) => it.enter()?.wait_arrived(request, beyond, limit)?,
            Driver::ByThread(it) => answered(it.handle.wait_arrived(request, beyond), limit)?,
            Driver::ByWorker(_) => return Err(by_worker()),
        };
        match waited {
            Waited::Got(arrived) => output.set(arrived.ok_or_else(|| not_in_progress(id))?),
            Waited::TimedOut => return Ok(zl_status::ZL_TIMEOUT),
            Waited::Woken => return Ok(zl_status::ZL_WOKEN),
        }
        Ok(zl_status::ZL_OK)
    })
}

fn not_in_progress(id: u64) -> Failure {
    Failure::argument(format!("nothing is being received by request {id}"))
}

/// Cancels a request. Its memory is in use until its completion, with ZL_ERROR_CANCELLED, or with what
/// came before. ZL_ERROR_ARGUMENT if it is already over.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_cancel(connection: *mut zl_connection, id: u64) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let request = RequestId::from_u64(id);
        let was_there = match connection.driver() {
            Driver::ByThread(connection) => connection.handle.cancel(request).wait()?,
            _ => connection.ask(move |it| Ok(it.cancel(request)))?,
        };
        match was_there {
            true => Ok(zl_status::ZL_OK),
            false => Err(Failure::argument(format!("no request {id} is in flight"))),
        }
    })
}
