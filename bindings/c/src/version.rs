//! What is linked with.

use std::ffi::c_char;

/// Version of the binary interface. It grows when programs compiled against an older header would not
/// work any more. While it is 0, any release may break them.
pub const ZL_ABI_VERSION: u32 = 0;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Version of the binary interface of the library in use; compare with ZL_ABI_VERSION, that of the
/// header.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn zl_abi_version() -> u32 {
    ZL_ABI_VERSION
}

/// Release of the library in use, as "1.2.3".
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn zl_version() -> *const c_char {
    VERSION.as_ptr().cast()
}
