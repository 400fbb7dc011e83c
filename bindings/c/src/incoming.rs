//! Shows requests for connections to a program that accepts or refuses them, and private data.

use crate::address;
use crate::connection::zl_connection;
use crate::endpoint::zl_endpoint;
use crate::options::{self, zl_options};
use crate::owned::Owned;
use crate::pointer::{Output, bytes, bytes_mut, give, handle, timeout};
use crate::security;
use crate::shared::over;
use crate::status::{Failure, guard, zl_status};
use crate::worker::{with_connection, zl_worker};
use std::ffi::c_char;
use zerolane::Incoming;
use zerolane::options::{MAX_PRIVATE_DATA, PrivateData};

/// Most bytes of private data.
pub const ZL_PRIVATE_DATA_LENGTH: usize = 64;

const _: () = assert!(ZL_PRIVATE_DATA_LENGTH == MAX_PRIVATE_DATA);

/// A client's request for a connection, from zl_endpoint_incoming. zl_incoming_accept and
/// zl_incoming_refuse answer it and free the handle. After fork it belongs to the parent: in the
/// child they do neither.
pub struct zl_incoming(Owned<Incoming>);

impl zl_incoming {
    /// Takes the request out of its handle, and frees the handle.
    ///
    /// # Safety
    /// `incoming` is null, or from [`give`] and not used afterwards.
    unsafe fn take(incoming: *mut zl_incoming) -> Result<Incoming, Failure> {
        // SAFETY: the caller's promise.
        drop(unsafe { handle(incoming, "incoming") }?.0.enter()?);
        // SAFETY: the caller's promise, and it is not null.
        unsafe { Box::from_raw(incoming) }.0.into_inner()
    }
}

/// Private data from C; `None` if `data` is null.
///
/// # Safety
/// `length` bytes at `data` are readable, if it is not null.
unsafe fn private(data: *const u8, length: usize) -> Result<Option<PrivateData>, Failure> {
    // SAFETY: the caller's promise.
    let read = unsafe { bytes(data, length, "data") }?;
    match data.is_null() {
        true => Ok(None),
        false => match PrivateData::new(read) {
            Ok(data) => Ok(Some(data)),
            Err(why) => Err(Failure::argument(why.to_string())),
        },
    }
}

/// Writes private data for C.
///
/// # Safety
/// `capacity` bytes at `buffer` are writable.
unsafe fn write(
    data: &[u8],
    buffer: *mut u8,
    capacity: usize,
    length: Output<usize>,
) -> Result<zl_status, Failure> {
    // SAFETY: the caller's promise.
    let place = unsafe { bytes_mut(buffer, capacity, "buffer") }?;
    let place = place.get_mut(..data.len()).ok_or_else(|| {
        let len = data.len();
        Failure::argument(format!("buffer takes {capacity} bytes of {len}"))
    })?;
    place.write_copy_of_slice(data);
    length.set(data.len());
    Ok(zl_status::ZL_OK)
}

/// Sets data of the program, at most ZL_PRIVATE_DATA_LENGTH bytes, that go to the peer: of a
/// connecting end with its request, of an endpoint with each answer. zl_peer_data returns them
/// there. A client that gives some, even of length 0, gets those of the answer. They are
/// encrypted with the rest.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_options_set_private_data(
    options: *mut zl_options,
    data: *const u8,
    length: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        let (options, data) =
            unsafe { (handle(options, "options")?, bytes(data, length, "data")?) };
        let data = PrivateData::new(data).map_err(|why| Failure::argument(why.to_string()))?;
        options::change(options, |settings| {
            settings.options.private_data = Some(data);
            Ok(())
        })
    })
}

/// Writes the private data that came with the peer's request, or with its answer, to `buffer`,
/// and their length to `length`; 0 if there were none. ZL_PRIVATE_DATA_LENGTH bytes are enough;
/// ZL_ERROR_ARGUMENT if `capacity` is too small.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_peer_data(
    connection: *const zl_connection,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        unsafe {
            let connection = handle(connection, "connection")?;
            let length = Output::new(length, "length")?;
            let data = connection.ask(|it| Ok(it.peer_data().to_vec()))?;
            write(&data, buffer, capacity, length)
        }
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the next request for a connection, if
/// the endpoint has ZL_OPTION_ASKS; ZL_TIMEOUT if none came. The client waits for
/// zl_incoming_accept or zl_incoming_refuse.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_incoming(
    endpoint: *mut zl_endpoint,
    timeout_ms: i64,
    incoming: *mut *mut zl_incoming,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (endpoint, output) = unsafe {
            (
                handle(endpoint, "endpoint")?,
                Output::new(incoming, "incoming")?,
            )
        };
        let Some(incoming) = endpoint.here()?.enter()?.incoming(timeout(timeout_ms))? else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(give(zl_incoming(Owned::new(incoming))));
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the client's private data to `buffer`, as zl_peer_data does.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_incoming_data(
    incoming: *const zl_incoming,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        unsafe {
            let incoming = handle(incoming, "incoming")?;
            let length = Output::new(length, "length")?;
            write(incoming.0.enter()?.data(), buffer, capacity, length)
        }
    })
}

/// Writes the client's address to `buffer`, as zl_peer_addr does.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_incoming_peer_addr(
    incoming: *const zl_incoming,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        unsafe {
            let incoming = handle(incoming, "incoming")?;
            address::write(incoming.0.enter()?.peer_addr(), buffer, capacity)?;
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the key that the client proved it owns to `buffer`, as zl_peer_key does.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_incoming_peer_key(
    incoming: *const zl_incoming,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        unsafe {
            let incoming = handle(incoming, "incoming")?;
            security::write(incoming.0.enter()?.peer_key(), buffer, capacity)?;
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Accepts the request and frees its handle. The answer has `length` bytes at `data`, or, if
/// `data` is null, the endpoint's of zl_options_set_private_data. ZL_ERROR_ARGUMENT leaves the
/// request as it was. End the connection with zl_close or zl_connection_free.
///
/// Threads: the last that uses `incoming`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_incoming_accept(
    incoming: *mut zl_incoming,
    data: *const u8,
    length: usize,
    connection: *mut *mut zl_connection,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, memory and outputs.
        let (incoming, data, output) = unsafe {
            let output = Output::new(connection, "connection")?;
            let data = private(data, length)?;
            (zl_incoming::take(incoming)?, data, output)
        };
        output.set(give(zl_connection::new(incoming.accept(data))));
        Ok(zl_status::ZL_OK)
    })
}

/// Refuses the request and frees its handle: the client's zl_connect fails. Null does nothing.
///
/// Threads: the last that uses `incoming`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_incoming_refuse(incoming: *mut zl_incoming) {
    guard(|| {
        if !incoming.is_null() {
            // SAFETY: C's promise about handles.
            unsafe { zl_incoming::take(incoming) }?.refuse();
        }
        Ok(zl_status::ZL_OK)
    });
}

/// Accepts the request of ZL_EVENT_REQUESTED. The answer has `length` bytes at
/// `data`, or, if `data` is null, the endpoint's of zl_options_set_private_data. ZL_ERROR_CLOSED
/// if there is no such request: it was decided, or the client gave up.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_accept_request(
    worker: *mut zl_worker,
    connection: *mut zl_connection,
    data: *const u8,
    length: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        with_connection(worker, connection, |worker, placed| {
            let data = private(data, length)?;
            let status = decided(worker.accept_request(placed.id(), data))?;
            placed.set_established();
            Ok(status)
        })
    }
}

/// Refuses such a request: the client's zl_connect fails. ZL_EVENT_CLOSED follows.
/// ZL_ERROR_CLOSED if there is no such request.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_refuse_request(
    worker: *mut zl_worker,
    connection: *mut zl_connection,
) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with_connection(worker, connection, |worker, placed| {
            decided(worker.refuse_request(placed.id()))
        })
    }
}

fn decided(found: bool) -> Result<zl_status, Failure> {
    match found {
        true => Ok(zl_status::ZL_OK),
        false => Err(over()),
    }
}
