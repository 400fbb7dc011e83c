//! Connections: made, looked at, ended.

use crate::address;
use crate::options::{self, zl_options};
use crate::pointer::{Output, give, handle, text, timeout};
use crate::status::{Failure, guard, refused, zl_status};
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard};
use zerolane::{Connection, Waker};

/// A connection. It makes progress only inside its functions, in the calling thread: a peer that
/// calls none for the idle timeout, while this end waits for it, counts as dead.
pub struct zl_connection {
    connection: Mutex<Connection>,
    /// Beside the lock, which is held while another thread waits.
    waker: Waker,
}

impl zl_connection {
    pub(crate) fn new(connection: Connection) -> zl_connection {
        let waker = connection.waker();
        zl_connection {
            connection: Mutex::new(connection),
            waker,
        }
    }

    /// The connection, if no other thread has it.
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, Connection>, Failure> {
        self.connection.try_lock().map_err(refused)
    }
}

/// Runs `body` on a connection.
///
/// # Safety
/// As [`handle`].
pub(crate) unsafe fn with(
    connection: *const zl_connection,
    body: impl FnOnce(&mut Connection) -> Result<zl_status, Failure>,
) -> zl_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { handle(connection, "connection") }?;
        body(&mut *connection.enter()?)
    })
}

/// Connects to `address`, "host:port", with `options`, or the defaults if null. End the connection
/// with zl_close, or zl_connection_free.
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
        let connection = Connection::connect(address, &options)?;
        output.set(give(zl_connection::new(connection)));
        Ok(zl_status::ZL_OK)
    })
}

/// Writes the peer's address to `buffer`, as "host:port" and a zero. ZL_ADDRESS_LENGTH bytes are
/// enough.
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

/// Writes this end's address at present to `buffer`, as "host:port" and a zero; an empty text while there is
/// no way to the peer. ZL_ADDRESS_LENGTH bytes are enough.
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

/// Sets how long a call that waits for the end of a request may take, in milliseconds (negative: no limit, as
/// without this call): zl_send, zl_recv_into, zl_put and so on. What takes longer is cancelled, and the call
/// returns ZL_ERROR_TIMED_OUT.
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

/// Ends a zl_wait or zl_announced of another thread, or the next one if none is in progress: it
/// returns ZL_TIMEOUT. Ends no request: calls that wait for the end of one go on.
///
/// Threads: any, also while another uses the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_wake(connection: *const zl_connection) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { handle(connection, "connection") }?.waker.wake();
        Ok(zl_status::ZL_OK)
    })
}

/// What a connection did since it began. Fields may be added at the end, in place of `reserved`.
#[repr(C)]
#[derive(Default)]
pub struct zl_account {
    /// Payload bytes the kernel placed where they belong, without a copy in user space.
    pub bytes_placed: u64,
    /// Payload bytes copied again in user space.
    pub bytes_moved: u64,
    /// Payload bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// Datagrams taken from the kernel.
    pub datagrams_received: u64,
    /// Datagrams the kernel dropped because the receive buffer was full.
    pub dropped_socket_buffer: u64,
    /// System calls that sent.
    pub send_syscalls: u64,
    /// System calls that received, also if they found nothing.
    pub receive_syscalls: u64,
    /// Receive buffer the kernel granted, bytes.
    pub receive_buffer: u64,
    /// 0.
    pub reserved: [u64; 7],
}

/// Tells what the connection did so far.
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
            let account = connection.account();
            output.set(zl_account {
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
                reserved: [0; 7],
            });
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Waits until the peer has all that was sent, disconnects, and frees the connection, also if it
/// fails. Requests that are not done end; their memory is not touched any more. Null is refused.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_close(connection: *mut zl_connection) -> zl_status {
    guard(|| {
        if connection.is_null() {
            return Err(Failure::null("connection"));
        }
        // SAFETY: from give, and C's promise that it is not used any more.
        let connection = unsafe { Box::from_raw(connection) }.connection.into_inner();
        let connection = connection
            .map_err(|_| Failure::new(zl_status::ZL_ERROR_INTERNAL, "an earlier call panicked"))?;
        connection.close()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Ends the connection at once, tells the peer if possible, and frees it. Null does nothing.
/// Memory of its requests is not touched any more.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_connection_free(connection: *mut zl_connection) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { crate::pointer::free(connection) };
        Ok(zl_status::ZL_OK)
    });
}
