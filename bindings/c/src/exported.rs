//! Exports memory that peers may read and write.

use crate::connection::{drive, post, zl_connection};
use crate::fetch::{AnyFetchOp, fetch_op};
use crate::key::{self, zl_key};
use crate::pointer::{Output, free, give, handle, text};
use crate::region::zl_region;
use crate::status::{Failure, guard, zl_status};
use crate::work::{OPEN, zl_work};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zerolane::request::OpenRegion;
use zerolane::{Error, ExportedRegion, Process, Region, Rights};

/// Memory that peers may read and write while this program uses it. Use C11's stdatomic.h for
/// 8-byte words that both change, zl_exported_fetch_op for 4-byte words. After fork it belongs to the parent, and only the parent can
/// export and revoke it.
pub struct zl_exported {
    /// `None` once revoked.
    region: Mutex<Option<ExportedRegion>>,
    /// Held while a thread revokes. A second one waits until no peer uses the memory.
    revoking: Mutex<()>,
    /// Null once revoked.
    start: AtomicPtr<c_void>,
    process: Process,
}

/// The peer may read: zl_get.
pub const ZL_RIGHT_READ: u32 = 1;
/// The peer may write: zl_put.
pub const ZL_RIGHT_WRITE: u32 = 2;
/// The peer may use zl_fetch_op.
pub const ZL_RIGHT_ATOMIC: u32 = 4;

/// The status of a revocation of a number.
pub(crate) fn revoked(was_exported: bool) -> Result<zl_status, Failure> {
    match was_exported {
        true => Ok(zl_status::ZL_OK),
        false => Err(Failure::argument(
            "the worker exports nothing under this number",
        )),
    }
}

pub(crate) fn rights(bits: u32) -> Result<Rights, Failure> {
    if bits & !(ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC) != 0 {
        return Err(Failure::argument(format!("unknown rights {bits:#x}")));
    }
    Ok(Rights {
        read: bits & ZL_RIGHT_READ != 0,
        write: bits & ZL_RIGHT_WRITE != 0,
        atomic: bits & ZL_RIGHT_ATOMIC != 0,
    })
}

fn was_revoked() -> Failure {
    Failure::new(zl_status::ZL_ERROR_REVOKED, "the memory was revoked")
}

impl zl_exported {
    /// Exports a region that starts at a multiple of 8.
    fn of(mut region: Region) -> Result<zl_exported, Failure> {
        let start = region.as_mut_ptr().cast();
        let exported = ExportedRegion::new(region)
            .map_err(|_| Failure::argument("exported memory must begin at a multiple of 8"))?;
        Ok(zl_exported {
            region: Mutex::new(Some(exported)),
            revoking: Mutex::new(()),
            start: AtomicPtr::new(start),
            process: Process::current(),
        })
    }

    /// Takes the lock, which is held only briefly.
    ///
    /// # Errors
    /// This process is a child of the owner, where a lock that another thread held is never released.
    fn enter(&self) -> Result<MutexGuard<'_, Option<ExportedRegion>>, Failure> {
        if !self.process.is_current() {
            return Err(Error::Forked.into());
        }
        Ok(self.region.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn region(&self) -> Result<ExportedRegion, Failure> {
        self.enter()?.clone().ok_or_else(was_revoked)
    }

    /// Holds the lock: a revocation meanwhile waits, and frees the memory afterwards.
    fn fetch(&self, offset: usize, op: AnyFetchOp) -> Result<u64, Failure> {
        let region = self.enter()?;
        let region = region.as_ref().ok_or_else(was_revoked)?;
        let len = match op {
            AnyFetchOp::U64(_) => 8,
            AnyFetchOp::U32(_) => 4,
        };
        if !offset.is_multiple_of(len) {
            let why = format!("offset {offset} is not a multiple of {len}");
            return Err(Failure::argument(why));
        }
        let end = (offset - offset % 8).checked_add(8);
        if end.is_none_or(|end| end > region.len()) {
            return Err(Failure::new(
                zl_status::ZL_ERROR_OUT_OF_BOUNDS,
                "the word is outside the memory",
            ));
        }
        Ok(match op {
            AnyFetchOp::U64(op) => region.fetch_op(offset, op),
            AnyFetchOp::U32(op) => region.fetch_op(offset, op),
        })
    }

    fn revoke(&self) -> Result<(), Failure> {
        drop(self.enter()?);
        let _turn = self.revoking.lock().unwrap_or_else(PoisonError::into_inner);
        let region = self.enter()?.take();
        self.start.store(ptr::null_mut(), Ordering::Release);
        // The region was made for this export: free it.
        if let Some(region) = region {
            region.end();
        }
        Ok(())
    }
}

/// Makes `len` bytes of `region` from `offset` ready to export. They must start at an address
/// that is a multiple of 8; otherwise ZL_ERROR_ARGUMENT. Free it with zl_exported_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_exported_new(
    region: *const zl_region,
    offset: usize,
    len: usize,
    exported: *mut *mut zl_exported,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (region, output) = unsafe {
            (
                handle(region, "region")?,
                Output::new(exported, "exported")?,
            )
        };
        output.set(give(zl_exported::of(region.part(offset, len)?)?));
        Ok(zl_status::ZL_OK)
    })
}

/// Makes `len` zero bytes, page-aligned, ready to export. A peer on this host that is connected
/// through shared memory (ZL_LANE_SHARED_MEMORY) maps this memory: with the right to read it
/// gets, and with the right to write as well it puts and does atomic operations, without a call
/// of this program. Other peers use it like any exported memory. The system allocates all of it
/// at once: ZL_ERROR_SYSTEM if the machine or the process's control group has less;
/// ZL_ERROR_ARGUMENT if `len` is 0. zl_exported_data returns its address until it is revoked.
/// Free it with zl_exported_free.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_exported_memfd(
    len: usize,
    exported: *mut *mut zl_exported,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(exported, "exported") }?;
        output.set(give(zl_exported::of(Region::memfd(len)?)?));
        Ok(zl_status::ZL_OK)
    })
}

/// Returns the start of the exported bytes. Null if `exported` is null or revoked, and in a
/// child of fork, which does not have the memory of zl_exported_memfd.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_exported_data(exported: *const zl_exported) -> *mut c_void {
    // SAFETY: C's promise about handles.
    let exported = unsafe { handle(exported, "exported") };
    let there = exported.ok().filter(|it| it.process.is_current());
    there.map_or(ptr::null_mut(), |it| it.start.load(Ordering::Acquire))
}

/// Ends all exports of the memory, to all peers, at once. After it returns, no operation of a
/// peer reads or writes the memory, however late it comes.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_exported_revoke(exported: *const zl_exported) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { handle(exported, "exported") }?.revoke()?;
        Ok(zl_status::ZL_OK)
    })
}

/// Frees the handle. Null does nothing. Exports continue, and use the memory, until they are
/// revoked or their connections end.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_exported_free(exported: *mut zl_exported) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(exported) };
        Ok(zl_status::ZL_OK)
    });
}

/// Does the operation of a zl_fetch_op on a word of this program's own memory, atomically with
/// those of the peers. Use it for 4-byte words that peers change; for 8-byte words it is the same as
/// C11's atomics. ZL_ERROR_REVOKED if the memory was revoked, ZL_ERROR_OUT_OF_BOUNDS if it does not
/// have the 8 aligned bytes that are or hold the word.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_exported_fetch_op(
    exported: *const zl_exported,
    offset: usize,
    op: u32,
    operand: u64,
    expected: u64,
    before: *mut u64,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about handles.
        let exported = unsafe { handle(exported, "exported") }?;
        let value = exported.fetch(offset, fetch_op(op, operand, expected)?)?;
        // SAFETY: C's promise about outputs.
        if let Some(before) = unsafe { Output::optional(before) } {
            before.set(value);
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Exports memory to the connection's peer with `rights`, ZL_RIGHT_... flags joined by |. `key`
/// names it there. ZL_ERROR_REVOKED if the memory was revoked.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_export(
    connection: *mut zl_connection,
    exported: *const zl_exported,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and outputs.
        let (connection, region, output) = unsafe {
            (
                handle(connection, "connection")?,
                handle(exported, "exported")?.region()?,
                Output::new(key, "key")?,
            )
        };
        let rights = self::rights(rights)?;
        let key = connection.ask(move |it| it.export(&region, rights))?;
        output.set(key.into());
        Ok(zl_status::ZL_OK)
    })
}

/// Like zl_export; the peer can also ask for the memory by `name`, 1 to 32 bytes of UTF-8.
/// ZL_ERROR_ARGUMENT if the name is taken.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_export_named(
    connection: *mut zl_connection,
    name: *const c_char,
    exported: *const zl_exported,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles, texts and outputs.
        let (connection, name, region, output) = unsafe {
            (
                handle(connection, "connection")?,
                text(name, "name")?.to_owned(),
                handle(exported, "exported")?.region()?,
                Output::new(key, "key")?,
            )
        };
        let rights = self::rights(rights)?;
        let key = connection.ask(move |it| it.export_named(&name, &region, rights))?;
        output.set(key.into());
        Ok(zl_status::ZL_OK)
    })
}

/// Like zl_export, under `number`, below 2^24, of the program's own: the peer makes the key with
/// zl_key_numbered and need not be told it. `key` may be null. ZL_ERROR_ARGUMENT if the number is
/// taken. After revocation it is free; a request that the peer posted before then meets the memory
/// that has the number when it arrives.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_export_numbered(
    connection: *mut zl_connection,
    number: u32,
    exported: *const zl_exported,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (connection, region) = unsafe {
            (
                handle(connection, "connection")?,
                handle(exported, "exported")?.region()?,
            )
        };
        let (number, rights) = (key::number(number)?, self::rights(rights)?);
        let made = connection.ask(move |it| it.export_numbered(number, &region, rights))?;
        // SAFETY: C's promise about outputs.
        if let Some(key) = unsafe { Output::optional(key) } {
            key.set(made.into());
        }
        Ok(zl_status::ZL_OK)
    })
}

/// Ends an export to this connection's peer, at once. ZL_ERROR_ARGUMENT if `key` names no
/// export of this connection.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_revoke(
    connection: *mut zl_connection,
    key: *const zl_key,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles and memory.
        let (connection, key) = unsafe {
            (
                handle(connection, "connection")?,
                handle(key, "key")?.read()?,
            )
        };
        match connection.ask(move |it| Ok(it.revoke(&key)))? {
            true => Ok(zl_status::ZL_OK),
            false => Err(Failure::argument("the key names nothing exported here")),
        }
    })
}

/// Ends all exports of `exported` to this connection's peer, under any key and name, including
/// those of zl_endpoint_export. Other peers keep theirs. ZL_ERROR_ARGUMENT if there is none.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_revoke_region(
    connection: *mut zl_connection,
    exported: *const zl_exported,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promises about handles.
        let (connection, region) = unsafe {
            (
                handle(connection, "connection")?,
                handle(exported, "exported")?.region()?,
            )
        };
        match connection.ask(move |it| Ok(it.revoke_region(&region)))? {
            true => Ok(zl_status::ZL_OK),
            false => Err(Failure::argument("nothing of it is exported here")),
        }
    })
}

/// Asks the peer for the key of the memory that it exports as `name`, with `rights`.
/// ZL_ERROR_UNKNOWN if there is none, ZL_ERROR_DENIED if it lacks one of the rights.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_open_region(
    connection: *mut zl_connection,
    name: *const c_char,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        drive(connection, |connection| {
            let output = Output::new(key, "key")?;
            let rights = self::rights(rights)?;
            output.set(connection.open_region(text(name, "name")?, rights)?.into());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Posts a zl_open_region. Its completion, of kind ZL_KIND_OPEN, has the key in `region`. `how`
/// may be null, or have a context.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_open_region(
    connection: *mut zl_connection,
    name: *const c_char,
    rights: u32,
    how: *const zl_work,
    id: *mut u64,
) -> zl_status {
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        post(connection, id, (how, &OPEN), |how| {
            let (name, rights) = (text(name, "name")?, self::rights(rights)?);
            Ok(OpenRegion::new(name.to_owned(), rights).context(how.context))
        })
    }
}
