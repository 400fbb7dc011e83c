//! Makes and checks memory with a descriptor, by which another process can map it.

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::ftruncate;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Memory of `len` bytes, all zero, to which `seals` apply.
///
/// # Errors
/// The system has no memory, or no descriptor.
pub(crate) fn create(len: usize, seals: SealFlag) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let length = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // A memfd counts as a file: beyond this limit the kernel would end the process (SIGXFSZ).
    if getrlimit(Resource::RLIMIT_FSIZE)?.0 < len as u64 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let memory = memfd_create(c"zerolane", flags)?;
    #[cfg(test)]
    seam::count_created();
    ftruncate(&memory, length)?;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(memory)
}

/// Allocates all `len` bytes of `memory` now, so that no access fails later for lack of memory.
///
/// # Errors
/// The system has no memory.
pub(crate) fn fill(memory: &OwnedFd, len: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    Ok(fallocate(memory, FallocateFlags::empty(), 0, length)?)
}

/// Checks that a descriptor from another process is a memfd with `len` bytes and these seals.
///
/// # Errors
/// The check that failed.
pub(crate) fn check(memory: BorrowedFd<'_>, len: usize, seals: SealFlag) -> io::Result<()> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    // Pages of another file system may be gone, whatever the length of the file.
    if fstatfs(memory)?.filesystem_type() != TMPFS_MAGIC {
        return Err(refused("the passed descriptor is not a memfd"));
    }
    let sealed = self::seals(memory).map_err(|_| refused("the passed memory cannot be sealed"))?;
    if !sealed.contains(seals) {
        return Err(refused("the passed memory is not sealed"));
    }
    if usize::try_from(fstat(memory)?.st_size) != Ok(len) {
        return Err(refused("the passed memory has another length"));
    }
    Ok(())
}

/// Whether a process with a writable descriptor can map the memory writable.
pub(crate) fn is_writable(memory: &OwnedFd) -> io::Result<bool> {
    Ok(!seals(memory.as_fd())?.contains(SealFlag::F_SEAL_FUTURE_WRITE))
}

/// Makes a read-only descriptor, and seals the memory so that no process can map it writable from now on. Without the
/// seal, a process of the same user could reopen the read-only descriptor for writing.
///
/// # Errors
/// The kernel has no such seal (before 5.1), another process has sealed the seals, or `/proc` is not there.
pub(crate) fn reader(memory: &OwnedFd) -> io::Result<OwnedFd> {
    if is_writable(memory)? {
        fcntl(memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_FUTURE_WRITE))?;
    }
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(File::open(path)?.into())
}

/// The number by which a peer recognises it: unique among the memory that exists.
pub(crate) fn inode(memory: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(fstat(memory)?.st_ino)
}

pub(crate) fn seals(memory: BorrowedFd<'_>) -> io::Result<SealFlag> {
    let sealed = fcntl(memory, FcntlArg::F_GET_SEALS)?;
    Ok(SealFlag::from_bits_retain(sealed))
}

/// Counts this thread's creations.
#[cfg(test)]
pub(crate) mod seam {
    use std::cell::Cell;

    thread_local! {
        static CREATED: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_created() {
        CREATED.set(CREATED.get() + 1);
    }

    /// Creations since the last call.
    pub(crate) fn take() -> usize {
        CREATED.take()
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::memory::Mapping;

    #[test]
    fn reader__of_memory_that_no_process_maps_to_write_from_then_on() {
        let memory = create(4096, SealFlag::F_SEAL_SHRINK).expect("memory");
        let writes = |memory: BorrowedFd<'_>| {
            let mapped = Mapping::new(4096, libc::MAP_SHARED, Some((memory, 0)));
            mapped.is_ok()
        };
        assert!(is_writable(&memory).expect("memory") && writes(memory.as_fd()));
        let reader = reader(&memory).expect("sealed");
        assert!(!is_writable(&memory).expect("memory"));
        assert!(Mapping::to_read(4096, (reader.as_fd(), 0)).is_ok());
        assert!(!writes(reader.as_fd()) && !writes(memory.as_fd()));
        // Reopened, as any process of this user may do.
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let anew = File::options().read(true).write(true).open(path);
        let anew: OwnedFd = anew.expect("of this user").into();
        assert!(!writes(anew.as_fd()));
    }
}
