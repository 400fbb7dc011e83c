//! Completions of many connections in one place, and descriptors for event loops.

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

/// Makes a queue for `capacity` completions, and takes the memory for all of them: ZL_ERROR_SYSTEM if there is not as
/// much. When it is full, connections keep theirs, and take no more from their peers. Free it with zl_queue_free. A
/// queue drives nothing: it is for programs that drive each connection in a thread of its own, or one after the other. One that has many connections in one thread takes a zl_worker, whose
/// zl_worker_wait drives all of them, and whose events have the completions.
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

/// Takes a completion if there is one, whether it wakes or not, else returns ZL_TIMEOUT. Its `tag` is that
/// of its connection.
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

/// As zl_queue_poll, for up to `capacity` completions, at least 1. `count` says how many there were, ZL_TIMEOUT that
/// there were none.
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

/// Waits `timeout_ms` milliseconds (negative: no limit) for a completion that wakes, while other threads
/// drive the connections, and takes it or the first of those before it. 0 polls, as zl_queue_poll
/// does.
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

/// A descriptor that is readable while there is something in the queue that wakes; -1 if `queue` is null.
/// Do not read it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_queue_fd(queue: *const zl_queue) -> c_int {
    // SAFETY: C's promise about handles.
    unsafe { handle(queue, "queue") }.map_or(-1, |queue| queue.0.as_fd().as_raw_fd())
}

/// Frees the handle. Null does nothing. The queue itself is freed with the last connection that uses it.
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

/// Sends the completions of a connection to `queue` from now on, with `tag`. The connection still
/// makes progress only inside its functions: call zl_wait, here or in a thread for it.
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

/// What an event loop needs: the connection's socket, the events of it to wait for (POLLIN, and POLLOUT
/// when its send buffer was full), and the time in milliseconds (-1: none). When there is such an event,
/// or the time is over, call zl_wait with a timeout of 0, which makes one turn of progress, and then ask
/// again: a time of 0 says that there may be more. Do not read the socket.
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
