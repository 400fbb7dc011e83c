//! Parses and writes addresses as text.

use crate::pointer::bytes_mut;
use crate::status::Failure;
use std::ffi::c_char;
use std::fmt::Display;
use std::net::SocketAddr;
use zerolane::lanes;
use zerolane::options::LaneChoice;

/// Bytes that hold any address as text, with its terminating zero.
pub const ZL_ADDRESS_LENGTH: usize = 64;

/// Resolves "host:port", or an address of raw Ethernet if that is the lane, to at least one address. May block to look
/// up a name.
pub(crate) fn resolve(address: &str, lane: LaneChoice) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = lanes::resolve(address, lane).map_err(zerolane::Error::Address)?;
    match addresses.is_empty() {
        true => Err(zerolane::Error::NoAddress.into()),
        false => Ok(addresses),
    }
}

/// Writes `address` and a terminating zero.
///
/// # Safety
/// `capacity` bytes at `buffer` are writable.
pub(crate) unsafe fn write(
    address: impl Display,
    buffer: *mut c_char,
    capacity: usize,
) -> Result<(), Failure> {
    let text = format!("{address}\0");
    // SAFETY: the caller's promise.
    let buffer = unsafe { bytes_mut(buffer.cast(), capacity, "buffer") }?;
    let place = buffer.get_mut(..text.len()).ok_or_else(|| {
        Failure::argument(format!("buffer takes {capacity} bytes of {}", text.len()))
    })?;
    place.write_copy_of_slice(text.as_bytes());
    Ok(())
}
