//! One loop for many connections, called by the program.

use crate::address::{self, resolve};
use crate::connection::{take, zl_connection};
use crate::event::zl_event;
use crate::exported::{rights, zl_exported};
use crate::options::{self, zl_options};
use crate::owned::Owned;
use crate::pointer::{Output, Outputs, free, give, handle, milliseconds, text, timeout};
use crate::status::{Failure, guard, zl_status};
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerolane::Waker;
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};

/// Owns endpoints and connections, and moves all of them: one descriptor and one timer for a thousand
/// sockets. They make progress in zl_worker_progress and zl_worker_wait, or, after zl_worker_spawn, in a
/// thread of its own. After fork it belongs to the parent, with all that it owns: calls in the child fail with
/// ZL_ERROR_CLOSED. The child may free its copies; peers are not told.
pub struct zl_worker {
    worker: Arc<Owned<Worker>>,
    /// Beside the lock, which is held while another thread waits.
    waker: Waker,
    descriptor: RawFd,
    lent: Mutex<Lent>,
}

/// Handles that zl_worker_connection gave out.
#[derive(Default)]
struct Lent {
    live: HashMap<ConnectionId, Arc<zl_connection>>,
    /// Of connections whose end was told with the last events, which the program may be looking at.
    over: Vec<Arc<zl_connection>>,
}

impl Lent {
    fn end(&mut self, id: ConnectionId) {
        self.over.extend(self.live.remove(&id));
    }
}

impl zl_worker {
    fn lent(&self) -> MutexGuard<'_, Lent> {
        // No code under the lock leaves it half changed.
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker, out of a handle that is freed.
    ///
    /// # Safety
    /// `worker` is null, or from [`give`] and not used any more afterwards.
    pub(crate) unsafe fn take(worker: *mut zl_worker) -> Result<Worker, Failure> {
        if worker.is_null() {
            return Err(Failure::null("worker"));
        }
        // SAFETY: the caller's promise.
        let zl_worker { worker, lent, .. } = *unsafe { Box::from_raw(worker) };
        drop(lent);
        // What was lent had the other references.
        let held = || Failure::new(zl_status::ZL_ERROR_INTERNAL, "a handle of it is in use");
        Arc::into_inner(worker).ok_or_else(held)?.into_inner()
    }
}

/// Runs `body` on a worker.
///
/// # Safety
/// As [`handle`].
unsafe fn with(
    worker: *const zl_worker,
    body: impl FnOnce(&mut Worker) -> Result<zl_status, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let worker = unsafe { handle(worker, "worker") }?;
        body(&mut *worker.worker.enter()?)
    })
}

fn no_connection() -> Failure {
    Failure::new(
        zl_status::ZL_ERROR_CLOSED,
        "the worker has no such connection, or not any more",
    )
}

fn no_endpoint() -> Failure {
    Failure::new(
        zl_status::ZL_ERROR_CLOSED,
        "the worker has no such endpoint, or not any more",
    )
}

/// Makes a worker that owns nothing yet. Free it with zl_worker_free.
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

/// Sets how many microseconds zl_worker_wait, and a thread of its own, look for more before they sleep: 50
/// unless set. The time adapts to the success of looking.
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

/// Listens on `address`, "host:port" (port 0: any that is free), with `options`, or the defaults if null.
/// `endpoint` names it. Connections accepted are the worker's; each is told by ZL_EVENT_ACCEPTED.
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
                    .listen(resolve(address, options.lane)?[0], options)?
                    .to_u64(),
            );
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Writes the address that `endpoint` listens on to `buffer`, as "host:port" and a zero. ZL_ADDRESS_LENGTH
/// bytes are enough.
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

/// Lets every client of `endpoint` that connects from now on use the memory with `rights`, an or of
/// ZL_RIGHT_..., by `name`: registered once, for any number of peers. zl_exported_revoke ends it for all.
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

/// Stops listening. Connections that were accepted go on. ZL_ERROR_CLOSED if it was closed already.
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

/// Begins to connect to `address`, "host:port", with `options`, or the defaults if null, and returns at once
/// (the name of a host is looked up first, and its first address taken). `connection` names it. ZL_EVENT_CONNECTED or ZL_EVENT_CLOSED tells
/// what came of it; what is posted before waits.
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
                    .connect(resolve(address, options.lane)?[0], &options)?
                    .to_u64(),
            );
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Takes over a connection: an endpoint's, another worker's. Its handle is freed, also if this fails; only
/// one that is null or a worker's is left as it is.
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

/// Gives a connection out of the worker's hands: for the program to drive, or for another worker. Handles that
/// zl_worker_connection gave out for it are over. ZL_ERROR_CLOSED if it is none of this worker's, or is not connected.
/// Its events that were not taken stay here. End it with zl_close or zl_connection_free.
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
            handle(owner, "worker")?.lent().end(id);
            output.set(give(zl_connection::new(released)));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// A handle of connection `id`, for the functions that post, cancel, export, or tell something of a connection.
/// What it is asked begins with the next zl_worker_progress. The functions that wait for the end of a request,
/// zl_poll, zl_wait and zl_close refuse it: its completions are events of the worker.
///
/// The handle is the worker's, and the same each time. It is valid until the call of zl_worker_events after the
/// one that told of its ZL_EVENT_CLOSED, until zl_worker_release, zl_worker_spawn or zl_worker_free. Between
/// the end of the connection and that, functions return ZL_ERROR_CLOSED. ZL_ERROR_CLOSED also here, if the
/// worker has no such connection.
///
/// Threads: one at a time. Using the handle counts as using the worker: ZL_ERROR_BUSY while another thread
/// does.
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

/// Begins to close a connection: what was posted to be sent is sent, as by zl_close, then the peer is
/// told. ZL_EVENT_CLOSED follows. ZL_ERROR_CLOSED if it is over already.
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

/// Moves what can be moved, a bounded amount of work, and returns: ZL_READY if there may be more to do at once,
/// ZL_OK if not.
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

/// Makes progress until there is an event (ZL_OK), or zl_worker_wake was called, or `timeout_ms` milliseconds
/// (negative: no limit) are over (ZL_TIMEOUT).
///
/// Threads: one at a time; zl_worker_wake of another ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_wait(worker: *mut zl_worker, timeout_ms: i64) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        with(worker, |worker| match worker.wait(timeout(timeout_ms))? {
            true => Ok(zl_status::ZL_OK),
            false => Ok(zl_status::ZL_TIMEOUT),
        })
    }
}

/// Takes up to `capacity` events, at least 1; `count` says how many there were, ZL_TIMEOUT that there were none. It
/// makes no progress. Handles of connections whose end the call before told of are over (zl_worker_connection).
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

/// To be called before the program sleeps on zl_worker_fd by its own means: the descriptor becomes readable when
/// something arrives, a timer expires or zl_worker_wake is called. ZL_READY if there is something to do
/// already: then the program must not sleep, but call zl_worker_progress, which it does in any case after it slept.
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

/// The descriptor to watch for POLLIN after zl_worker_arm; -1 if `worker` is null. Do not read it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_fd(worker: *const zl_worker) -> c_int {
    // SAFETY: C's promise about handles.
    unsafe { handle(worker, "worker") }.map_or(-1, |worker| worker.descriptor)
}

/// Writes to `timeout_ms` how many milliseconds zl_worker_progress has nothing to do unless the descriptor becomes
/// readable; -1 if no timer runs. The descriptor, after zl_worker_arm, tells of that, too.
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

/// Ends a zl_worker_wait of another thread, or the next one if none is in progress, and makes the descriptor
/// readable after zl_worker_arm.
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

/// Ends all it owns at once, tells the peers if possible, and frees it. Null does nothing. Memory of requests is
/// not touched any more.
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
