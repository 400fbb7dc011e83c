//! Addresses as texts.

use crate::pointer::bytes_mut;
use crate::status::Failure;
use std::ffi::c_char;
use std::fmt::Display;
use std::net::SocketAddr;
use zerolane::lanes;
use zerolane::options::LaneChoice;

/// Bytes that hold any address of this library as a text, with the zero at its end.
pub const ZL_ADDRESS_LENGTH: usize = 64;

/// The addresses of "host:port", or of raw Ethernet if that is the lane, of which there is at least one. A name is looked
/// up, which may take a while.
pub(crate) fn resolve(address: &str, lane: LaneChoice) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = lanes::resolve(address, lane).map_err(zerolane::Error::Address)?;
    match addresses.is_empty() {
        true => Err(zerolane::Error::NoAddress.into()),
        false => Ok(addresses),
    }
}

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
    // SAFETY: the caller's promise.
    let buffer = unsafe { bytes_mut(buffer.cast(), capacity, "buffer") }?;
    let place = buffer.get_mut(..text.len()).ok_or_else(|| {
        Failure::argument(format!("buffer takes {capacity} bytes of {}", text.len()))
    })?;
    place.write_copy_of_slice(text.as_bytes());
    Ok(())
}
