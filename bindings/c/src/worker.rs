//! Advances many connections in one loop, which the program calls.

use crate::address::{self, resolve};
use crate::connection::{take, zl_connection};
use crate::event::zl_event;
use crate::exported::{self, rights, zl_exported};
use crate::options::{self, zl_options};
use crate::owned::Owned;
use crate::pointer::{Output, Outputs, free, give, handle, milliseconds, text, timeout};
use crate::status::{Failure, guard, zl_status};
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};
use zerolane::{Waited, Waker};

/// Owns endpoints and connections and advances all of them, with one descriptor and one timer.
/// They make progress in zl_worker_progress and zl_worker_wait, or, after zl_worker_spawn, in a
/// thread of its own. After fork the worker and all that it owns belong to the parent: calls in
/// the child fail with ZL_ERROR_CLOSED. The child may free its copies, which does not
/// disconnect peers.
pub struct zl_worker {
    worker: Arc<Owned<Worker>>,
    /// Outside the lock, which a waiting thread holds.
    waker: Waker,
    descriptor: RawFd,
    lent: Mutex<Lent>,
}

/// Handles from zl_worker_connection.
#[derive(Default)]
struct Lent {
    live: HashMap<ConnectionId, Arc<zl_connection>>,
    /// Handles of connections whose end the last events reported. The program may still use them.
    over: Vec<Arc<zl_connection>>,
}

impl Lent {
    fn end(&mut self, id: ConnectionId) {
        self.over.extend(self.live.remove(&id));
    }
}

impl zl_worker {
    fn lent(&self) -> MutexGuard<'_, Lent> {
        // No code under the lock leaves it inconsistent.
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back the handle of a connection that the program drives in another way now.
    pub(crate) fn no_longer_lent(&self, id: ConnectionId) {
        self.lent().end(id);
    }

    /// Takes the worker out of its handle, and frees the handle.
    ///
    /// # Safety
    /// `worker` is null, or from [`give`] and not used afterwards.
    pub(crate) unsafe fn take(worker: *mut zl_worker) -> Result<Worker, Failure> {
        if worker.is_null() {
            return Err(Failure::null("worker"));
        }
        // SAFETY: the caller's promise.
        let zl_worker { worker, lent, .. } = *unsafe { Box::from_raw(worker) };
        drop(lent);
        // Only lent handles had other references.
        let held = || Failure::new(zl_status::ZL_ERROR_INTERNAL, "a handle of it is in use");
        Arc::into_inner(worker).ok_or_else(held)?.into_inner()
    }
}

/// Runs `body` on a worker.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn with(
    worker: *const zl_worker,
    body: impl FnOnce(&mut Worker) -> Result<zl_status, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let worker = unsafe { handle(worker, "worker") }?;
        body(&mut *worker.worker.enter()?)
    })
}

pub(crate) fn no_connection() -> Failure {
    Failure::new(
        zl_status::ZL_ERROR_CLOSED,
        "the worker does not have this connection (any longer)",
    )
}

pub(crate) fn no_endpoint() -> Failure {
    Failure::new(
        zl_status::ZL_ERROR_CLOSED,
        "the worker does not have this endpoint (any longer)",
    )
}

/// Makes a worker that owns nothing. Free it with zl_worker_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_new(worker: *mut *mut zl_worker) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(worker, "worker") }?;
        let worker = Worker::new()?;
        output.set(give(zl_worker {
            waker: worker.waker(),
            descriptor: worker.as_fd().as_raw_fd(),
            worker: Arc::new(Owned::new(worker)),
            lent: Mutex::default(),
        }));
        Ok(zl_status::ZL_OK)
    })
}

/// Sets how many microseconds zl_worker_wait, or the worker's thread, polls before it sleeps;
/// 50 by default. The time adapts to how often polling finds something.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_set_spin(worker: *mut zl_worker, spin_us: u32) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| {
            worker.set_spin(Duration::from_micros(u64::from(spin_us)));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Listens on `address`, "host:port" (port 0: any free port), with `options`, or the defaults
/// if null. `endpoint` gets the endpoint's number. The worker owns accepted connections and
/// reports each as ZL_EVENT_ACCEPTED.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_listen(
    worker: *mut zl_worker,
    address: *const c_char,
    options: *const zl_options,
    endpoint: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        with(worker, |worker| {
            let (address, options) = (text(address, "address")?, options::read(options)?);
            let output = Output::new(endpoint, "endpoint")?;
            output.set(
                worker
                    .listen(resolve(address, options.lane.choice)?, options)?
                    .to_u64(),
            );
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Writes the address that `endpoint` listens on to `buffer`, as "host:port" and a zero: at
/// most ZL_ADDRESS_LENGTH bytes. ZL_ERROR_CLOSED if the worker has no such endpoint.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_local_addr(
    worker: *mut zl_worker,
    endpoint: u64,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        with(worker, |worker| {
            let endpoint = worker.endpoint(EndpointId::from_u64(endpoint));
            let local = endpoint.ok_or_else(no_endpoint)?.local_addr();
            address::write(local, buffer, capacity)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Lets every client of `endpoint` that connects from now on use the memory by `name`, with
/// `rights`, ZL_RIGHT_... flags joined by |. Registered once, for any number of peers;
/// zl_exported_revoke ends it for all.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_export(
    worker: *mut zl_worker,
    endpoint: u64,
    name: *const c_char,
    exported: *const zl_exported,
    rights: u32,
) -> zl_status {
    // SAFETY: C's promises about handles and texts.
    unsafe {
        with(worker, |worker| {
            let (name, region) = (text(name, "name")?, handle(exported, "exported")?.region()?);
            let endpoint = EndpointId::from_u64(endpoint);
            worker.export(endpoint, name, &region, self::rights(rights)?)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Lets every peer of the worker use memory with `rights`, ZL_RIGHT_... flags joined by |, under
/// `number`, below 2^24, of the program's own: on all present connections, and on all that it
/// accepts, makes or adopts later. The peers make the key with zl_key_numbered and need not ask.
/// ZL_ERROR_ARGUMENT if the number is taken, by the worker or on one of its connections;
/// ZL_ERROR_TOO_MANY if one of them has no room: then none has the export. See zl_export_numbered.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_export_numbered(
    worker: *mut zl_worker,
    number: u32,
    exported: *const zl_exported,
    rights: u32,
) -> zl_status {
    // SAFETY: C's promises about handles.
    unsafe {
        with(worker, |worker| {
            let region = handle(exported, "exported")?.region()?;
            let (number, rights) = (exported::number(number)?, self::rights(rights)?);
            worker.export_numbered(number, &region, rights)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Ends zl_worker_export_numbered on all connections of the worker, at once. ZL_ERROR_ARGUMENT if
/// the worker exports nothing under `number`.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_revoke_number(worker: *mut zl_worker, number: u32) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| {
            exported::revoked(worker.revoke_number(exported::number(number)?))
        })
    }
}

/// Stops listening. Accepted connections stay open. ZL_ERROR_CLOSED if it was already closed.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_close_endpoint(
    worker: *mut zl_worker,
    endpoint: u64,
) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| {
            match worker.close_endpoint(EndpointId::from_u64(endpoint)) {
                true => Ok(zl_status::ZL_OK),
                false => Err(no_endpoint()),
            }
        })
    }
}

/// Begins to connect to `address`, "host:port", with `options`, or the defaults if null, and
/// returns at once, after it looked up the host name, whose addresses are tried in order.
/// `connection` gets the connection's number. ZL_EVENT_CONNECTED or ZL_EVENT_CLOSED reports the
/// result; requests posted before that wait, and stay with the address tried then.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_connect(
    worker: *mut zl_worker,
    address: *const c_char,
    options: *const zl_options,
    connection: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        with(worker, |worker| {
            let (address, options) = (text(address, "address")?, options::read(options)?);
            let output = Output::new(connection, "connection")?;
            output.set(
                worker
                    .connect(resolve(address, options.lane.choice)?, &options)?
                    .to_u64(),
            );
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Takes over a connection, of an endpoint or released by another worker; `id` gets its number.
/// Frees the connection's handle, also on failure, unless it is null or a worker's.
///
/// Threads: one at a time; the last that uses the connection's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_adopt(
    worker: *mut zl_worker,
    connection: *mut zl_connection,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            let output = Output::new(id, "id")?;
            output.set(worker.adopt(take(connection)?)?.to_u64());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Takes a connection out of the worker, so that the program can drive it or give it to another
/// worker. Its handles from zl_worker_connection become invalid; its events that were not taken
/// stay here. ZL_ERROR_CLOSED if it is not a connection of this worker, or is not connected.
/// End the connection with zl_close or zl_connection_free.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_release(
    worker: *mut zl_worker,
    id: u64,
    connection: *mut *mut zl_connection,
) -> zl_status {
    let owner = worker;
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            let output = Output::new(connection, "connection")?;
            let id = ConnectionId::from_u64(id);
            let released = worker.release(id).ok_or_else(no_connection)?;
            handle(owner, "worker")?.no_longer_lent(id);
            output.set(give(zl_connection::new(released)));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Returns a handle of connection `id`, for functions that post, cancel, export or query.
/// Requests start with the next zl_worker_progress. Functions that wait for a request, zl_poll,
/// zl_wait and zl_close refuse the handle with ZL_ERROR_ARGUMENT: the worker reports its
/// completions as events. ZL_ERROR_CLOSED if the worker has no such connection.
///
/// The worker owns the handle and returns the same one each time. It is valid until the
/// zl_worker_events call after the one that reported ZL_EVENT_CLOSED, and until
/// zl_worker_release, zl_worker_spawn or zl_worker_free. Once the connection is over, functions
/// return ZL_ERROR_CLOSED.
///
/// Threads: one at a time. Using the handle counts as using the worker: ZL_ERROR_BUSY while
/// another thread does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_connection(
    worker: *mut zl_worker,
    id: u64,
    connection: *mut *mut zl_connection,
) -> zl_status {
    let owner = worker;
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            let output = Output::new(connection, "connection")?;
            let id = ConnectionId::from_u64(id);
            worker.connection(id).ok_or_else(no_connection)?;
            let owner = handle(owner, "worker")?;
            let mut lent = owner.lent();
            let lent = lent.live.entry(id).or_insert_with(|| {
                let waker = owner.waker.clone();
                Arc::new(zl_connection::of_worker(&owner.worker, id, waker))
            });
            output.set(Arc::as_ptr(lent).cast_mut());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Begins to close a connection: completes posted sends, as zl_close does, then tells the peer.
/// ZL_EVENT_CLOSED follows. ZL_ERROR_CLOSED if it is already over.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_close(worker: *mut zl_worker, connection: u64) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| {
            match worker.close(ConnectionId::from_u64(connection)) {
                true => Ok(zl_status::ZL_OK),
                false => Err(no_connection()),
            }
        })
    }
}

/// Writes the number of connections that are not over to `count`.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_connections(
    worker: *mut zl_worker,
    count: *mut usize,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            Output::new(count, "count")?.set(worker.connections());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Does a bounded amount of work and returns: ZL_READY if there may be more to do at once,
/// otherwise ZL_OK.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_progress(worker: *mut zl_worker) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| match worker.progress()? {
            true => Ok(zl_status::ZL_READY),
            false => Ok(zl_status::ZL_OK),
        })
    }
}

/// Makes progress until there is an event (ZL_OK), zl_worker_wake was called (ZL_WOKEN), or
/// `timeout_ms` milliseconds (negative: no limit) passed (ZL_TIMEOUT).
///
/// Threads: one at a time; zl_worker_wake of another ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_wait(worker: *mut zl_worker, timeout_ms: i64) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| match worker.wait(timeout(timeout_ms))? {
            Waited::Got(()) => Ok(zl_status::ZL_OK),
            Waited::TimedOut => Ok(zl_status::ZL_TIMEOUT),
            Waited::Woken => Ok(zl_status::ZL_WOKEN),
        })
    }
}

/// Takes up to `capacity` events, at least 1, without making progress. `count` gets their
/// number; ZL_TIMEOUT if there were none. Invalidates handles of connections whose end the
/// previous call reported (zl_worker_connection).
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_events(
    worker: *mut zl_worker,
    events: *mut zl_event,
    capacity: usize,
    count: *mut usize,
) -> zl_status {
    let owner = worker;
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            let outputs = Outputs::new(events, capacity, "events", count)?;
            let mut lent = handle(owner, "worker")?.lent();
            lent.over.clear();
            let taken = std::iter::from_fn(|| {
                let event = worker.next_event()?;
                if let Event::Closed { connection, .. } = &event {
                    lent.end(*connection);
                }
                Some(event.into())
            });
            Ok(outputs.set(taken))
        })
    }
}

/// Call this before the program sleeps on zl_worker_fd: the descriptor becomes readable when
/// something arrives, a timer expires or zl_worker_wake is called. ZL_READY if there is
/// something to do already: do not sleep, call zl_worker_progress. Call zl_worker_progress also
/// after each sleep.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_arm(worker: *mut zl_worker) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| match worker.arm()? {
            true => Ok(zl_status::ZL_OK),
            false => Ok(zl_status::ZL_READY),
        })
    }
}

/// Returns the descriptor to watch for POLLIN after zl_worker_arm; -1 if `worker` is null. Do
/// not read it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_fd(worker: *const zl_worker) -> c_int {
    // SAFETY: C's promise about handles.
    unsafe { handle(worker, "worker") }.map_or(-1, |worker| worker.descriptor)
}

/// Writes to `timeout_ms` for how many milliseconds zl_worker_progress has nothing to do unless
/// the descriptor becomes readable; -1 if no timer runs. After zl_worker_arm the descriptor
/// covers timers too.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_next_timeout(
    worker: *mut zl_worker,
    timeout_ms: *mut i64,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |worker| {
            Output::new(timeout_ms, "timeout_ms")?.set(milliseconds(worker.next_timeout()));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Ends another thread's zl_worker_wait, or the next one if none is in progress, and makes the
/// descriptor readable after zl_worker_arm.
///
/// Threads: any, also while another uses the worker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_wake(worker: *const zl_worker) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let worker = unsafe { handle(worker, "worker") }?;
        worker.worker.check_process()?;
        worker.waker.wake();
        Ok(zl_status::ZL_OK)
    })
}

/// Ends all connections and endpoints of the worker at once, tells the peers if possible, and
/// frees it. The kernel may still read what requests send: free wrapped memory in its `release`
/// (zl_region_wrap). Null does nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_free(worker: *mut zl_worker) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(worker) };
        Ok(zl_status::ZL_OK)
    });
}
