//! Memory that the kernel maps for this process.

use crate::Process;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Bytes of a page.
pub(crate) fn page() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Memory that was mapped, to be read and, as a rule, written, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// The one process that has it, if a child of fork does not.
    only: Option<Process>,
}

// SAFETY: a mapping belongs to no thread; what of it may be touched, and when, is its user's to keep.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes wherever the kernel has room, as `flags` of mmap say: zero at first, or what the descriptor has from the byte on
    /// that is named with it.
    ///
    /// # Errors
    /// The kernel's: no memory, or nothing of that kind there.
    pub(crate) fn new(
        len: usize,
        flags: i32,
        of: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, of)
    }

    /// `len` bytes that the descriptor has from the byte on that is named with it, shared, and not to be written.
    ///
    /// # Errors
    /// As of [`Mapping::new`].
    pub(crate) fn to_read(len: usize, of: (BorrowedFd<'_>, u64)) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ, libc::MAP_SHARED, Some(of))
    }

    fn map(
        len: usize,
        protection: i32,
        flags: i32,
        of: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<Mapping> {
        let (flags, fd, offset) = match of {
            None => (flags | libc::MAP_ANONYMOUS, -1, 0),
            Some((fd, offset)) => (flags, fd.as_raw_fd(), offset),
        };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping {
            start,
            len,
            only: None,
        })
    }

    /// A child of fork does not have it from here on, where the kernel can do that. Of memory that is shared, a child would
    /// have the very bytes, and their owner in this process would not be the only one.
    pub(crate) fn keep_from_children(&mut self) {
        // SAFETY: the range is the mapping; no content changes.
        let done = unsafe {
            let start = self.start.as_ptr().cast();
            libc::madvise(start, self.len, libc::MADV_DONTFORK)
        };
        self.only = (done == 0).then(Process::current);
    }

    /// The one process that has it, if a child of fork does not.
    pub(crate) fn only(&self) -> Option<Process> {
        self.only
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Byte `offset`, which is one of it.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.len);
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a child that does not have it, something else may be there by now.
        if self.only.is_some_and(|it| !it.is_current()) {
            return;
        }
        // SAFETY: what mmap returned; nothing has references into it that outlive it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
