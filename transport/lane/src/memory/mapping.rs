//! Maps memory for this process, and unmaps it when it is dropped.

use crate::threads::Process;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Bytes in a page.
pub(crate) fn page() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Mapped memory, readable and usually writable, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// The one process that has it, if fork does not pass it to children.
    only: Option<Process>,
}

// SAFETY: a mapping belongs to no thread; its user decides which bytes may be accessed, and when.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at an address of the kernel's choice, with `flags` of mmap: zero bytes, or those of the given
    /// descriptor from the given offset on.
    ///
    /// # Errors
    /// Those of mmap: no memory, or nothing to map.
    pub(crate) fn new(
        len: usize,
        flags: i32,
        of: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, of)
    }

    /// Maps `len` bytes of the given descriptor from the given offset on, shared and read-only.
    ///
    /// # Errors
    /// As [`Mapping::new`].
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
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
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

    /// Keeps it from later children of fork, if the kernel can. Of shared memory, a child would have the very same
    /// bytes, and their owner would not be the only one.
    pub(crate) fn keep_from_children(&mut self) {
        // SAFETY: the range is the mapping; no content changes.
        let done = unsafe {
            let start = self.start.as_ptr().cast();
            libc::madvise(start, self.len, libc::MADV_DONTFORK)
        };
        self.only = (done == 0).then(Process::current);
    }

    /// The one process that has it, if fork does not pass it to children.
    pub(crate) fn only(&self) -> Option<Process> {
        self.only
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of byte `offset`, which must lie in the mapping.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.len);
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a child that does not have the mapping, another one may be at its address by now.
        if self.only.is_some_and(|it| !it.is_current()) {
            return;
        }
        // SAFETY: the range that mmap returned; no reference into it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
