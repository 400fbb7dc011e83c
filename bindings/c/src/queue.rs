//! Collects completions of many connections, and gives descriptors to event loops.

use crate::completion::zl_completion;
use crate::connection::{drive, zl_connection};
use crate::pointer::{Output, Outputs, free, give, handle, milliseconds, timeout};
use crate::status::{guard, zl_status};
use std::ffi::{c_int, c_short};
use std::os::fd::{AsFd, AsRawFd};
use zerolane::CompletionQueue;

// <poll.h>, the same on every Linux.
const POLLIN: c_short = 1;
const POLLOUT: c_short = 4;

/// A queue for the completions of many connections. After fork it belongs to the parent.
pub struct zl_queue(CompletionQueue);

/// Makes a queue for `capacity` completions and allocates memory for all of them;
/// ZL_ERROR_SYSTEM if there is not enough. When it is full, connections keep their completions
/// and make their peers wait. A queue drives no connection: use it if each connection has a
/// thread of its own, and a zl_worker if one thread drives many. Free the queue with
/// zl_queue_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_queue_new(capacity: usize, queue: *mut *mut zl_queue) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(queue, "queue") }?;
        output.set(give(zl_queue(CompletionQueue::new(capacity)?)));
        Ok(zl_status::ZL_OK)
    })
}

/// Returns a completion if there is one, whether it wakes or not, otherwise ZL_TIMEOUT. Its
/// `tag` is its connection's.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_queue_poll(
    queue: *const zl_queue,
    completion: *mut zl_completion,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        take(queue, completion, |queue| {
            queue.check_process()?;
            Ok(queue.poll())
        })
    }
}

/// Like zl_queue_poll, for up to `capacity` completions, at least 1. `count` gets their number;
/// ZL_TIMEOUT if there were none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_queue_poll_batch(
    queue: *const zl_queue,
    completions: *mut zl_completion,
    capacity: usize,
    count: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (queue, outputs) = unsafe {
            (
                handle(queue, "queue")?,
                Outputs::new(completions, capacity, "completions", count)?,
            )
        };
        queue.0.check_process()?;
        let mut taken = Vec::new();
        queue.0.poll_batch(&mut taken, capacity);
        let taken = taken.into_iter();
        Ok(outputs.set(taken.map(|(tag, it)| zl_completion::new(tag, it))))
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for a completion that wakes, while
/// other threads drive the connections, and returns the first completion there is. 0 polls, as
/// zl_queue_poll does. ZL_TIMEOUT if none came.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_queue_wait(
    queue: *const zl_queue,
    timeout_ms: i64,
    completion: *mut zl_completion,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe { take(queue, completion, |queue| queue.wait(timeout(timeout_ms))) }
}

unsafe fn take(
    queue: *const zl_queue,
    completion: *mut zl_completion,
    take: impl FnOnce(&CompletionQueue) -> zerolane::Result<Option<(u64, zerolane::Completion)>>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (queue, output) = unsafe {
            (
                handle(queue, "queue")?,
                Output::new(completion, "completion")?,
            )
        };
        let Some((tag, completion)) = take(&queue.0)? else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(zl_completion::new(tag, completion));
        Ok(zl_status::ZL_OK)
    })
}

/// Returns a descriptor that is readable while the queue has completions that wake; -1 if
/// `queue` is null. Do not read it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_queue_fd(queue: *const zl_queue) -> c_int {
    // SAFETY: C's promise about handles.
    unsafe { handle(queue, "queue") }.map_or(-1, |queue| queue.0.as_fd().as_raw_fd())
}

/// Frees the handle. Null does nothing. The queue is freed with the last connection that uses
/// it.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_queue_free(queue: *mut zl_queue) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(queue) };
        Ok(zl_status::ZL_OK)
    });
}

/// Sends the connection's completions to `queue` from now on, with `tag`. The connection still
/// makes progress only inside its functions, such as zl_wait in a thread of its own.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_completion_queue(
    connection: *mut zl_connection,
    queue: *const zl_queue,
    tag: u64,
) -> zl_status {
    // SAFETY: C's promises about handles.
    unsafe {
        drive(connection, |connection| {
            connection.set_completion_queue(&handle(queue, "queue")?.0, tag);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Tells an event loop what to wait for: the connection's socket in `fd`, its events in
/// `events` (POLLIN, and POLLOUT if its send buffer was full), and a time in milliseconds in
/// `timeout_ms` (-1: none). After such an event or that time, call zl_wait with a timeout of 0,
/// which makes one round of progress, then ask again. A time of 0 means that there may be more
/// to do. Do not read the socket.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_watch(
    connection: *mut zl_connection,
    fd: *mut c_int,
    events: *mut c_short,
    timeout_ms: *mut i64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        drive(connection, |connection| {
            let (fd, time) = (
                Output::new(fd, "fd")?,
                Output::new(timeout_ms, "timeout_ms")?,
            );
            let wanted = Output::new(events, "events")?;
            fd.set(connection.as_fd().as_raw_fd());
            wanted.set(match connection.wants_write() {
                true => POLLIN | POLLOUT,
                false => POLLIN,
            });
            time.set(milliseconds(connection.next_timeout()));
            Ok(zl_status::ZL_OK)
        })
    }
}
