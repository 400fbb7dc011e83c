//! Sends and receives datagrams, which may be lost.

use crate::connection::{Driver, zl_connection};
use crate::pointer::{Output, bytes, bytes_mut, handle, timeout};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_void;
use zerolane::Waited;

/// Sends a copy of `len` bytes at `data`, 1 to zl_max_datagram, as a datagram: sealed, and under
/// congestion control, but it may be lost, come late or before an earlier one, and is never sent
/// again (RFC 9221). ZL_ERROR_TOO_MANY if many wait to leave; ZL_ERROR_REFUSED if the peer takes
/// none. One that waits for longer than 100 ms is dropped; the `unreliable_` counters of
/// zl_account_json tell what was dropped, and why.
///
/// Threads: one at a time; any on a connection of a worker's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_send_datagram(
    connection: *mut zl_connection,
    data: *const c_void,
    len: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        let (connection, datagram) = unsafe {
            let datagram = bytes(data.cast(), len, "data")?.to_vec();
            (handle(connection, "connection")?, datagram)
        };
        connection.ask(move |it| it.send_datagram(datagram))?;
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for a datagram of the peer, copies it to
/// `buffer` and writes its length to `len`. ZL_TIMEOUT if none came; ZL_ERROR_TOO_LARGE if it has
/// more than `capacity` bytes: then it is dropped, and `len` has its length. On a connection that a
/// worker drives it does not wait.
///
/// Threads: one at a time; any on a connection of a worker's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_recv_datagram(
    connection: *mut zl_connection,
    timeout_ms: i64,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        let (connection, buffer, output) = unsafe {
            (
                handle(connection, "connection")?,
                bytes_mut(buffer.cast(), capacity, "buffer")?,
                Output::new(len, "len")?,
            )
        };
        let waited = match connection.driver() {
            Driver::Here(own) => own.enter()?.recv_datagram(timeout(timeout_ms))?,
            Driver::ByWorker(_) | Driver::ByThread(_) => {
                let next = connection.ask(|it| Ok(it.next_datagram()))?;
                next.map_or(Waited::TimedOut, Waited::Got)
            }
        };
        let datagram = match waited {
            Waited::Got(datagram) => datagram,
            Waited::TimedOut => return Ok(zl_status::ZL_TIMEOUT),
            Waited::Woken => return Ok(zl_status::ZL_WOKEN),
        };
        output.set(datagram.len());
        let Some(place) = buffer.get_mut(..datagram.len()) else {
            let why = format!("a datagram of {} bytes", datagram.len());
            return Err(Failure::new(zl_status::ZL_ERROR_TOO_LARGE, why));
        };
        place.write_copy_of_slice(&datagram);
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the length of the longest datagram that the peer takes to `len`, in bytes; 0: it takes
/// none.
///
/// Threads: one at a time; any on a connection of a worker's thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_max_datagram(
    connection: *mut zl_connection,
    len: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) =
            unsafe { (handle(connection, "connection")?, Output::new(len, "len")?) };
        output.set(connection.ask(|it| Ok(it.max_datagram()))?);
        Ok(zl_status::ZL_OK)
    })
}
