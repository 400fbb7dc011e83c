//! Opens, queries and closes connections.

use crate::address;
use crate::options::{self, zl_lane, zl_options};
use crate::owned::Owned;
use crate::pointer::{Output, give, handle, text, timeout};
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_char;
use std::sync::Arc;
use zerolane::counters::Account;
use zerolane::worker::{ConnectionId, Worker};
use zerolane::{Connection, Waker};

/// A connection. It makes progress only inside its functions, in the calling thread. A peer
/// that makes no calls for the idle timeout while this end waits for it counts as dead. A
/// zl_worker advances many connections, also in a thread of its own. After fork the connection
/// belongs to the parent: calls in the child fail with ZL_ERROR_CLOSED. The child may free its
/// copy, which does not disconnect the peer.
pub struct zl_connection {
    held: Held,
    /// Outside the lock, which a waiting thread holds.
    waker: Waker,
}

enum Held {
    /// The program drives it.
    Here(Box<Owned<Connection>>),
    /// A worker drives it.
    ByWorker(Arc<Owned<Worker>>, ConnectionId),
}

impl zl_connection {
    pub(crate) fn new(connection: Connection) -> zl_connection {
        let waker = connection.waker();
        zl_connection {
            held: Held::Here(Box::new(Owned::new(connection))),
            waker,
        }
    }

    /// A connection of `worker`, to post requests to.
    pub(crate) fn of_worker(worker: &Arc<Owned<Worker>>, id: ConnectionId, waker: Waker) -> Self {
        zl_connection {
            held: Held::ByWorker(Arc::clone(worker), id),
            waker,
        }
    }

    /// The connection, if the program drives it.
    fn here(&self) -> Result<&Owned<Connection>, Failure> {
        match &self.held {
            Held::Here(connection) => Ok(connection),
            Held::ByWorker(..) => Err(Failure::argument(
                "a worker drives this connection: post, and take its events, or release it first",
            )),
        }
    }
}

/// Runs `body` on a connection, whether the program or a worker drives it.
///
/// # Safety
/// As for [`handle`].
pub(crate) unsafe fn with(
    connection: *const zl_connection,
    body: impl FnOnce(&mut Connection) -> Result<zl_status, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { handle(connection, "connection") }?;
        match &connection.held {
            Held::Here(connection) => body(&mut *connection.enter()?),
            Held::ByWorker(worker, id) => {
                let mut worker = worker.enter()?;
                let over = || Failure::new(zl_status::ZL_ERROR_CLOSED, "the connection is over");
                body(worker.connection(*id).ok_or_else(over)?)
            }
        }
    })
}

/// Runs `body`, which waits or takes completions, on a connection that the program drives.
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
    // SAFETY: from give, because handles of workers are refused above; and the caller's promise.
    let connection = unsafe { Box::from_raw(connection) };
    match connection.held {
        Held::Here(connection) => connection.into_inner(),
        Held::ByWorker(..) => Err(Failure::argument("a worker drives this connection")),
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
/// bytes.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_peer_addr(
    connection: *const zl_connection,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        with(connection, |connection| {
            address::write(connection.peer_addr(), buffer, capacity)?;
            Ok(zl_status::ZL_OK)
        })
    }
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
    // SAFETY: C's promises about handles and memory.
    unsafe {
        with(connection, |connection| {
            let local = connection.local_addr();
            let text = local.map_or_else(String::new, |it| it.to_string());
            address::write(text, buffer, capacity)?;
            Ok(zl_status::ZL_OK)
        })
    }
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
        with(connection, |connection| {
            connection.set_timeout(timeout(timeout_ms));
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Ends another thread's zl_wait, zl_announced or zl_wait_arrived, or the next one if none is
/// in progress: it returns ZL_TIMEOUT. It ends no request: calls that wait for one continue. On
/// a connection of a worker it acts as zl_worker_wake.
///
/// Threads: any, also while another uses the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_wake(connection: *const zl_connection) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let connection = unsafe { handle(connection, "connection") }?;
        match &connection.held {
            Held::Here(it) => it.check_process()?,
            Held::ByWorker(it, _) => it.check_process()?,
        }
        connection.waker.wake();
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
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(account, "account")?;
            output.set(connection.account().into());
            Ok(zl_status::ZL_OK)
        })
    }
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
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        with(connection, |connection| {
            write_json(&connection.account(), buffer, capacity, length)
        })
    }
}

/// Writes `account` for C.
///
/// # Safety
/// `capacity` bytes at `buffer` are writable; `length` is null or an output.
pub(crate) unsafe fn write_json(
    account: &Account,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Result<zl_status, Failure> {
    let json = account.json();
    // SAFETY: the caller's promises.
    unsafe {
        if !length.is_null() {
            Output::new(length, "length")?.set(json.len());
        }
        address::write(json, buffer, capacity)?;
    }
    Ok(zl_status::ZL_OK)
}

/// Waits until the peer has received all that was sent, then disconnects and frees the
/// connection, also on failure. Gives up after the idle timeout without progress. Requests in
/// flight end; the kernel may still read what they send, so free wrapped memory in its `release`
/// (zl_region_wrap). ZL_ERROR_ARGUMENT for null and for a connection of a worker: use
/// zl_worker_close.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_close(connection: *mut zl_connection) -> zl_status {
    guard(|| {
        // SAFETY: C's promise that it is not used afterwards.
        unsafe { take(connection) }?.close()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Ends the connection at once, tells the peer if possible, and frees it. The kernel may still
/// read what its requests send: free wrapped memory in its `release` (zl_region_wrap). Null and
/// a connection of a worker do nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_connection_free(connection: *mut zl_connection) {
    guard(|| {
        if !connection.is_null() {
            // SAFETY: C's promise that it is not used afterwards.
            drop(unsafe { take(connection) }?);
        }
        Ok(zl_status::ZL_OK)
    });
}
