//! Memory that peers may read and write.

use crate::connection::{drive, with, zl_connection};
use crate::pointer::{Output, free, give, handle, text};
use crate::region::zl_region;
use crate::status::{Failure, guard, zl_status};
use crate::work::{work, zl_work};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zerolane::{Error, ExportedRegion, Process, Region, RegionKey, Rights};

/// Memory that peers may read and write, while this program uses it too. Words of 8 bytes that both
/// change are to be changed by atomics, as of C11's stdatomic.h. After fork it belongs to the parent, which alone can export
/// and revoke it.
pub struct zl_exported {
    /// None when revoked.
    region: Mutex<Option<ExportedRegion>>,
    /// Held by a thread that revokes: another that does so waits until no peer is in.
    revoking: Mutex<()>,
    /// Null when revoked.
    start: AtomicPtr<c_void>,
    process: Process,
}

/// Bytes of a zl_key.
pub const ZL_KEY_LENGTH: usize = 24;

/// Names exported memory on one connection. Plain bytes: give them to the peer by any means.
#[repr(C)]
pub struct zl_key {
    /// Opaque.
    pub bytes: [u8; ZL_KEY_LENGTH],
}

impl From<RegionKey> for zl_key {
    fn from(key: RegionKey) -> zl_key {
        zl_key {
            bytes: key.to_bytes(),
        }
    }
}

impl zl_key {
    pub(crate) fn read(&self) -> Result<RegionKey, Failure> {
        RegionKey::from_bytes(self.bytes).ok_or_else(|| Failure::argument("this is no key"))
    }
}

/// May be read by the peer: zl_get.
pub const ZL_RIGHT_READ: u32 = 1;
/// May be written by the peer: zl_put.
pub const ZL_RIGHT_WRITE: u32 = 2;
/// May be changed by the peer's zl_fetch_op.
pub const ZL_RIGHT_ATOMIC: u32 = 4;

pub(crate) fn rights(bits: u32) -> Result<Rights, Failure> {
    if bits & !(ZL_RIGHT_READ | ZL_RIGHT_WRITE | ZL_RIGHT_ATOMIC) != 0 {
        return Err(Failure::argument(format!("there are no rights {bits:#x}")));
    }
    Ok(Rights {
        read: bits & ZL_RIGHT_READ != 0,
        write: bits & ZL_RIGHT_WRITE != 0,
        atomic: bits & ZL_RIGHT_ATOMIC != 0,
    })
}

impl zl_exported {
    /// Of a region that begins at a multiple of 8.
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

    /// Held for a moment.
    ///
    /// # Errors
    /// This process is a child of the one whose memory it is: another thread's lock is never let go here.
    fn enter(&self) -> Result<MutexGuard<'_, Option<ExportedRegion>>, Failure> {
        if !self.process.is_current() {
            return Err(Error::Forked.into());
        }
        Ok(self.region.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn region(&self) -> Result<ExportedRegion, Failure> {
        self.enter()?
            .clone()
            .ok_or_else(|| Failure::new(zl_status::ZL_ERROR_REVOKED, "the memory was revoked"))
    }

    fn revoke(&self) -> Result<(), Failure> {
        drop(self.enter()?);
        let _turn = self.revoking.lock().unwrap_or_else(PoisonError::into_inner);
        let region = self.enter()?.take();
        self.start.store(ptr::null_mut(), Ordering::Release);
        // The region was made for the export, and is freed.
        if let Some(region) = region {
            region.end();
        }
        Ok(())
    }
}

/// Makes `len` bytes of `region` from `offset` on, which must be a multiple of 8 in memory, ready to be
/// exported on connections. Free it with zl_exported_free.
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

/// Makes `len` zero bytes, page-aligned, ready to be exported on connections: memory of its own, of which a peer on this
/// host that is connected through shared memory (ZL_LANE_SHARED_MEMORY) has a mapping. With rights to read, it gets, and with
/// rights to write as well, puts and does atomic operations, there itself: no call of this program is needed for it. For other peers it
/// is exported memory as any. All of it is taken from the system at once: ZL_ERROR_SYSTEM if the machine, or a control group
/// of this process, has less, and ZL_ERROR_ARGUMENT for no bytes. zl_exported_data says where it is, until
/// it is revoked. Free it with zl_exported_free.
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

/// Where the exported bytes are; null if `exported` is null, once it was revoked, and in a child of fork: the memory of
/// zl_exported_memfd is not there then.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_exported_data(exported: *const zl_exported) -> *mut c_void {
    // SAFETY: C's promise about handles.
    let exported = unsafe { handle(exported, "exported") };
    let there = exported.ok().filter(|it| it.process.is_current());
    there.map_or(ptr::null_mut(), |it| it.start.load(Ordering::Acquire))
}

/// Takes the memory back from all peers, at once: after this returns, no operation of a peer reads or
/// writes it, however late it comes.
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

/// Frees the handle. Null does nothing. What was exported stays exported, and its memory in use, until it
/// is revoked or its connections end.
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

/// Exports memory to the peer of `connection`, with `rights`, an or of ZL_RIGHT_...; `key` names it
/// there.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_export(
    connection: *mut zl_connection,
    exported: *const zl_exported,
    rights: u32,
    key: *mut zl_key,
) -> zl_status {
    // SAFETY: C's promises about handles and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(key, "key")?;
            let region = handle(exported, "exported")?.region()?;
            output.set(connection.export(&region, self::rights(rights)?)?.into());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// As zl_export, and the peer may ask for it by `name`, at most 32 bytes of UTF-8.
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
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(key, "key")?;
            let (name, region) = (text(name, "name")?, handle(exported, "exported")?.region()?);
            let key = connection.export_named(name, &region, self::rights(rights)?)?;
            output.set(key.into());
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Takes memory back from the peer of this connection, at once. ZL_ERROR_ARGUMENT if `key` names
/// nothing exported here.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_revoke(
    connection: *mut zl_connection,
    key: *const zl_key,
) -> zl_status {
    // SAFETY: C's promises about handles and memory.
    unsafe {
        with(connection, |connection| {
            if !connection.revoke(&handle(key, "key")?.read()?) {
                return Err(Failure::argument("the key names nothing exported here"));
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// The same for all exports of `exported` on this connection, by whatever key and name, also those that zl_worker_export
/// and zl_endpoint_handle_export made: for this peer alone. ZL_ERROR_ARGUMENT if there is none.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_revoke_region(
    connection: *mut zl_connection,
    exported: *const zl_exported,
) -> zl_status {
    // SAFETY: C's promises about handles.
    unsafe {
        with(connection, |connection| {
            let region = handle(exported, "exported")?.region()?;
            if !connection.revoke_region(&region) {
                return Err(Failure::argument("nothing of it is exported here"));
            }
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Asks the peer for the key of the memory it exports as `name`, with `rights`. ZL_ERROR_UNKNOWN if
/// there is none of that name, ZL_ERROR_DENIED if it is exported without one of the rights.
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

/// Posts a zl_open_region: its completion, of kind ZL_KIND_OPEN, has the key as `region`. `how` may be null; its
/// context alone has a meaning here.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_post_open_region(
    connection: *mut zl_connection,
    name: *const c_char,
    rights: u32,
    how: *const zl_work,
    id: *mut u32,
) -> zl_status {
    // SAFETY: C's promises about handles, texts and outputs.
    unsafe {
        with(connection, |connection| {
            let output = Output::new(id, "id")?;
            let (name, rights) = (text(name, "name")?, self::rights(rights)?);
            output.set(connection.post_open_region(name, rights, work(how)?)?);
            Ok(zl_status::ZL_OK)
        })
    }
}

/// Length of the memory that `key` names, bytes; 0 if `key` is null or invalid.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_key_length(key: *const zl_key) -> u64 {
    // SAFETY: C's promise about memory.
    let key = unsafe { handle(key, "key") }.and_then(zl_key::read);
    key.map_or(0, |key| key.len())
}
