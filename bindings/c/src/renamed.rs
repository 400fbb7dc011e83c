//! Keeps the old names of renamed functions for one release.

use crate::connection::zl_connection;
use crate::endpoint::zl_endpoint;
use crate::exported::zl_key;
use crate::queue::zl_queue;
use crate::region::zl_region;
use crate::remote::zl_piece;
use crate::status::zl_status;
use crate::work::zl_work;
use crate::{connection, endpoint, exported, message, queue, remote, security, transfer};
use std::ffi::{c_char, c_void};
use std::ptr::null;

/// Old name of zl_recv_into.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_recv_into")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_receive(
    connection: *mut zl_connection,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { transfer::zl_recv_into(connection, buffer, capacity, len) }
}

/// Old form of zl_post_recv, with null for `how`.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_post_recv")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_receive(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { transfer::zl_post_recv(connection, region, offset, len, null(), id) }
}

/// Old form of zl_post_send, with `delivery` in its zl_work.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_post_send")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_send_with(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    delivery: u32,
    id: *mut u64,
) -> zl_status {
    let how = zl_work {
        flags: 0,
        immediate: 0,
        delivery,
        reserved: 0,
        context: 0,
    };
    // SAFETY: C's promises for the old name.
    unsafe { transfer::zl_post_send(connection, region, offset, len, &raw const how, id) }
}

/// Old name of zl_recv_message.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_recv_message")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_receive_message(
    connection: *mut zl_connection,
    control: *mut c_void,
    control_len: *mut usize,
    payload: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { message::zl_recv_message(connection, control, control_len, payload, capacity, len) }
}

/// Old form of zl_post_message_recv, with null for `how`.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_post_message_recv")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_message_receive(
    connection: *mut zl_connection,
    region: *const zl_region,
    offset: usize,
    len: usize,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { message::zl_post_message_recv(connection, region, offset, len, null(), id) }
}

/// Old name of zl_fetch_op.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_fetch_op")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_fetch(
    connection: *mut zl_connection,
    on: *const zl_key,
    offset: u64,
    op: u32,
    operand: u64,
    expected: u64,
    before: *mut u64,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { remote::zl_fetch_op(connection, on, offset, op, operand, expected, before) }
}

/// Old name of zl_post_fetch_op.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_post_fetch_op")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_fetch(
    connection: *mut zl_connection,
    on: *const zl_key,
    offset: u64,
    op: u32,
    operand: u64,
    expected: u64,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { remote::zl_post_fetch_op(connection, on, offset, op, operand, expected, how, id) }
}

/// Old name of zl_post_put_vectored.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_post_put_vectored")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_put_pieces(
    connection: *mut zl_connection,
    to: *const zl_key,
    pieces: *const zl_piece,
    count: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { remote::zl_post_put_vectored(connection, to, pieces, count, how, id) }
}

/// Old name of zl_post_get_vectored.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_post_get_vectored")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_get_pieces(
    connection: *mut zl_connection,
    from: *const zl_key,
    pieces: *const zl_piece,
    count: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { remote::zl_post_get_vectored(connection, from, pieces, count, how, id) }
}

/// Old name of zl_open_region.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_open_region")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_open(
    connection: *mut zl_connection,
    name: *const c_char,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { exported::zl_open_region(connection, name, rights, key) }
}

/// Old name of zl_peer_addr.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_peer_addr")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_peer_address(
    connection: *const zl_connection,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { connection::zl_peer_addr(connection, buffer, capacity) }
}

/// Old name of zl_endpoint_local_addr.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_endpoint_local_addr")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_address(
    endpoint: *const zl_endpoint,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { endpoint::zl_endpoint_local_addr(endpoint, buffer, capacity) }
}

/// Old name of zl_endpoint_public_key.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_endpoint_public_key")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_endpoint_key(
    endpoint: *const zl_endpoint,
    buffer: *mut c_char,
    capacity: usize,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { security::zl_endpoint_public_key(endpoint, buffer, capacity) }
}

/// Old name of zl_set_completion_queue.
///
/// Threads: one at a time.
#[deprecated(note = "use zl_set_completion_queue")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_queue(
    connection: *mut zl_connection,
    queue: *const zl_queue,
    tag: u64,
) -> zl_status {
    // SAFETY: C's promises for the old name.
    unsafe { queue::zl_set_completion_queue(connection, queue, tag) }
}
