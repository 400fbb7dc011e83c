//! Addresses as texts.

use crate::pointer::bytes_mut;
use crate::status::Failure;
use std::ffi::c_char;
use std::fmt::Display;

/// Bytes that hold any address of this library as a text, with the zero at its end.
pub const ZL_ADDRESS_LENGTH: usize = 64;

/// Writes `address` and a zero.
///
/// # Safety
/// `capacity` bytes at `buffer` are writable.
pub(crate) unsafe fn write(
    address: impl Display,
    buffer: *mut c_char,
    capacity: usize,
) -> Result<(), Failure> {
    let text = format!("{address}\0");
    // SAFETY: the caller's promise. The bytes may be uninitialised for C. Here they are only written.
    let buffer = unsafe { bytes_mut(buffer.cast(), capacity, "buffer") }?;
    let place = buffer.get_mut(..text.len()).ok_or_else(|| {
        Failure::argument(format!("buffer takes {capacity} bytes of {}", text.len()))
    })?;
    place.copy_from_slice(text.as_bytes());
    Ok(())
}
