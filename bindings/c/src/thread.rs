//! Runs a worker in a thread of its own, and listens and connects by it.

use crate::address::{self, resolve};
use crate::connection::{take, zl_connection};
use crate::exported::{self, rights, zl_exported};
use crate::handle::zl_handle;
use crate::options::{self, zl_options};
use crate::pending::waited;
use crate::pointer::{Output, free, give, handle, text};
use crate::status::{Failure, guard, zl_status};
use crate::worker::{no_connection, no_endpoint, with, zl_worker};
use std::ffi::c_char;
use zerolane::worker::{
    self, ConnectionId, EndpointHandle, EndpointId, WorkerHandle, WorkerThread,
};

/// A worker that runs in a thread of its own. It answers keep-alives and serves exported memory
/// whatever the program does.
pub struct zl_worker_thread {
    /// `None`: the process's worker, which no handle ends.
    own: Option<WorkerThread>,
    handle: WorkerHandle,
}

/// An endpoint of a worker's thread.
pub struct zl_endpoint_handle(EndpointHandle);

/// Runs `worker` in a thread of its own until it is stopped. Frees the worker's handle, also on
/// failure, unless it is null. Its endpoints and connections continue, without events: make
/// handles before, by zl_worker_endpoint_handle and zl_worker_connection_handle. Memory that
/// endpoints export is served in any case. End the thread with zl_worker_stop or
/// zl_worker_thread_free.
///
/// Threads: the last that uses `worker`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_spawn(
    worker: *mut zl_worker,
    thread: *mut *mut zl_worker_thread,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (output, worker) =
            unsafe { (Output::new(thread, "thread")?, zl_worker::take(worker)?) };
        let own = worker.spawn()?;
        output.set(give(zl_worker_thread {
            handle: (*own).clone(),
            own: Some(own),
        }));
        Ok(zl_status::ZL_OK)
    })
}

/// Returns a handle of the worker that all libraries of this process share. Its thread starts
/// with the first call and lives until the process ends, which tells no peer: close
/// connections first. A child of fork gets a worker of its own with its first call. Free the
/// handle with zl_worker_thread_free, which does not end the thread.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_background(thread: *mut *mut zl_worker_thread) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(thread, "thread") }?;
        let handle = worker::background()?;
        output.set(give(zl_worker_thread { own: None, handle }));
        Ok(zl_status::ZL_OK)
    })
}

/// Closes all connections and endpoints, waits until posted sends are completed, as zl_close
/// does, and frees the thread's handle, also on failure. Fails if a system error ended the
/// thread earlier. ZL_ERROR_ARGUMENT for null, and for zl_worker_background's, which continues.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_stop(thread: *mut zl_worker_thread) -> zl_status {
    guard(|| {
        if thread.is_null() {
            return Err(Failure::null("thread"));
        }
        // SAFETY: from give, and C's promise that it is not used afterwards.
        let Some(own) = unsafe { Box::from_raw(thread) }.own else {
            return Err(Failure::argument(
                "the process's worker serves other libraries too: close connections instead",
            ));
        };
        own.stop()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Ends the thread and all that it owns at once, tells the peers if possible, and frees it;
/// zl_worker_background's continues. Null does nothing. Requests on remaining handles are refused; free those handles all the
/// same.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_thread_free(thread: *mut zl_worker_thread) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(thread) };
        Ok(zl_status::ZL_OK)
    });
}

/// Listens on `address`, "host:port" (port 0: any free port), with `options`, or the defaults
/// if null. Free the endpoint with zl_endpoint_handle_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_thread_listen(
    thread: *const zl_worker_thread,
    address: *const c_char,
    options: *const zl_options,
    endpoint: *mut *mut zl_endpoint_handle,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, texts and outputs.
        let (thread, address, options, output) = unsafe {
            (
                handle(thread, "thread")?,
                text(address, "address")?,
                options::read(options)?,
                Output::new(endpoint, "endpoint")?,
            )
        };
        let endpoint = thread
            .handle
            .listen(resolve(address, options.lane.choice)?, options)
            .wait()?;
        output.set(give(zl_endpoint_handle(endpoint)));
        Ok(zl_status::ZL_OK)
    })
}

/// Connects to `address`, "host:port", with `options`, or the defaults if null; returns when it
/// is connected or the connect timeout is over. Errors as for zl_connect. End the connection
/// with zl_handle_close or zl_handle_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_thread_connect(
    thread: *const zl_worker_thread,
    address: *const c_char,
    options: *const zl_options,
    connection: *mut *mut zl_handle,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, texts and outputs.
        let (thread, address, options, output) = unsafe {
            (
                handle(thread, "thread")?,
                text(address, "address")?,
                options::read(options)?,
                Output::new(connection, "connection")?,
            )
        };
        let connected = thread
            .handle
            .connect(resolve(address, options.lane.choice)?, &options)
            .wait()?;
        output.set(zl_handle::give(connected));
        Ok(zl_status::ZL_OK)
    })
}

/// Gives a connection to the worker's thread. Frees its own handle, also on failure, unless it
/// is null or a worker's.
///
/// Threads: any; the last that uses the connection's own handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_thread_adopt(
    thread: *const zl_worker_thread,
    connection: *mut zl_connection,
    adopted: *mut *mut zl_handle,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (thread, output, connection) = unsafe {
            (
                handle(thread, "thread")?,
                Output::new(adopted, "adopted")?,
                take(connection)?,
            )
        };
        output.set(zl_handle::give(thread.handle.adopt(connection).wait()?));
        Ok(zl_status::ZL_OK)
    })
}

/// Makes a handle of a worker's endpoint, for any thread, also after zl_worker_spawn: it gets
/// the connections accepted from now on, and those whose events were not taken. The endpoint
/// has no more events. ZL_ERROR_CLOSED if the worker has no such endpoint, or it has a handle
/// already. Free it with zl_endpoint_handle_free.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_endpoint_handle(
    worker: *mut zl_worker,
    id: u64,
    endpoint: *mut *mut zl_endpoint_handle,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            let output = Output::new(endpoint, "endpoint")?;
            let endpoint = worker.endpoint_handle(EndpointId::from_u64(id));
            output.set(give(zl_endpoint_handle(endpoint.ok_or_else(no_endpoint)?)));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Makes a handle of a worker's connection, for any thread, also after zl_worker_spawn. It gets
/// what posted receives bring, also those whose events were not taken, and immediates. The
/// connection has no more events, and its handles from zl_worker_connection become invalid with
/// the next zl_worker_events. ZL_ERROR_CLOSED if the worker has no such connection, or it is
/// not connected yet, or has a handle already. End the connection with zl_handle_close or
/// zl_handle_free.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_connection_handle(
    worker: *mut zl_worker,
    id: u64,
    connection: *mut *mut zl_handle,
) -> zl_status {
    let owner = worker;
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            let output = Output::new(connection, "connection")?;
            let id = ConnectionId::from_u64(id);
            let made = worker.connection_handle(id).ok_or_else(no_connection)?;
            handle(owner, "worker")?.no_longer_lent(id);
            output.set(zl_handle::give(made));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Lets every peer of the worker use memory under `number`: see zl_worker_export_numbered.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_thread_export_numbered(
    thread: *const zl_worker_thread,
    number: u32,
    exported: *const zl_exported,
    rights: u32,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (thread, region) = unsafe {
            (
                handle(thread, "thread")?,
                handle(exported, "exported")?.region()?,
            )
        };
        let (number, rights) = (exported::number(number)?, self::rights(rights)?);
        thread
            .handle
            .export_numbered(number, &region, rights)
            .wait()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Ends zl_worker_thread_export_numbered: see zl_worker_revoke_number.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_thread_revoke_number(
    thread: *const zl_worker_thread,
    number: u32,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let thread = unsafe { handle(thread, "thread") }?;
        let revoking = thread.handle.revoke_number(exported::number(number)?);
        exported::revoked(revoking.wait()?)
    })
}

/// Writes the address listened on to `buffer`, as "host:port" and a zero: at most
/// ZL_ADDRESS_LENGTH bytes.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_handle_local_addr(
    endpoint: *const zl_endpoint_handle,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        unsafe {
            let local = handle(endpoint, "endpoint")?.0.local_addr();
            address::write(local, buffer, capacity)?;
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Waits `timeout_ms` milliseconds (negative: no limit) for the next connection; ZL_TIMEOUT if
/// none came. Connections that are not accepted by this call are served too: they may use what
/// the endpoint exports. End the connection with zl_handle_close or zl_handle_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_handle_accept(
    endpoint: *const zl_endpoint_handle,
    timeout_ms: i64,
    connection: *mut *mut zl_handle,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (endpoint, output) = unsafe {
            (
                handle(endpoint, "endpoint")?,
                Output::new(connection, "connection")?,
            )
        };
        let Ok(accepted) = waited(endpoint.0.accept(), timeout_ms) else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(zl_handle::give(accepted?));
        Ok(zl_status::ZL_OK)
    })
}

/// Lets every client that connects from now on use the memory by `name`, with `rights`,
/// ZL_RIGHT_... flags joined by |. Registered once, for any number of peers, and served while
/// the program does something else; zl_exported_revoke ends it for all.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_handle_export(
    endpoint: *const zl_endpoint_handle,
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
        let exported = endpoint.0.export(name, &region, self::rights(rights)?);
        exported.wait()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Stops listening and frees the handle. Null does nothing. Connections from
/// zl_endpoint_handle_accept stay open.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_handle_free(endpoint: *mut zl_endpoint_handle) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(endpoint) };
        Ok(zl_status::ZL_OK)
    });
}
