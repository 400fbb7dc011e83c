//! Shares memory for messages among connections.

use crate::connection::zl_connection;
use crate::pointer::{Output, free, give, handle};
use crate::region::zl_region;
use crate::status::{Failure, guard, zl_status};
use std::ffi::c_void;
use zerolane::ReceivePool;

/// Memory for messages, shared by any number of connections (ibv_srq, a shared receive context
/// of libfabric). A message takes the first piece when it arrives and no zl_post_message_recv
/// matches it, so an idle connection holds none. Its completion, ZL_KIND_MESSAGE_RECEIVED, has
/// the piece's context; the memory is yours again, to be added again. A message longer than its
/// piece fails with ZL_ERROR_TOO_LARGE at both ends, and no other does.
///
/// While the pool is empty, peers wait. Connections that hold none are served in the order of
/// waiting, and a connection holds at most as many pieces, of messages that are not complete, as
/// are left. Memory that no message used returns to the pool when its connection ends.
pub struct zl_pool(pub(crate) ReceivePool);

/// Makes an empty pool. Free it with zl_pool_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pool_new(pool: *mut *mut zl_pool) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(pool, "pool") }?;
        output.set(give(zl_pool(ReceivePool::new())));
        Ok(zl_status::ZL_OK)
    })
}

/// Adds `len` bytes at `offset` of `region` for the payload of one message, and lets a peer that
/// waits continue, also while the thread of its connection sleeps. 0 bytes serve a message
/// without payload. `context` returns with the completion. ZL_ERROR_CLOSED if the pool is closed.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pool_add(
    pool: *const zl_pool,
    region: *const zl_region,
    offset: usize,
    len: usize,
    context: u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (pool, region) = unsafe { (handle(pool, "pool")?, handle(region, "region")?) };
        let added = pool.0.add(region.part(offset, len)?, context);
        added.map_err(|refused| Failure::from(refused.error))?;
        Ok(zl_status::ZL_OK)
    })
}

/// Takes out the first piece that no message has taken, and returns its context. ZL_TIMEOUT if
/// there is none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pool_remove(pool: *const zl_pool, context: *mut u64) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (pool, output) = unsafe { (handle(pool, "pool")?, Output::new(context, "context")?) };
        let Some((_, context)) = pool.0.remove() else {
            return Ok(zl_status::ZL_TIMEOUT);
        };
        output.set(context);
        Ok(zl_status::ZL_OK)
    })
}

/// Returns the number of pieces that no message has taken.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pool_len(pool: *const zl_pool, count: *mut usize) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (pool, output) = unsafe { (handle(pool, "pool")?, Output::new(count, "count")?) };
        output.set(pool.0.len());
        Ok(zl_status::ZL_OK)
    })
}

/// Calls `notice` with `context` once when less than `limit` pieces are left, at once if that is
/// so now (IBV_EVENT_SRQ_LIMIT_REACHED). It replaces an earlier notice. `notice` runs in a thread
/// that drives a connection; it must return soon, and must neither call this library nor throw.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pool_notify_below(
    pool: *const zl_pool,
    limit: usize,
    notice: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let pool = unsafe { handle(pool, "pool") }?;
        let notice = Notice {
            notice: notice.ok_or_else(|| Failure::null("notice"))?,
            context,
        };
        pool.0.notify_below(limit, move || notice.call());
        Ok(zl_status::ZL_OK)
    })
}

struct Notice {
    notice: unsafe extern "C" fn(context: *mut c_void),
    context: *mut c_void,
}

// SAFETY: only passes its pointer to C, which promised that any thread may call `notice`.
unsafe impl Send for Notice {}

impl Notice {
    fn call(self) {
        // SAFETY: C's function, called once, with the pointer that it gave.
        unsafe { (self.notice)(self.context) }
    }
}

/// Ends the pool: no message takes memory of it, and nothing can be added. Messages that have
/// memory continue. What no message has taken, and what returns from connections that end, stays
/// for zl_pool_remove.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pool_close(pool: *const zl_pool) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { handle(pool, "pool") }?.0.close();
        Ok(zl_status::ZL_OK)
    })
}

/// Frees the handle. Connections that share the pool still do; close it first if they must not.
/// Null does nothing.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_pool_free(pool: *mut zl_pool) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(pool) };
        Ok(zl_status::ZL_OK)
    });
}

/// Takes memory of `pool` for messages that no posted receive matches, from now on and for the
/// life of the connection. ZL_ERROR_ARGUMENT if it shares another pool.
///
/// Threads: one at a time; any if a worker's thread drives the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_set_receive_pool(
    connection: *mut zl_connection,
    pool: *const zl_pool,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (connection, pool) = unsafe {
            (
                handle(connection, "connection")?,
                handle(pool, "pool")?.0.clone(),
            )
        };
        connection.ask(move |it| it.set_receive_pool(&pool))?;
        Ok(zl_status::ZL_OK)
    })
}
