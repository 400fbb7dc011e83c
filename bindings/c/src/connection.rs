//! Opens, queries and closes connections, and posts to them, whichever driver they have.

use crate::address;
use crate::options::{self, zl_lane, zl_options};
use crate::owned::Owned;
use crate::pointer::{Output, free, give, handle, text, timeout};
use crate::requests::ByThread;
use crate::shared::{LentConnection, PlacedConnection, Shared};
use crate::status::{self, Failure, guard, zl_status};
use crate::work::{How, Kind, work, zl_work};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, MutexGuard};
use zerolane::counters::Account;
use zerolane::request::Request;
use zerolane::worker::{ConnectionHandle, ConnectionId};
use zerolane::{Connection, Waker};

/// A connection. It has one of three drivers:
///
/// The program's calls (zl_connect, zl_endpoint_accept): it makes progress only inside its functions,
/// in the calling thread. A peer that makes no calls for the idle timeout while this end waits for it
/// counts as dead.
///
/// A worker that the program calls (zl_worker_new): post; the worker reports what happens as events.
/// Calls with the connection count as calls with the worker.
///
/// A worker's thread (zl_worker_spawn, zl_worker_background): post, then wait. Any thread may use it,
/// also several at once: "one at a time" in the comments is for the other two. Requests of one thread
/// start in its order. They wait in order if there is no room; if the connection refuses one, its
/// completion says so.
///
/// Functions that wait for their own request (zl_send, zl_recv_into, zl_put, zl_get, zl_fetch_op,
/// zl_open_region, zl_send_message, zl_recv_message) are for the first driver; with the others they
/// return ZL_ERROR_ARGUMENT.
///
/// After fork the connection belongs to the parent: calls in the child fail with ZL_ERROR_CLOSED.
/// The child may free its copy, which does not disconnect the peer.
pub struct zl_connection(Held);

enum Held {
    Here(Box<Own>),
    /// A worker does; later, its thread may.
    ByWorker(LentConnection),
    ByThread(ByThread),
}

/// A connection that the program drives.
pub(crate) struct Own {
    connection: Owned<Connection>,
    /// Outside the lock, which a waiting thread holds.
    waker: Waker,
}

impl Own {
    /// # Errors
    /// As for [`Owned::enter`].
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, Connection>, Failure> {
        self.connection.enter()
    }
}

/// Who drives a connection now.
pub(crate) enum Driver<'a> {
    Here(&'a Own),
    ByWorker(&'a PlacedConnection),
    ByThread(&'a ByThread),
}

pub(crate) fn by_worker() -> Failure {
    Failure::argument(
        "a worker drives this connection: post, and take its events, or release it first",
    )
}

fn by_thread() -> Failure {
    Failure::argument(
        "a worker's thread drives this connection: post, and wait, or release it first",
    )
}

impl zl_connection {
    pub(crate) fn new(connection: Connection) -> zl_connection {
        let waker = connection.waker();
        let connection = Owned::new(connection);
        zl_connection(Held::Here(Box::new(Own { connection, waker })))
    }

    /// Makes the program's handle of a worker's connection.
    pub(crate) fn lend(
        shared: &Arc<Shared>,
        id: ConnectionId,
        is_established: bool,
    ) -> *mut zl_connection {
        let placed = shared.place(id, is_established);
        let handle = give(zl_connection(Held::ByWorker(LentConnection(Arc::clone(
            &placed,
        )))));
        placed.set_handle(handle.cast());
        handle
    }

    pub(crate) fn of_thread(connection: ConnectionHandle) -> zl_connection {
        zl_connection(Held::ByThread(ByThread::new(connection)))
    }

    pub(crate) fn driver(&self) -> Driver<'_> {
        match &self.0 {
            Held::Here(own) => Driver::Here(own),
            Held::ByThread(connection) => Driver::ByThread(connection),
            Held::ByWorker(LentConnection(placed)) => match placed.thread.get() {
                Some(connection) => Driver::ByThread(connection),
                None => Driver::ByWorker(placed),
            },
        }
    }

    /// The connection, if the program drives it.
    fn here(&self) -> Result<&Own, Failure> {
        match self.driver() {
            Driver::Here(connection) => Ok(connection),
            Driver::ByWorker(_) => Err(by_worker()),
            Driver::ByThread(_) => Err(by_thread()),
        }
    }

    /// Has the driver of the connection run `act` on it.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Connection) -> zerolane::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        match self.driver() {
            Driver::Here(connection) => Ok(act(&mut *connection.enter()?)?),
            Driver::ByWorker(placed) => placed.enter(|connection| Ok(act(connection)?)),
            Driver::ByThread(connection) => Ok(connection.handle.with(act).wait()?),
        }
    }
}

/// Posts the request that `make` makes, and writes its number to `id`, if not null.
///
/// # Safety
/// As for [`handle`], [`Output::new`] and [`work`].
pub(crate) unsafe fn post<R: Request + Send + 'static>(
    connection: *const zl_connection,
    id: *mut u64,
    (how, kind): (*const zl_work, &Kind),
    make: impl FnOnce(&How) -> Result<R, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (connection, output, how) = unsafe {
            (
                handle(connection, "connection")?,
                Output::optional(id),
                work(how, kind)?,
            )
        };
        let request = make(&how)?;
        let id = match connection.driver() {
            Driver::Here(connection) => connection.enter()?.post(request)?,
            Driver::ByWorker(placed) => placed.enter(|it| Ok(it.post(request)?))?,
            Driver::ByThread(connection) => connection.post(request, &how, kind.kind)?,
        };
        if let Some(output) = output {
            output.set(id.to_u64());
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Runs `body` on a connection that the program drives.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn drive(
    connection: *const zl_connection,
    body: impl FnOnce(&mut Connection) -> Result<zl_status, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { handle(connection, "connection") }?.here()?;
        body(&mut *connection.enter()?)
    })
}

/// Takes a connection that the program drives out of its handle, and frees the handle.
///
/// # Safety
/// `connection` is null, or from [`give`](crate::pointer::give) and not used afterwards; or a worker's, which stays.
pub(crate) unsafe fn take(connection: *mut zl_connection) -> Result<Connection, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle(connection, "connection") }?.here()?;
    // SAFETY: from give, and the caller's promise, because those of workers are refused above.
    match unsafe { Box::from_raw(connection) }.0 {
        Held::Here(own) => own.connection.into_inner(),
        Held::ByWorker(_) | Held::ByThread(_) => Err(by_worker()),
    }
}

/// Connects to `address`, "host:port", with `options`, or the defaults if null. A link-local
/// IPv6 address includes its interface: "[fe80::1%eth0]:9181". Fails with ZL_ERROR_NO_ADDRESS,
/// ZL_ERROR_CONNECT_TIMEOUT, ZL_ERROR_PEER_DEAD, ZL_ERROR_REJECTED or ZL_ERROR_UNTRUSTED. End
/// the connection with zl_close or zl_connection_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_connect(
    address: *const c_char,
    options: *const zl_options,
    connection: *mut *mut zl_connection,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about texts, handles and outputs.
        let (address, options, output) = unsafe {
            (
                text(address, "address")?,
                options::read(options)?,
                Output::new(connection, "connection")?,
            )
        };
        let to = address::resolve(address, options.lane.choice)?;
        let connection = Connection::connect(&to[..], &options)?;
        output.set(give(zl_connection::new(connection)));
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the peer's address to `buffer`, as "host:port" and a zero: at most ZL_ADDRESS_LENGTH
/// bytes. Of a worker's thread: the address at the time when the connection was made.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_peer_addr(
    connection: *const zl_connection,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let peer = match connection.driver() {
            // Also when the connection is over.
            Driver::ByThread(connection) => connection.handle.peer_addr(),
            _ => connection.ask(|it| Ok(it.peer_addr()))?,
        };
        // SAFETY: C's promise about memory.
        unsafe { address::write(peer, buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// Writes this end's current address to `buffer`, as "host:port" and a zero: at most
/// ZL_ADDRESS_LENGTH bytes. The text is empty while there is no route to the peer.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_local_addr(
    connection: *const zl_connection,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let local = connection.ask(|it| Ok(it.local_addr()))?;
        let text = local.map_or_else(String::new, |it| it.to_string());
        // SAFETY: C's promise about memory.
        unsafe { address::write(text, buffer, capacity) }?;
        Ok(zl_status::ZL_OK)
    })
}

/// Limits how long a call may wait for its request, in milliseconds (negative: no limit, the
/// default): zl_send, zl_recv_into, zl_put and so on. A request that takes longer is cancelled,
/// and the call returns ZL_ERROR_TIMED_OUT.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_timeout(
    connection: *mut zl_connection,
    timeout_ms: i64,
) -> zl_status {
    // SAFETY: C's promise about handles.
    unsafe {
        drive(connection, |connection| {
            connection.set_timeout(timeout(timeout_ms));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Ends another thread's zl_wait, or the next one if none is in progress: it returns ZL_WOKEN. So do
/// zl_wait_for, zl_announced and zl_wait_arrived, except on a connection of a worker's thread. It
/// ends no request: calls that wait for one continue. On a connection of a worker that the program
/// calls it acts as zl_worker_wake.
///
/// Threads: any, also while another uses the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_wake(connection: *const zl_connection) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        match connection.driver() {
            Driver::Here(own) => {
                own.connection.check_process()?;
                own.waker.wake();
            }
            Driver::ByWorker(placed) => placed.shared().wake()?,
            Driver::ByThread(connection) => connection.requests.wake()?,
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Counters of a connection since it began. Later versions may add fields in place of
/// `reserved`.
#[repr(C)]
#[derive(Default)]
pub struct zl_account {
    /// Payload bytes that reached their place without a copy in user space.
    pub bytes_placed: u64,
    /// Payload bytes copied once more in user space.
    pub bytes_moved: u64,
    /// Payload bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// Datagrams taken from the kernel.
    pub datagrams_received: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub dropped_socket_buffer: u64,
    /// System calls that sent.
    pub send_syscalls: u64,
    /// System calls that received, including those that found nothing.
    pub receive_syscalls: u64,
    /// Receive buffer that the kernel granted, in bytes.
    pub receive_buffer: u64,
    /// Of `bytes_sent`, bytes that the kernel sent without its own copy.
    pub bytes_sent_zerocopy: u64,
    /// The lane: ZL_LANE_UDP, ZL_LANE_SHARED_MEMORY, ZL_LANE_ETHERNET or ZL_LANE_IP118.
    pub lane: u64,
    /// 1: raw Ethernet frames come and leave by AF_XDP (zl_device_open); otherwise 0.
    pub bypass: u64,
    /// Puts, gets and atomic operations that this end did in its mapping of the peer's memory,
    /// without the peer's CPU (zl_exported_memfd).
    pub direct_operations: u64,
    /// 0.
    pub reserved: [u64; 3],
}

impl From<Account> for zl_account {
    fn from(account: Account) -> zl_account {
        zl_account {
            bytes_placed: account.bytes_placed,
            bytes_moved: account.bytes_moved(),
            bytes_sent: account.bytes_sent,
            datagrams_sent: account.datagrams_sent,
            datagrams_received: account.datagrams_received,
            dropped_socket_buffer: account.dropped_socket_buffer,
            send_syscalls: account.tx_data_syscalls + account.tx_control_syscalls,
            receive_syscalls: account.rx_data_syscalls
                + account.rx_control_syscalls
                + account.rx_empty_polls,
            receive_buffer: account.receive_buffer as u64,
            bytes_sent_zerocopy: account.bytes_sent_zerocopy,
            lane: zl_lane::from(account.lane) as u64,
            bypass: account.bypass.into(),
            direct_operations: account.direct_operations,
            reserved: [0; 3],
        }
    }
}

/// Writes the connection's counters so far to `account`.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_account_read(
    connection: *const zl_connection,
    account: *mut zl_account,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(account, "account")?,
            )
        };
        output.set(connection.ask(|it| Ok(it.account()))?.into());
        Ok(zl_status::ZL_OK)
    })
}

/// Writes all of the connection's counters to `buffer` as one line of JSON, without a line feed,
/// and a zero. `length` gets its bytes without the zero, also on failure; it may be null.
/// ZL_ERROR_ARGUMENT if `capacity` is too small; 4096 bytes usually do. The members have the names
/// of Rust's Account: numbers are integers, times nanoseconds ("rtt_ns"), and what is not known is
/// null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_account_json(
    connection: *const zl_connection,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        let json = connection.ask(|it| Ok(it.account()))?.json();
        // SAFETY: C's promises about memory and outputs.
        unsafe {
            if let Some(length) = Output::optional(length) {
                length.set(json.len());
            }
            address::write(json, buffer, capacity)?;
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Makes the worker's thread call `closed` with `context` once, when the connection is over,
/// whichever end closed it, even if its handle is freed by then; soon if it is over already.
/// `reason` says why, such as ZL_ERROR_PEER_DEAD; ZL_ERROR_CLOSED if the worker ended or the
/// connection was released. The function must neither block, because all connections of the
/// worker would wait, nor unwind. It is never called in a child of fork. An idle connection over a
/// network notices a dead peer only with ZL_OPTION_KEEP_ALIVE. ZL_ERROR_ARGUMENT unless a worker's
/// thread drives the connection: zl_wait and ZL_EVENT_CLOSED tell the end of others.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_on_closed(
    connection: *const zl_connection,
    closed: Option<unsafe extern "C" fn(reason: zl_status, context: *mut c_void)>,
    context: *mut c_void,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection")? };
        let closed = closed.ok_or_else(|| Failure::null("closed"))?;
        let Driver::ByThread(connection) = connection.driver() else {
            return Err(Failure::argument(
                "no worker's thread drives this connection: wait, or take its events",
            ));
        };
        let context = Context(context);
        connection.handle.on_closed(move |reason| {
            // SAFETY: C's function for this context, called once.
            unsafe { closed(status::of_error(&reason), context.pointer()) }
        });
        Ok(zl_status::ZL_OK)
    })
}

/// C's argument for its own function.
struct Context(*mut c_void);

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the library does not use what it points to; C was told which thread gets it.
unsafe impl Send for Context {}

/// Takes a connection out of its worker, so that the program can drive it or give it to another
/// worker, for example from an accepting worker to others that answer on the same port. Its old
/// handle is then unusable; free it. From a worker's thread: ZL_ERROR_BUSY, and nothing changes, if
/// requests are not over, or received numbers were not taken. From a worker that the program calls:
/// events that were not taken stay there; ZL_ERROR_CLOSED if it is not connected.
/// ZL_ERROR_ARGUMENT if no worker has it.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_release(
    connection: *const zl_connection,
    released: *mut *mut zl_connection,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, output) = unsafe {
            (
                handle(connection, "connection")?,
                Output::new(released, "released")?,
            )
        };
        let connection = match connection.driver() {
            Driver::ByWorker(placed) => placed.release()?,
            Driver::ByThread(connection) => connection.release()?,
            Driver::Here(_) => {
                return Err(Failure::argument("no worker has this connection"));
            }
        };
        output.set(give(zl_connection::new(connection)));
        Ok(zl_status::ZL_OK)
    })
}

/// Waits until the peer has received all that was sent, then disconnects and frees the
/// connection, also on failure. Gives up after the idle timeout without progress. Requests in
/// flight end; the kernel may still read what they send, so free wrapped memory in its `release`
/// (zl_region_wrap). ZL_ERROR_ARGUMENT for null and for a connection of a worker that the program
/// calls: use zl_worker_close.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_close(connection: *mut zl_connection) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let closed = match unsafe { handle(connection, "connection") }?.driver() {
            Driver::Here(_) => {
                // SAFETY: C's promise that it is not used afterwards.
                unsafe { take(connection) }?.close()?;
                return Ok(zl_status::ZL_OK);
            }
            Driver::ByWorker(_) => return Err(by_worker()),
            Driver::ByThread(connection) => connection.handle.clone().close().wait(),
        };
        // SAFETY: as above. Its requests were kept until now.
        drop(unsafe { Box::from_raw(connection) });
        closed?;
        Ok(zl_status::ZL_OK)
    })
}

/// Frees the connection, and ends it: at once if the program drives it, and in the background, once
/// posted sends are completed, if a worker does. A worker that the program calls reports no more
/// events of it. Tells the peer if possible. The kernel may still read what its requests send: free
/// wrapped memory in its `release` (zl_region_wrap). Null does nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_connection_free(connection: *mut zl_connection) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(connection) };
        Ok(zl_status::ZL_OK)
    });
}
