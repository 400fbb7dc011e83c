//! Advances many connections in one loop, which the program calls, or in a thread.

use crate::address::resolve;
use crate::connection::{Driver, take, zl_connection};
use crate::endpoint::zl_endpoint;
use crate::event::zl_event;
use crate::exported::{self, rights, zl_exported};
use crate::key;
use crate::options::{self, zl_options};
use crate::pointer::{Output, Outputs, free, give, handle, milliseconds, text, timeout};
use crate::pool::zl_pool;
use crate::shared::{PlacedConnection, Shared, over};
use crate::status::{Failure, guard, zl_status};
use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zerolane::Waited;
use zerolane::worker::{self, Worker, WorkerHandle, WorkerThread};

/// Owns endpoints and connections and advances all of them, with one descriptor and one timer: in
/// zl_worker_progress and zl_worker_wait, or, after zl_worker_spawn, in a thread of its own, which
/// answers keep-alives and serves exported memory whatever the program does. Free its endpoints and
/// connections too, before or after it.
///
/// Any thread may use a worker that has a thread, at any time: "one at a time" in the comments is
/// for one that the program calls.
///
/// After fork the worker and all that it owns belong to the parent: calls in the child fail with
/// ZL_ERROR_CLOSED. The child may free its copies, which does not disconnect peers.
pub struct zl_worker {
    shared: Arc<Shared>,
    /// -1 for one that always had a thread.
    descriptor: RawFd,
    thread: OnceLock<Thread>,
}

struct Thread {
    handle: WorkerHandle,
    /// `None`: the process's worker, which no handle ends.
    own: Option<WorkerThread>,
}

impl zl_worker {
    /// # Errors
    /// It has a thread.
    fn called(&self) -> Result<&Arc<Shared>, Failure> {
        match self.thread.get() {
            None => Ok(&self.shared),
            Some(_) => Err(Failure::argument("the worker runs in a thread of its own")),
        }
    }
}

impl Drop for zl_worker {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// Runs `body` on a worker that the program calls.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn with(
    worker: *const zl_worker,
    body: impl FnOnce(&Arc<Shared>, &mut Worker) -> Result<zl_status, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { handle(worker, "worker") }?.called()?;
        shared.enter(|worker| body(shared, worker))
    })
}

/// Runs `body` on a worker that the program calls, and one of its connections.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn with_connection(
    worker: *const zl_worker,
    connection: *const zl_connection,
    body: impl FnOnce(&mut Worker, &PlacedConnection) -> Result<zl_status, Failure>,
) -> zl_status {
    // SAFETY: the caller's promise.
    unsafe {
        with(worker, |shared, worker| {
            let Driver::ByWorker(placed) = handle(connection, "connection")?.driver() else {
                return Err(Failure::argument("not a connection of this worker"));
            };
            if !Arc::ptr_eq(shared, placed.shared()) {
                return Err(Failure::argument("a connection of another worker"));
            }
            body(worker, placed)
        })
    }
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
        let (waker, descriptor) = (worker.waker(), worker.as_fd().as_raw_fd());
        output.set(give(zl_worker {
            shared: Shared::new(Some(worker), waker),
            descriptor,
            thread: OnceLock::new(),
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
        with(worker, |_, worker| {
            worker.set_spin(Duration::from_micros(u64::from(spin_us)));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Listens on `address`, "host:port" (port 0: any free port), with `options`, or the defaults
/// if null. The worker owns accepted connections. If the program calls it, it reports each as
/// ZL_EVENT_ACCEPTED; if it has a thread, take them with zl_endpoint_accept. Free the endpoint with
/// zl_endpoint_free.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_listen(
    worker: *mut zl_worker,
    address: *const c_char,
    options: *const zl_options,
    endpoint: *mut *mut zl_endpoint,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, texts and outputs.
        let (worker, address, options, output) = unsafe {
            (
                handle(worker, "worker")?,
                text(address, "address")?,
                options::read(options)?,
                Output::new(endpoint, "endpoint")?,
            )
        };
        let on = resolve(address, options.lane.choice)?;
        output.set(match worker.thread.get() {
            Some(thread) => {
                let endpoint = thread.handle.listen(on, options).wait()?;
                give(zl_endpoint::of_thread(endpoint))
            }
            None => {
                let endpoint = worker
                    .shared
                    .enter(|worker| Ok(worker.listen(on, options)?))?;
                zl_endpoint::lend(&worker.shared, endpoint)
            }
        });
        Ok(zl_status::ZL_OK)
    })
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
    guard(|| {
        // SAFETY: C's promises about handles.
        let (worker, region) = unsafe {
            (
                handle(worker, "worker")?,
                handle(exported, "exported")?.region()?,
            )
        };
        let (number, rights) = (key::number(number)?, self::rights(rights)?);
        match worker.thread.get() {
            Some(thread) => {
                let exporting = thread.handle.export_numbered(number, &region, rights);
                exporting.wait()?;
            }
            None => worker
                .shared
                .enter(|worker| Ok(worker.export_numbered(number, &region, rights)?))?,
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Ends zl_worker_export_numbered on all connections of the worker, at once. ZL_ERROR_ARGUMENT if
/// the worker exports nothing under `number`.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_revoke_number(worker: *mut zl_worker, number: u32) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let worker = unsafe { handle(worker, "worker") }?;
        let number = key::number(number)?;
        let was_exported = match worker.thread.get() {
            Some(thread) => thread.handle.revoke_number(number).wait()?,
            None => worker
                .shared
                .enter(|worker| Ok(worker.revoke_number(number)))?,
        };
        exported::revoked(was_exported)
    })
}

/// Takes memory of `pool` for messages that no posted receive matches, on all present connections
/// and on all that the worker accepts, makes or adopts later. A connection that shares another
/// pool keeps that. ZL_ERROR_ARGUMENT if the worker shares another pool.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_share_receives(
    worker: *mut zl_worker,
    pool: *const zl_pool,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (worker, pool) = unsafe { (handle(worker, "worker")?, &handle(pool, "pool")?.0) };
        match worker.thread.get() {
            Some(thread) => thread.handle.share_receives(pool).wait()?,
            None => worker
                .shared
                .enter(|worker| Ok(worker.share_receives(pool)?))?,
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Connects to `address`, "host:port", with `options`, or the defaults if null; host names are looked
/// up in the call, and their addresses tried in order. If the program calls the worker, this returns
/// at once, and ZL_EVENT_CONNECTED or ZL_EVENT_CLOSED reports the result; requests posted before that
/// wait, and stay with the address tried then. If the worker has a thread, this returns when the
/// connection is made or the connect timeout is over, with errors as for zl_connect. Free the
/// connection with zl_connection_free.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_connect(
    worker: *mut zl_worker,
    address: *const c_char,
    options: *const zl_options,
    connection: *mut *mut zl_connection,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, texts and outputs.
        let (worker, address, options, output) = unsafe {
            (
                handle(worker, "worker")?,
                text(address, "address")?,
                options::read(options)?,
                Output::new(connection, "connection")?,
            )
        };
        let to = resolve(address, options.lane.choice)?;
        output.set(match worker.thread.get() {
            Some(thread) => {
                let connection = thread.handle.connect(to, &options).wait()?;
                give(zl_connection::of_thread(connection))
            }
            None => worker.shared.enter(|it| {
                Ok(zl_connection::lend(
                    &worker.shared,
                    it.connect(to, &options)?,
                    false,
                ))
            })?,
        });
        Ok(zl_status::ZL_OK)
    })
}

/// Gives a connection that the program drives, or that was released by another worker, to this one.
/// Frees its handle, also on failure, unless it is null or a worker's; `adopted` gets another.
///
/// Threads: one at a time; the last that uses the connection's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_adopt(
    worker: *mut zl_worker,
    connection: *mut zl_connection,
    adopted: *mut *mut zl_connection,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (worker, output, connection) = unsafe {
            (
                handle(worker, "worker")?,
                Output::new(adopted, "adopted")?,
                take(connection)?,
            )
        };
        output.set(match worker.thread.get() {
            Some(thread) => {
                let adopted = thread.handle.adopt(connection).wait()?;
                give(zl_connection::of_thread(adopted))
            }
            None => worker.shared.enter(|it| {
                Ok(zl_connection::lend(
                    &worker.shared,
                    it.adopt(connection)?,
                    true,
                ))
            })?,
        });
        Ok(zl_status::ZL_OK)
    })
}

/// Begins to close a connection of a worker that the program calls: completes posted sends, as
/// zl_close does, then tells the peer. ZL_EVENT_CLOSED follows; then free it. ZL_ERROR_CLOSED if it
/// is already over.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_close(
    worker: *mut zl_worker,
    connection: *mut zl_connection,
) -> zl_status {
    // SAFETY: C's promises about handles.
    unsafe {
        with_connection(worker, connection, |worker, placed| {
            match worker.close(placed.id()) {
                true => Ok(zl_status::ZL_OK),
                false => Err(over()),
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
        with(worker, |_, worker| {
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
        with(worker, |_, worker| match worker.progress()? {
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
        with(worker, |_, worker| {
            match worker.wait(timeout(timeout_ms))? {
                Waited::Got(()) => Ok(zl_status::ZL_OK),
                Waited::TimedOut => Ok(zl_status::ZL_TIMEOUT),
                Waited::Woken => Ok(zl_status::ZL_WOKEN),
            }
        })
    }
}

/// Takes up to `capacity` events, at least 1, without making progress. `count` gets their
/// number; ZL_TIMEOUT if there were none. Connections that the worker accepted are yours, with their
/// first event: free each with zl_connection_free, at the latest after ZL_EVENT_CLOSED.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_events(
    worker: *mut zl_worker,
    events: *mut zl_event,
    capacity: usize,
    count: *mut usize,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(worker, |shared, worker| {
            let outputs = Outputs::new(events, capacity, "events", count)?;
            Ok(outputs.set(std::iter::from_fn(|| zl_event::next(shared, worker))))
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
        with(worker, |_, worker| match worker.arm()? {
            true => Ok(zl_status::ZL_OK),
            false => Ok(zl_status::ZL_READY),
        })
    }
}

/// Returns the descriptor to watch for POLLIN after zl_worker_arm; -1 if `worker` is null or has a
/// thread. Do not read it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_fd(worker: *const zl_worker) -> c_int {
    // SAFETY: C's promise about handles.
    let worker = unsafe { handle(worker, "worker") };
    let called = worker.ok().filter(|it| it.thread.get().is_none());
    called.map_or(-1, |worker| worker.descriptor)
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
        with(worker, |_, worker| {
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
        unsafe { handle(worker, "worker") }?.called()?.wake()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Runs the worker in a thread of its own until it is stopped. Its endpoints and connections continue,
/// without events, and any thread may use their handles from then on. ZL_ERROR_BUSY, and nothing
/// changes, if events were not taken, a connection is not made yet, or requests are not over. End the
/// thread with zl_worker_stop or zl_worker_free. If the system refuses a thread, the worker has
/// ended.
///
/// Threads: one at a time, also for all that the worker owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_spawn(worker: *mut zl_worker) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let worker = unsafe { handle(worker, "worker") }?;
        let own = worker.called()?.take_for_thread()?.spawn()?;
        // No other thread is in a call.
        let _ = worker.thread.set(Thread {
            handle: (*own).clone(),
            own: Some(own),
        });
        Ok(zl_status::ZL_OK)
    })
}

/// Returns the worker that all libraries of this process share, which has a thread. It starts
/// with the first call and lives until the process ends, which tells no peer: close
/// connections first. A child of fork gets a worker of its own with its first call. Free the
/// handle with zl_worker_free, which does not end the thread.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_background(worker: *mut *mut zl_worker) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(worker, "worker") }?;
        let handle = worker::background()?;
        output.set(give(zl_worker {
            shared: Shared::new(None, handle.waker()),
            descriptor: -1,
            thread: OnceLock::from(Thread { handle, own: None }),
        }));
        Ok(zl_status::ZL_OK)
    })
}

/// Closes all connections and endpoints of a worker that has a thread, waits until posted sends are
/// completed, as zl_close does, and frees the worker, also on failure. Fails if a system error ended
/// the thread earlier. ZL_ERROR_ARGUMENT, and frees nothing, for null, for a worker that the program
/// calls, and for zl_worker_background's, which continues.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_worker_stop(worker: *mut zl_worker) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        match unsafe { handle(worker, "worker") }?.thread.get() {
            Some(Thread { own: Some(_), .. }) => {}
            Some(_) => {
                return Err(Failure::argument(
                    "the process's worker serves other libraries too: close connections instead",
                ));
            }
            None => {
                return Err(Failure::argument(
                    "the worker has no thread: close its connections, and free it",
                ));
            }
        }
        // SAFETY: from give, and C's promise that it is not used afterwards.
        let mut worker = unsafe { Box::from_raw(worker) };
        if let Some(Thread { own: Some(own), .. }) = worker.thread.take() {
            own.stop()?;
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Ends all connections and endpoints of the worker at once, and its thread, tells the peers if
/// possible, and frees the worker; zl_worker_background's continues. Calls on handles of what it
/// owned then return ZL_ERROR_CLOSED; free them all the same. The kernel may still read what requests
/// send: free wrapped memory in its `release` (zl_region_wrap). Null does nothing.
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
