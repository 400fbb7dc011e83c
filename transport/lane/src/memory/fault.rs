//! Accesses memory of mapped files from user space without SIGBUS.
//!
//! A missing page of a mapped file (the file shrank, the disk is full) raises SIGBUS in the program that touches it. A
//! library has no business handling signals. The kernel's own copies fail with EFAULT instead. Therefore the lane lets
//! the kernel copy whenever it reads or writes such memory itself: process_vm_readv and process_vm_writev on its own
//! process. The kernel has no such call for atomic operations; before one, the lane makes the kernel write to the word
//! ([`touch`]).

use crate::memory::shared;
use crate::memory::shared::Bounds;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The memory is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Reads `buffer.len()` bytes at `from`, which is exported memory if `shared` is given.
///
/// # Safety
/// The bytes lie in a mapping, whose pages may be gone. Nothing writes them unless they lie in `shared`.
pub(crate) unsafe fn read(
    from: *const u8,
    buffer: &mut [u8],
    shared: Option<Bounds>,
) -> Result<(), Gone> {
    let (to, len) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: `from` is the remote side, as promised; the local side is the buffer.
    unsafe { through_kernel(libc::process_vm_readv, to, from.cast_mut(), len) }.unwrap_or_else(
        // SAFETY: as promised. Where a sandbox forbids the call, only a direct access is left.
        || unsafe {
            match shared {
                Some(bounds) => shared::load(bounds, bounds.offset_of(from), buffer),
                None => std::ptr::copy(from, to, len),
            }
            Ok(())
        },
    )
}

/// Writes `bytes` at `to`, which is exported memory if `shared` is given.
///
/// # Safety
/// The bytes lie in a mapping, whose pages may be gone. Nothing else accesses them unless they lie in `shared`.
pub(crate) unsafe fn write(bytes: &[u8], to: *mut u8, shared: Option<Bounds>) -> Result<(), Gone> {
    let (from, len) = (bytes.as_ptr().cast_mut(), bytes.len());
    // SAFETY: `to` is the remote side, as promised; the local side is only read.
    unsafe { through_kernel(libc::process_vm_writev, from, to, len) }.unwrap_or_else(
        // SAFETY: as in `read`.
        || unsafe {
            match shared {
                Some(bounds) => shared::store(bounds, bounds.offset_of(to), bytes),
                None => std::ptr::copy(from, to, len),
            }
            Ok(())
        },
    )
}

/// Moves `len` bytes by `call`. `None` if this process may not make the call.
///
/// A call may move fewer bytes than requested: it stops at a missing page, and the kernel moves at most 2 GiB less a
/// page at a time. The next call tells the two cases apart.
///
/// # Safety
/// As `call`: the side that it writes is writable or gone, and belongs to the caller alone.
unsafe fn through_kernel(
    call: Transfer,
    local: *mut u8,
    remote: *mut u8,
    len: usize,
) -> Option<Result<(), Gone>> {
    let mut done = 0;
    while done < len {
        let side = |start: *mut u8| libc::iovec {
            iov_base: start.wrapping_add(done).cast(),
            iov_len: len - done,
        };
        let (local, remote) = (side(local), side(remote));
        // SAFETY: one iovec a side, both alive across the call; getpid has no preconditions.
        let moved = unsafe { call(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(moved) {
            Ok(0) => return Some(Err(Gone)),
            Ok(moved) => done += moved,
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) => {
                return Some(Err(Gone));
            }
            Err(_) => return None,
        }
    }
    Some(Ok(()))
}

/// Makes the kernel write to `word`, atomically and without a change: a readable page may still be one for which the
/// disk has no room (a hole). A futex operation is the only atomic access that fails without a signal. No thread waits
/// on the word, and one that did would check again.
pub(crate) fn touch(word: &AtomicU64) -> Result<(), Gone> {
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let add_nothing = libc::FUTEX_OP(libc::FUTEX_OP_ADD, 0, libc::FUTEX_OP_CMP_LT, 0);
    let (nobody, none) = (AtomicU32::new(0), 0usize);
    // SAFETY: both addresses are of words that live through the call. The kernel adds zero to half of the second, as an
    // atomic operation.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            nobody.as_ptr(),
            operation,
            none,
            none,
            word.as_ptr(),
            add_nothing,
        )
    };
    match done {
        0.. => Ok(()),
        _ => Err(Gone),
    }
}

/// Whether the `len` bytes at `start` can be written. `None` if the kernel cannot tell (before
/// 5.14).
///
/// # Safety
/// The bytes lie in a mapping, whose pages may be gone.
pub(crate) unsafe fn is_writable(start: *mut u8, len: usize) -> Option<bool> {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let skip = start as usize % page;
    // SAFETY: the pages that hold the bytes belong to the mapping; no content changes.
    let done = unsafe {
        libc::madvise(
            start.sub(skip).cast(),
            len + skip,
            libc::MADV_POPULATE_WRITE,
        )
    };
    match done {
        0 => Some(true),
        _ => match io::Error::last_os_error().raw_os_error() {
            Some(libc::EFAULT) => Some(false),
            _ => None,
        },
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
