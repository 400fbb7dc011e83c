//! Listens for connections and accepts them.

use crate::address;
use crate::connection::zl_connection;
use crate::options::{self, zl_options};
use crate::owned::Owned;
use crate::pointer::{Output, free, give, handle, text, timeout};
use crate::status::{guard, zl_status};
use std::ffi::c_char;
use zerolane::Endpoint;

/// A listening UDP port. A thread of it accepts up to 64 connections before the program does
/// (ZL_OPTION_BACKLOG): zl_connect then returns, and what the peer asks waits until the program
/// accepts. After fork it belongs to the parent, and only the parent accepts. The
/// child may free its copy. A server of several processes binds an endpoint in each, on a port
/// of its own.
pub struct zl_endpoint(pub(crate) Owned<Endpoint>);

/// Listens on `address`, "host:port" (port 0: any free port), with `options`, or the defaults
/// if null. A link-local IPv6 address includes its interface: "[fe80::1%eth0]:9181". Free the
/// endpoint with zl_endpoint_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_bind(
    address: *const c_char,
    options: *const zl_options,
    endpoint: *mut *mut zl_endpoint,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about texts, handles and outputs.
        let (address, options, output) = unsafe {
            (
                text(address, "address")?,
                options::read(options)?,
                Output::new(endpoint, "endpoint")?,
            )
        };
        let on = address::resolve(address, options.lane.choice)?;
        let endpoint = Endpoint::bind(&on[..], options)?;
        output.set(give(zl_endpoint(Owned::new(endpoint))));
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the address listened on to `buffer`, as "host:port" and a zero: at most
/// ZL_ADDRESS_LENGTH bytes. ZL_ERROR_ARGUMENT if `capacity` is too small.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_local_addr(
    endpoint: *const zl_endpoint,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let endpoint = unsafe { handle(endpoint, "endpoint") }?;
        let local = endpoint.0.enter()?.local_addr();
        // SAFETY: C's promise about memory.
        unsafe { address::write(local, buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the next connection; 0 takes one that
/// waits already; ZL_TIMEOUT if
/// none came. Another thread may use the connection. End it with zl_close or
/// zl_connection_free.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_accept(
    endpoint: *mut zl_endpoint,
    timeout_ms: i64,
    connection: *mut *mut zl_connection,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (endpoint, output) = unsafe {
            (
                handle(endpoint, "endpoint")?,
                Output::new(connection, "connection")?,
            )
        };
        let mut endpoint = endpoint.0.enter()?;
        let Some(connection) = endpoint.accept(timeout(timeout_ms))? else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(give(zl_connection::new(connection)));
        Ok(zl_status::ZL_OK)
    })
}

/// Stops listening and frees the endpoint. Null does nothing. Accepted connections stay open.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_free(endpoint: *mut zl_endpoint) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(endpoint) };
        Ok(zl_status::ZL_OK)
    });
}
