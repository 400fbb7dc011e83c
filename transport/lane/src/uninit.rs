//! Hands initialised bytes to code that also writes bytes which are not.

use std::mem::MaybeUninit;

/// `bytes` for code that only writes values into them.
pub(crate) fn to_write(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the same bytes under the same borrow, and a type of the same layout. It is private to this crate, which writes
    // nothing but values through it: when the borrow ends, all bytes are initialised still.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
}
