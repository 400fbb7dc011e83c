//! Listens for connections and accepts them.

use crate::address;
use crate::connection::zl_connection;
use crate::exported::{rights, zl_exported};
use crate::options::{self, zl_options};
use crate::owned::Owned;
use crate::pointer::{Output, free, give, handle, text, timeout};
use crate::requests::waited;
use crate::security;
use crate::shared::{LentEndpoint, PlacedEndpoint, Shared};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_char;
use std::net::SocketAddr;
use std::sync::Arc;
use zerolane::Endpoint;
use zerolane::security::PublicKey;
use zerolane::worker::{EndpointHandle, EndpointId};

/// A listening port, of the program (zl_endpoint_bind) or of a worker (zl_worker_listen).
///
/// A thread of the former accepts up to 64 connections before the program does
/// (ZL_OPTION_BACKLOG): zl_connect then returns, and what the peer asks waits until the program
/// accepts. After fork it belongs to the parent, and only the parent accepts. The
/// child may free its copy. A server of several processes binds an endpoint in each, on a port
/// of its own.
pub struct zl_endpoint(Kept);

enum Kept {
    Here(Box<Owned<Endpoint>>),
    ByWorker(LentEndpoint),
    ByThread(EndpointHandle),
}

/// Who drives an endpoint now.
enum Driver<'a> {
    Here(&'a Owned<Endpoint>),
    ByWorker(&'a PlacedEndpoint),
    ByThread(&'a EndpointHandle),
}

impl zl_endpoint {
    /// Makes the program's handle of a worker's endpoint.
    pub(crate) fn lend(shared: &Arc<Shared>, id: EndpointId) -> *mut zl_endpoint {
        let placed = shared.place_endpoint(id);
        let handle = give(zl_endpoint(Kept::ByWorker(LentEndpoint(Arc::clone(
            &placed,
        )))));
        placed.set_handle(handle.cast());
        handle
    }

    pub(crate) fn of_thread(endpoint: EndpointHandle) -> zl_endpoint {
        zl_endpoint(Kept::ByThread(endpoint))
    }

    fn driver(&self) -> Driver<'_> {
        match &self.0 {
            Kept::Here(endpoint) => Driver::Here(endpoint),
            Kept::ByThread(endpoint) => Driver::ByThread(endpoint),
            Kept::ByWorker(LentEndpoint(placed)) => match placed.thread.get() {
                Some(endpoint) => Driver::ByThread(endpoint),
                None => Driver::ByWorker(placed),
            },
        }
    }

    /// The endpoint, if the program drives it.
    pub(crate) fn here(&self) -> Result<&Owned<Endpoint>, Failure> {
        match self.driver() {
            Driver::Here(endpoint) => Ok(endpoint),
            Driver::ByWorker(_) | Driver::ByThread(_) => Err(Failure::argument(
                "a worker accepts the connections of this endpoint",
            )),
        }
    }

    /// Its address, and the key by which clients know this end.
    fn name(&self) -> Result<(SocketAddr, Option<PublicKey>), Failure> {
        match self.driver() {
            Driver::Here(endpoint) => {
                let endpoint = endpoint.enter()?;
                Ok((endpoint.local_addr(), endpoint.public_key()))
            }
            Driver::ByWorker(placed) => placed.shared().enter(|worker| {
                let endpoint = worker.endpoint(placed.id());
                let endpoint = endpoint.ok_or_else(|| {
                    Failure::new(zl_status::ZL_ERROR_CLOSED, "this endpoint is closed")
                })?;
                Ok((endpoint.local_addr(), endpoint.public_key()))
            }),
            Driver::ByThread(endpoint) => Ok((endpoint.local_addr(), endpoint.public_key())),
        }
    }
}

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
        output.set(give(zl_endpoint(Kept::Here(Box::new(Owned::new(
            endpoint,
        ))))));
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
        let (local, _) = unsafe { handle(endpoint, "endpoint") }?.name()?;
        // SAFETY: C's promise about memory.
        unsafe { address::write(local, buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the key by which clients know this end to `buffer`, as text and a zero: at most
/// ZL_PUBLIC_KEY_LENGTH bytes. The text is empty if connections are plain.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_public_key(
    endpoint: *const zl_endpoint,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let (_, key) = unsafe { handle(endpoint, "endpoint") }?.name()?;
        // SAFETY: C's promise about memory.
        unsafe { security::write(key, buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the next connection; 0 takes one that
/// waits already; ZL_TIMEOUT if none came. Another thread may use the connection. End it with
/// zl_close or zl_connection_free. A worker's thread serves connections that were not accepted,
/// too: they may use what the endpoint exports. ZL_ERROR_ARGUMENT for an endpoint of a worker that
/// the program calls: ZL_EVENT_ACCEPTED has its connections.
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
        let limit = timeout(timeout_ms);
        let accepted = match endpoint.driver() {
            Driver::Here(it) => it.enter()?.accept(limit)?.map(zl_connection::new),
            Driver::ByThread(it) => {
                let accepted = waited(it.accept(), limit).ok().transpose()?;
                accepted.map(zl_connection::of_thread)
            }
            Driver::ByWorker(_) => {
                return Err(Failure::argument(
                    "a worker accepts the connections of this endpoint: take its events",
                ));
            }
        };
        let Some(accepted) = accepted else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(give(accepted));
        Ok(zl_status::ZL_OK)
    })
}

/// Lets every client of a worker's endpoint that connects from now on use the memory by `name`,
/// with `rights`, ZL_RIGHT_... flags joined by |. Registered once, for any number of peers;
/// zl_exported_revoke ends it for all. ZL_ERROR_ARGUMENT for an endpoint of zl_endpoint_bind.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_export(
    endpoint: *const zl_endpoint,
    name: *const c_char,
    exported: *const zl_exported,
    rights: u32,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and texts.
        let (endpoint, name, region) = unsafe {
            (
                handle(endpoint, "endpoint")?,
                text(name, "name")?,
                handle(exported, "exported")?.region()?,
            )
        };
        let rights = self::rights(rights)?;
        match endpoint.driver() {
            Driver::ByWorker(placed) => placed
                .shared()
                .enter(|worker| Ok(worker.export(placed.id(), name, &region, rights)?))?,
            Driver::ByThread(endpoint) => endpoint.export(name, &region, rights).wait()?,
            Driver::Here(_) => {
                return Err(Failure::argument(
                    "export to each connection, or listen by a worker: zl_worker_listen",
                ));
            }
        }
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
