//! Defines the part of nbdkit's plugin interface, version 2 (`nbdkit-plugin.h`), that the plugin uses.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use crate::config;
use crate::disk;
use crate::failure::Failure;
use crate::guard;

/// nbdkit sends requests in parallel, from any thread.
const PARALLEL: c_int = 3;
const API_VERSION: c_int = 2;

const FLAG_MAY_TRIM: u32 = 1;
const FLAG_FUA: u32 = 2;
/// The client wants one extent.
const FLAG_REQ_ONE: u32 = 4;

const EXTENT_HOLE: u32 = 1;
const EXTENT_ZERO: u32 = 2;
/// The plugin handles FUA itself.
const FUA_NATIVE: c_int = 2;

type Handle = *mut c_void;
type Ask = Option<unsafe extern "C" fn(Handle) -> c_int>;
type Change = Option<unsafe extern "C" fn(Handle, u32, u64, u32) -> c_int>;
/// nbdkit's list of extents.
type Extents = *mut c_void;
type Tell = Option<unsafe extern "C" fn(Handle, u32, u64, u32, Extents) -> c_int>;
/// A function that the plugin does not have.
type Absent = Option<unsafe extern "C" fn()>;

/// `struct nbdkit_plugin`.
#[repr(C)]
struct Plugin {
    struct_size: u64,
    api_version: c_int,
    thread_model: c_int,
    name: *const c_char,
    longname: *const c_char,
    version: *const c_char,
    description: *const c_char,
    load: Absent,
    unload: Option<unsafe extern "C" fn()>,
    config: Option<unsafe extern "C" fn(*const c_char, *const c_char) -> c_int>,
    config_complete: Option<unsafe extern "C" fn() -> c_int>,
    config_help: *const c_char,
    open: Option<unsafe extern "C" fn(c_int) -> Handle>,
    close: Option<unsafe extern "C" fn(Handle)>,
    get_size: Option<unsafe extern "C" fn(Handle) -> i64>,
    can_write: Ask,
    can_flush: Ask,
    is_rotational: Ask,
    can_trim: Ask,
    version_1: [Absent; 5],
    errno_is_preserved: c_int,
    dump_plugin: Absent,
    can_zero: Ask,
    can_fua: Ask,
    pread: Option<unsafe extern "C" fn(Handle, *mut c_void, u32, u64, u32) -> c_int>,
    pwrite: Option<unsafe extern "C" fn(Handle, *const c_void, u32, u64, u32) -> c_int>,
    flush: Option<unsafe extern "C" fn(Handle, u32) -> c_int>,
    trim: Change,
    zero: Change,
    magic_config_key: *const c_char,
    can_multi_conn: Ask,
    can_extents: Ask,
    extents: Tell,
    can_cache: Ask,
    cache: Absent,
    thread_model_function: Absent,
    can_fast_zero: Ask,
    preconnect: Absent,
    get_ready: Absent,
    after_fork: Absent,
    list_exports: Absent,
    default_export: Absent,
    export_description: Absent,
    cleanup: Option<unsafe extern "C" fn()>,
    block_size: Option<unsafe extern "C" fn(Handle, *mut u32, *mut u32, *mut u32) -> c_int>,
}

// SAFETY: never written, with pointers to constants.
unsafe impl Sync for Plugin {}

static PLUGIN: Plugin = Plugin {
    struct_size: size_of::<Plugin>() as u64,
    api_version: API_VERSION,
    thread_model: PARALLEL,
    name: c"zerolane".as_ptr(),
    longname: c"Zerolane disk".as_ptr(),
    version: VERSION.as_ptr(),
    description: c"a disk of `zerolane disk serve`".as_ptr(),
    load: None,
    unload: None,
    config: Some(config),
    config_complete: Some(config_complete),
    config_help: config::HELP.as_ptr(),
    open: Some(open),
    close: Some(close),
    get_size: Some(get_size),
    can_write: Some(can_write),
    can_flush: Some(yes),
    is_rotational: Some(no),
    can_trim: Some(can_trim),
    version_1: [None; 5],
    errno_is_preserved: 0,
    dump_plugin: None,
    can_zero: Some(yes),
    can_fua: Some(can_fua),
    pread: Some(pread),
    pwrite: Some(pwrite),
    flush: Some(flush),
    trim: Some(trim),
    zero: Some(zero),
    magic_config_key: c"host".as_ptr(),
    can_multi_conn: Some(yes),
    can_extents: Some(yes),
    extents: Some(extents),
    can_cache: None,
    cache: None,
    thread_model_function: None,
    can_fast_zero: None,
    preconnect: None,
    get_ready: None,
    after_fork: None,
    list_exports: None,
    default_export: None,
    export_description: None,
    cleanup: Some(cleanup),
    block_size: Some(block_size),
};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

unsafe extern "C" {
    fn nbdkit_error(format: *const c_char, ...);
    fn nbdkit_set_error(error: c_int);
    fn nbdkit_add_extent(extents: Extents, offset: u64, length: u64, kind: u32) -> c_int;
}

/// The first function that nbdkit calls.
///
/// # Safety
/// nbdkit calls it, and reads the table.
#[unsafe(no_mangle)]
#[allow(unreachable_pub)] // It is reached by its name.
pub unsafe extern "C" fn plugin_init() -> *const c_void {
    (&raw const PLUGIN).cast()
}

/// Reports a failure to nbdkit.
fn report(why: &Failure) {
    let text = CString::new(why.words.replace('\0', " ")).unwrap_or_default();
    // SAFETY: a format of one string, and a string; nbdkit keeps neither.
    unsafe {
        nbdkit_error(c"%s".as_ptr(), text.as_ptr());
        nbdkit_set_error(why.errno);
    }
}

/// The result of `call`; if it fails or panics, reports the failure to nbdkit and returns `failed`.
fn guarded<T>(failed: T, call: impl FnOnce() -> Result<T, Failure>) -> T {
    guard::caught(call).unwrap_or_else(|why| {
        report(&why);
        failed
    })
}

/// 0 on success, -1 on failure.
fn outcome(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guarded(-1, || call().map(|()| 0))
}

/// # Safety
/// `text` is a string of nbdkit that lives as long as the call.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: as promised.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Failure::usage("a parameter is not valid UTF-8"))
}

unsafe extern "C" fn config(key: *const c_char, value: *const c_char) -> c_int {
    outcome(|| {
        // SAFETY: nbdkit's strings.
        let (key, value) = unsafe { (text(key)?, text(value)?) };
        config::set(key, value)
    })
}

unsafe extern "C" fn config_complete() -> c_int {
    outcome(config::check)
}

unsafe extern "C" fn open(_read_only: c_int) -> Handle {
    guarded(std::ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(disk::open()?)).cast())
    })
}

unsafe extern "C" fn close(handle: Handle) {
    guarded((), || {
        // SAFETY: made by `open`, and closed once, with no request in progress.
        drop(unsafe { Box::from_raw(handle.cast::<disk::Handle>()) });
        Ok(())
    });
}

unsafe extern "C" fn cleanup() {
    guarded((), || {
        disk::forget();
        Ok(())
    });
}

/// # Safety
/// `handle` was made by `open` and is not closed.
unsafe fn of<'a>(handle: Handle) -> &'a disk::Handle {
    // SAFETY: as promised; shared by all threads, and never written.
    unsafe { &*handle.cast::<disk::Handle>() }
}

unsafe extern "C" fn get_size(handle: Handle) -> i64 {
    guarded(-1, || {
        // SAFETY: nbdkit's handle.
        let bytes = unsafe { of(handle) }.unit().bytes();
        Ok(i64::try_from(bytes).unwrap_or(i64::MAX))
    })
}

unsafe extern "C" fn can_write(handle: Handle) -> c_int {
    // SAFETY: nbdkit's handle.
    guarded(-1, || Ok((!unsafe { of(handle) }.unit().read_only).into()))
}

/// Only a thin disk: mkfs first trims all of a disk that can be trimmed.
unsafe extern "C" fn can_trim(handle: Handle) -> c_int {
    // SAFETY: nbdkit's handle.
    guarded(-1, || Ok(unsafe { of(handle) }.unit().thin.into()))
}

unsafe extern "C" fn yes(_handle: Handle) -> c_int {
    1
}

unsafe extern "C" fn no(_handle: Handle) -> c_int {
    0
}

unsafe extern "C" fn can_fua(_handle: Handle) -> c_int {
    FUA_NATIVE
}

unsafe extern "C" fn block_size(
    handle: Handle,
    minimum: *mut u32,
    preferred: *mut u32,
    maximum: *mut u32,
) -> c_int {
    outcome(|| {
        // SAFETY: nbdkit's handle, and nbdkit's three numbers.
        unsafe {
            *minimum = of(handle).unit().block_bytes;
            *preferred = 4096;
            *maximum = 32 << 20;
        }
        Ok(())
    })
}

unsafe extern "C" fn pread(
    handle: Handle,
    buffer: *mut c_void,
    count: u32,
    offset: u64,
    _flags: u32,
) -> c_int {
    outcome(|| {
        let start = NonNull::new(buffer.cast::<u8>());
        let start = start.ok_or_else(|| Failure::usage("no buffer"))?;
        // SAFETY: nbdkit's handle; its buffer has `count` initialised bytes, which belong to this call alone.
        unsafe { of(handle).read(start, count as usize, offset) }
    })
}

unsafe extern "C" fn pwrite(
    handle: Handle,
    buffer: *const c_void,
    count: u32,
    offset: u64,
    flags: u32,
) -> c_int {
    outcome(|| {
        let start = NonNull::new(buffer.cast_mut().cast::<u8>());
        let start = start.ok_or_else(|| Failure::usage("no buffer"))?;
        let durable = flags & FLAG_FUA != 0;
        // SAFETY: nbdkit's handle; its buffer has `count` bytes, which are not written during this call.
        unsafe { of(handle).write(start, count as usize, offset, durable) }
    })
}

unsafe extern "C" fn flush(handle: Handle, _flags: u32) -> c_int {
    // SAFETY: nbdkit's handle.
    outcome(|| unsafe { of(handle) }.flush())
}

unsafe extern "C" fn trim(handle: Handle, count: u32, offset: u64, flags: u32) -> c_int {
    outcome(|| {
        // SAFETY: nbdkit's handle.
        let handle = unsafe { of(handle) };
        handle.zero(offset, count.into(), true, flags & FLAG_FUA != 0)
    })
}

unsafe extern "C" fn zero(handle: Handle, count: u32, offset: u64, flags: u32) -> c_int {
    outcome(|| {
        let unmap = flags & FLAG_MAY_TRIM != 0;
        // SAFETY: nbdkit's handle.
        let handle = unsafe { of(handle) };
        handle.zero(offset, count.into(), unmap, flags & FLAG_FUA != 0)
    })
}

unsafe extern "C" fn extents(
    handle: Handle,
    count: u32,
    offset: u64,
    flags: u32,
    list: Extents,
) -> c_int {
    guarded(-1, || {
        let is_one = flags & FLAG_REQ_ONE != 0;
        // SAFETY: nbdkit's handle.
        let found = unsafe { of(handle) }.extents(offset, count.into(), is_one)?;
        for extent in found {
            let kind = match extent.mapped {
                true => 0,
                false => EXTENT_HOLE | EXTENT_ZERO,
            };
            // SAFETY: nbdkit's list, which lives as long as this call.
            if unsafe { nbdkit_add_extent(list, extent.at, extent.bytes, kind) } != 0 {
                // nbdkit has reported the failure.
                return Ok(-1);
            }
        }
        Ok(0)
    })
}
