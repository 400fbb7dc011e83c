//! Allocates, wraps and maps memory for requests.

use crate::pointer::{Output, free, give, handle, slice};
use crate::status::{Failure, guard, zl_status};
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use zerolane::memory::{Access, FileRegion, Memory};
use zerolane::{Process, Region};

/// Memory for requests, which name parts of it. You may free the region while a request or an
/// export uses it: its memory stays until both are over. Memory of zl_region_wrap is yours
/// again when its `release` runs.
pub struct zl_region {
    start: NonNull<u8>,
    len: usize,
    /// Whether it is a mapped file, which may shrink.
    file: bool,
    /// Keeps the memory; each request holds a clone.
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: names memory without dereferencing it. C orders the accesses to its memory.
unsafe impl Send for zl_region {}
// SAFETY: as above; no field changes after construction.
unsafe impl Sync for zl_region {}

impl zl_region {
    fn of(mut region: Region) -> zl_region {
        zl_region {
            start: NonNull::from(&mut region[..]).cast(),
            len: region.len(),
            file: false,
            keep: Arc::new(region),
        }
    }

    fn of_file(region: FileRegion) -> zl_region {
        zl_region {
            start: NonNull::new(region.as_ptr().cast()).unwrap_or(NonNull::dangling()),
            len: region.len(),
            file: true,
            keep: Arc::new(region),
        }
    }

    /// The bytes `[offset, offset + len)`, to post and not to dereference.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Result<Region, Failure> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Failure::argument(format!(
                "{len} bytes at {offset} of a region of {}",
                self.len
            )));
        }
        // SAFETY: offset <= len of the memory.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: `keep` holds the memory, which C leaves in place until its `release`. The part is posted and never
        // dereferenced, so a concurrent write corrupts only its content.
        Ok(unsafe { Region::foreign(start, len, self.file, Box::new(Arc::clone(&self.keep))) })
    }
}

/// Memory of the program, which gets it back when this is dropped.
struct Wrapped {
    memory: *mut c_void,
    context: *mut c_void,
    release: Option<unsafe extern "C" fn(memory: *mut c_void, context: *mut c_void)>,
    /// A child of fork has a copy of this; only the owner may give the memory back.
    process: Process,
}

// SAFETY: only passes its pointers to C, which promised that any thread may call `release`.
unsafe impl Send for Wrapped {}
// SAFETY: as above; a shared reference gives access to nothing.
unsafe impl Sync for Wrapped {}

impl Drop for Wrapped {
    fn drop(&mut self) {
        if let Some(release) = self.release.filter(|_| self.process.is_current()) {
            // SAFETY: C's function, called once, with the pointers that it gave.
            unsafe { release(self.memory, self.context) }
        }
    }
}

/// One of several parts of memory that are sent as one.
#[repr(C)]
pub struct zl_part {
    /// The region of the part.
    pub region: *const zl_region,
    /// Bytes from the region's start.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

/// The parts, one after another, as memory to send.
///
/// # Safety
/// As for [`slice`], and as for [`handle`] for each region.
pub(crate) unsafe fn gathered(parts: *const zl_part, count: usize) -> Result<Memory, Failure> {
    // SAFETY: the caller's promise.
    let parts = unsafe { slice(parts, count, "parts") }?.iter();
    let parts: Result<Vec<Memory>, Failure> = parts
        .map(|part| {
            // SAFETY: the caller's promise.
            let region = unsafe { handle(part.region, "region") }?;
            Ok(region.part(part.offset, part.length)?.share().into())
        })
        .collect();
    Ok(parts?.into())
}

/// Allocates a region of `len` zero bytes, page-aligned, in huge pages if the system has them
/// and `len` is at least 1 MiB. A region of less than 2 MiB then takes a whole huge page.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_region_new(len: usize, region: *mut *mut zl_region) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(region, "region") }?;
        if isize::try_from(len).is_err() {
            return Err(Failure::argument("len is larger than memory"));
        }
        output.set(give(zl_region::of(Region::anonymous(len)?)));
        Ok(zl_status::ZL_OK)
    })
}

/// Makes a region of `len` bytes at `memory`. `release` gets `memory` and `context`, once, when
/// neither Zerolane nor the kernel accesses the bytes any more: the region is freed, its exports
/// have ended, and the completions of its requests were taken, or their connection is freed.
/// Free or unmap the memory only then: after the end of a connection the kernel may still read
/// what was being sent. In that case `release` never runs, because nothing tells when the kernel
/// is done.
///
/// `release` runs in a thread that calls this library, or in a worker's thread. It must return
/// soon, and must neither call this library nor throw. In a child of fork it does not run. If
/// this function fails, it does not run either, and the memory remains yours. It may be null if
/// the memory stays as long as the process.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_region_wrap(
    memory: *mut c_void,
    len: usize,
    release: Option<unsafe extern "C" fn(memory: *mut c_void, context: *mut c_void)>,
    context: *mut c_void,
    region: *mut *mut zl_region,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(region, "region") }?;
        if isize::try_from(len).is_err() {
            return Err(Failure::argument("len is larger than memory"));
        }
        let start = match NonNull::new(memory.cast()) {
            Some(start) => start,
            None if len == 0 => NonNull::dangling(),
            None => return Err(Failure::null("memory")),
        };
        output.set(give(zl_region {
            start,
            len,
            file: false,
            keep: Arc::new(Wrapped {
                memory,
                context,
                release,
                process: Process::current(),
            }),
        }));
        Ok(zl_status::ZL_OK)
    })
}

/// The use of a mapped file.
#[repr(u32)]
pub enum zl_access {
    /// For sending: writes to the region do not change the file.
    ZL_ACCESS_READ = 1,
    /// For receiving: writes reach the file.
    ZL_ACCESS_WRITE = 2,
}

/// Maps `len` bytes of the open file `fd` from `offset`. `access` is a value of enum zl_access.
/// You may close the descriptor afterwards. If the file is truncated, requests fail with
/// ZL_ERROR_MEMORY; other accesses to missing pages raise SIGBUS, as with every mapping.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_region_map_file(
    fd: c_int,
    offset: u64,
    len: usize,
    access: u32,
    region: *mut *mut zl_region,
) -> zl_status {
    guard(|| {
        // SAFETY: C's promise about outputs.
        let output = unsafe { Output::new(region, "region") }?;
        let access = match access {
            it if it == zl_access::ZL_ACCESS_READ as u32 => Access::Read,
            it if it == zl_access::ZL_ACCESS_WRITE as u32 => Access::Write,
            _ => return Err(Failure::argument(format!("unknown access {access}"))),
        };
        if fd < 0 {
            return Err(Failure::argument("fd is negative"));
        }
        // SAFETY: not -1; a descriptor that is not open is refused by dup.
        let file = File::from(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?);
        let mapped = Region::map_file(&file, offset, len, access)?;
        output.set(give(zl_region::of_file(mapped)));
        Ok(zl_status::ZL_OK)
    })
}

/// Returns the start of the region's bytes; null if `region` is null. While a request receives
/// into them, or a peer may write them, their content is undefined and may change during a
/// read.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_region_data(region: *const zl_region) -> *mut c_void {
    // SAFETY: C's promise about handles.
    let region = unsafe { handle(region, "region") };
    region.map_or(std::ptr::null_mut(), |region| region.start.as_ptr().cast())
}

/// Returns the region's length in bytes; 0 if `region` is null.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_region_length(region: *const zl_region) -> usize {
    // SAFETY: C's promise about handles.
    unsafe { handle(region, "region") }.map_or(0, |region| region.len)
}

/// Frees the region. Null does nothing. Memory that a request or an export uses stays until that
/// is over.
///
/// Threads: the last that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zl_region_free(region: *mut zl_region) {
    guard(|| {
        // SAFETY: C's promise about handles.
        unsafe { free(region) };
        Ok(zl_status::ZL_OK)
    });
}
