//! Turns pieces of the program's memory into memory of requests.

use crate::attributes::PIECES;
use crate::errno::{Errno, Outcome};
use crate::libfabric::iovec;
use std::ffi::c_void;
use std::ptr::NonNull;
use zerolane::Region;
use zerolane::memory::Memory;

/// A piece of the program's memory.
pub(crate) fn piece(start: *const c_void, length: usize) -> iovec {
    iovec {
        iov_base: start.cast_mut(),
        iov_len: length,
    }
}

/// The pieces that a program passes.
///
/// # Safety
/// `iov` is null or has `count` pieces.
pub(crate) unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Outcome<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        _ if iov.is_null() || count > PIECES => Err(Errno::INVALID),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(iov, count) }),
    }
}

/// # Errors
/// A piece has bytes and no address, or they are more than memory has.
pub(crate) fn total(pieces: &[iovec]) -> Outcome<usize> {
    pieces.iter().try_fold(0usize, |sum, it| {
        if it.iov_base.is_null() && it.iov_len > 0 {
            return Err(Errno::INVALID);
        }
        sum.checked_add(it.iov_len).ok_or(Errno::INVALID)
    })
}

/// The program's memory, for one request.
pub(crate) fn region(piece: &iovec) -> Region {
    let start = NonNull::new(piece.iov_base.cast()).unwrap_or(NonNull::dangling());
    // SAFETY: libfabric's rule: the program keeps the memory, and leaves it alone, until the operation completes, is
    // cancelled or its endpoint closed; the library stops using it before it says so. Nothing dereferences the region.
    unsafe { Region::foreign(start, piece.iov_len, false, Box::new(())) }
}

/// A copy of the program's memory.
///
/// # Safety
/// The pieces are readable.
pub(crate) unsafe fn copied(pieces: &[iovec], total: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(total);
    for it in pieces.iter().filter(|it| it.iov_len > 0) {
        // SAFETY: the caller's promise; `total` checked the address.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(it.iov_base.cast::<u8>(), it.iov_len)
        });
    }
    bytes
}

/// The memory of a send.
pub(crate) fn memory(pieces: &[iovec]) -> Memory {
    match pieces {
        [one] => region(one).into(),
        several => {
            let several = several.iter().filter(|it| it.iov_len > 0);
            Memory::Gathered(several.map(|it| region(it).into()).collect())
        }
    }
}
