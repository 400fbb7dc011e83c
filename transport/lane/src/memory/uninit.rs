//! Hands initialised bytes to code that can also write uninitialised ones.

use std::mem::MaybeUninit;

/// `bytes` for code that only writes values into them.
pub(crate) fn to_write(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the same bytes under the same borrow, and a type of the same layout. The function is private to this
    // crate, which writes only initialised values through it: when the borrow ends, all bytes are still initialised.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
}
