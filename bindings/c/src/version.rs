//! Returns the version of the library and of its binary interface.

use std::ffi::c_char;

/// Version of the binary interface. It grows when programs compiled with an older header would
/// no longer work. While it is 0, any release may break them.
pub const ZL_ABI_VERSION: u32 = 0;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Returns the version of the library's binary interface. Compare it with ZL_ABI_VERSION, the
/// header's version.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn zl_abi_version() -> u32 {
    ZL_ABI_VERSION
}

/// Returns the library's release, such as "1.2.3".
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn zl_version() -> *const c_char {
    VERSION.as_ptr().cast()
}
