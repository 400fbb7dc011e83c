//! Reads and writes the peer's memory: put, get, fetch-op.

use crate::connection::{drive, post, zl_connection};
use crate::fetch::{AnyFetchOp, fetch_op};
use crate::key::zl_key;
use crate::pointer::{Output, bytes, bytes_mut, handle, slice};
use crate::region::zl_region;
use crate::status::{Failure, zl_status};
use crate::work::{FETCH, GET, PUT, zl_work};
use std::ffi::c_void;
use zerolane::Region;
use zerolane::memory::Memory;
use zerolane::request::{Get, GetPieces, Put, PutInline, PutPieces};

/// Writes `len` bytes at `data` to the peer's memory at `offset`; returns when they are placed
/// and visible there. ZL_ERROR_OUT_OF_BOUNDS, ZL_ERROR_DENIED, ZL_ERROR_REVOKED or
/// ZL_ERROR_UNKNOWN if the peer refuses.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_put(
    connection: *mut zl_connection,
    to: *const zl_key,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        drive(connection, |connection| {
            let to = handle(to, "to")?.read()?;
            connection.put(&to, offset, bytes(data.cast(), len, "data")?)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Like zl_put; when the bytes are placed, the peer gets a completion of kind ZL_KIND_IMMEDIATE
/// with the number `immediate`.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_put_with_immediate(
    connection: *mut zl_connection,
    to: *const zl_key,
    offset: u64,
    data: *const c_void,
    len: usize,
    immediate: u32,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        drive(connection, |connection| {
            let to = handle(to, "to")?.read()?;
            let data = bytes(data.cast(), len, "data")?;
            connection.put_with_immediate(&to, offset, data, immediate)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Reads `len` bytes of the peer's memory at `offset` into `buffer`. Errors as for zl_put.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_get(
    connection: *mut zl_connection,
    from: *const zl_key,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        drive(connection, |connection| {
            let from = handle(from, "from")?.read()?;
            let buffer = bytes_mut(buffer.cast(), len, "buffer")?;
            connection.get_uninit(&from, offset, buffer)?;
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Does `op`, a value of enum zl_fetch_op_kind, on the 8-byte word at `offset` of the peer's
/// memory, or with ZL_FETCH_U32 on a 4-byte word, atomically and exactly once. Writes the word's
/// previous value to `before`, if not null. Operations that do not use `operand` or `expected`
/// ignore them. ZL_ERROR_ARGUMENT if `offset` is not a multiple of the word's bytes; other errors as
/// for zl_put.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_fetch_op(
    connection: *mut zl_connection,
    on: *const zl_key,
    offset: u64,
    op: u32,
    operand: u64,
    expected: u64,
    before: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        drive(connection, |connection| {
            let on = handle(on, "on")?.read()?;
            let value = match fetch_op(op, operand, expected)? {
                AnyFetchOp::U64(op) => connection.fetch_op(&on, offset, op)?,
                AnyFetchOp::U32(op) => connection.fetch_op_u32(&on, offset, op)?.into(),
            };
            if let Some(before) = Output::optional(before) {
                before.set(value);
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts a put of `len` bytes of `region` from `region_offset` to the peer's memory at
/// `offset`. It completes when they are placed and visible there. `how` may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_put(
    connection: *mut zl_connection,
    to: *const zl_key,
    offset: u64,
    region: *const zl_region,
    region_offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &PUT), |how| {
            let to = handle(to, "to")?.read()?;
            let part = handle(region, "region")?.part(region_offset, len)?.share();
            let put = Put::new(&to, offset, part).context(how.context);
            let put = put.signalled(how.signalled).fence(how.fence);
            Ok(put.immediate(how.immediate))
        })
    }
}

/// Most bytes of a zl_post_put_inline, and of the payload of a zl_post_message_inline.
pub const ZL_INLINE_LENGTH: usize = 256;

/// Posts a put of a copy of `len` bytes at `data`, at most ZL_INLINE_LENGTH; you may reuse
/// `data` at once. `how` may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_put_inline(
    connection: *mut zl_connection,
    to: *const zl_key,
    offset: u64,
    data: *const c_void,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &PUT), |how| {
            let to = handle(to, "to")?.read()?;
            let data = bytes(data.cast(), len, "data")?;
            let put = PutInline::new(&to, offset, data.to_vec()).context(how.context);
            let put = put.signalled(how.signalled).fence(how.fence);
            Ok(put.immediate(how.immediate))
        })
    }
}

/// Posts a get of `len` bytes of the peer's memory at `offset` into `region` from
/// `region_offset`. `how` may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_get(
    connection: *mut zl_connection,
    from: *const zl_key,
    offset: u64,
    region: *const zl_region,
    region_offset: usize,
    len: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &GET), |how| {
            let from = handle(from, "from")?.read()?;
            let part = handle(region, "region")?.part(region_offset, len)?;
            let get = Get::new(&from, offset, part).context(how.context);
            Ok(get.signalled(how.signalled).fence(how.fence))
        })
    }
}

/// A piece of local memory and its place in the peer's memory.
#[repr(C)]
pub struct zl_piece {
    /// Bytes from the start of the peer's memory.
    pub remote_offset: u64,
    /// The region of the piece.
    pub region: *const zl_region,
    /// Bytes from the region's start.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

/// The place of each piece in the peer's memory, and its local memory, converted by `of`.
///
/// # Safety
/// As for [`slice`], and as for [`handle`] for each region.
unsafe fn pieces<M>(
    pieces: *const zl_piece,
    count: usize,
    of: fn(Region) -> M,
) -> Result<Vec<(u64, M)>, Failure> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { slice(pieces, count, "pieces") }?.iter();
    pieces
        .map(|piece| {
            // SAFETY: the caller's promise.
            let region = unsafe { handle(piece.region, "region") }?;
            let part = region.part(piece.offset, piece.length)?;
            Ok((piece.remote_offset, of(part)))
        })
        .collect()
}

/// Posts one put of any number of pieces, at least 1, gathered here and scattered there. From 4096
/// on, pieces wait for others to complete; until all are posted, posts of later operations on remote
/// memory and of messages return ZL_ERROR_TOO_MANY, and calls that wait for their end wait. `how`
/// may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_put_vectored(
    connection: *mut zl_connection,
    to: *const zl_key,
    pieces: *const zl_piece,
    count: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &PUT), |how| {
            let to = handle(to, "to")?.read()?;
            let pieces = self::pieces(pieces, count, |part| Memory::from(part.share()))?;
            let put = PutPieces::new(&to, pieces).context(how.context);
            let put = put.signalled(how.signalled).fence(how.fence);
            Ok(put.immediate(how.immediate))
        })
    }
}

/// Posts one get of pieces, gathered there and scattered here: otherwise like
/// zl_post_put_vectored. `how` may be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_get_vectored(
    connection: *mut zl_connection,
    from: *const zl_key,
    pieces: *const zl_piece,
    count: usize,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &GET), |how| {
            let from = handle(from, "from")?.read()?;
            let pieces = self::pieces(pieces, count, |part| part)?;
            let get = GetPieces::new(&from, pieces).context(how.context);
            Ok(get.signalled(how.signalled).fence(how.fence))
        })
    }
}

/// Posts a zl_fetch_op. The `value` of its completion is the word's previous value. `how` may
/// be null.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_fetch_op(
    connection: *mut zl_connection,
    on: *const zl_key,
    offset: u64,
    op: u32,
    operand: u64,
    expected: u64,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, memory and outputs.
    unsafe {
        post(connection, id, (how, &FETCH), |how| {
            let on = handle(on, "on")?.read()?;
            let op = fetch_op(op, operand, expected)?;
            let fetch = op.on(&on, offset).context(how.context);
            Ok(fetch.signalled(how.signalled).fence(how.fence))
        })
    }
}
