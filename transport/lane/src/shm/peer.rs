//! Watches the peer's process, and reads from its memory.

use nix::sys::socket::{UnixCredentials, getsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most runs of payload in one record.
pub(super) const MAX_RUNS: usize = 2;

/// Bytes of the peer's memory, and their target here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) from: u64,
    pub(super) to: *mut u8,
    pub(super) len: usize,
}

/// A number, and its address in the peer's memory. A read that includes it reads from the program that published it,
/// and not from another that has the same process id by now, or that replaced it by exec.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) address: u64,
    pub(super) value: u64,
}

/// Why memory of the peer could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// The kernel does not permit it (Yama, another pid namespace, a sandbox).
    Refused,
    /// The process has ended, or is another program by now.
    Gone,
    /// Some of the bytes, here or there, are not mapped.
    Fault,
}

/// The process at the other end of a socket.
#[derive(Debug)]
pub(super) struct PeerProcess {
    /// 0 if this process cannot see it.
    pid: i32,
    /// Readable once the process has ended. `None` for this process itself, and if there is no such descriptor.
    handle: Option<OwnedFd>,
}

/// The credentials of the process that made the socket's other end.
///
/// # Errors
/// The kernel does not report them.
pub(super) fn credentials(socket: BorrowedFd<'_>) -> io::Result<UnixCredentials> {
    Ok(getsockopt(&socket, sockopt::PeerCredentials)?)
}

impl PeerProcess {
    /// The process that made the socket's other end.
    pub(super) fn of(credentials: &UnixCredentials) -> PeerProcess {
        let pid = credentials.pid();
        let own = u32::try_from(pid) == Ok(std::process::id());
        let handle = if own { None } else { open(pid) };
        PeerProcess { pid, handle }
    }

    /// The descriptor that is readable once the process has ended.
    pub(super) fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_ref().map(AsFd::as_fd)
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&self) -> bool {
        let Some(handle) = &self.handle else {
            return false;
        };
        let mut poll = libc::pollfd {
            fd: handle.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd that lives across the call, which does not wait.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        ready > 0
    }

    /// Copies all of `parts`, at most [`MAX_RUNS`], from its memory, by one call, and checks `mark` with them.
    ///
    /// # Errors
    /// The copied bytes must not be used.
    ///
    /// # Safety
    /// The targets lie in mappings, whose pages may be gone, and are otherwise only accessed atomically.
    pub(super) unsafe fn read(&self, parts: &[Copied], mark: Mark) -> Result<(), ReadError> {
        if self.pid == 0 {
            return Err(ReadError::Refused);
        }
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let (mut to, mut from) = ([empty; MAX_RUNS + 1], [empty; MAX_RUNS + 1]);
        let mut all = 0;
        let mut found = 0u64;
        let marked = Copied {
            from: mark.address,
            to: (&raw mut found).cast(),
            len: size_of::<u64>(),
        };
        for (index, part) in parts.iter().chain([&marked]).enumerate() {
            to[index] = libc::iovec {
                iov_base: part.to.cast(),
                iov_len: part.len,
            };
            from[index] = libc::iovec {
                // An address of the other process, which this one does not dereference.
                iov_base: std::ptr::without_provenance_mut(part.from as usize),
                iov_len: part.len,
            };
            all += part.len;
        }
        let count = (parts.len() + 1) as libc::c_ulong;
        // SAFETY: as many iovecs as given, alive across the call. The local side is as promised; the remote side is
        // only read, by the kernel, which checks it.
        let read = unsafe {
            libc::process_vm_readv(self.pid, to.as_ptr(), count, from.as_ptr(), count, 0)
        };
        match usize::try_from(read) {
            Ok(read) if read == all && found == mark.value => Ok(()),
            Ok(read) if read == all => Err(ReadError::Gone),
            Ok(_) => Err(ReadError::Fault),
            Err(_) => Err(match io::Error::last_os_error().raw_os_error() {
                Some(libc::ESRCH) => ReadError::Gone,
                Some(libc::EFAULT) => ReadError::Fault,
                _ => ReadError::Refused,
            }),
        }
    }
}

/// A handle of the process with this id. `None` if this process cannot see it, or the kernel has no such handles
/// (before 5.3).
fn open(pid: i32) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    // SAFETY: two integers; pidfd_open has no other preconditions.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let handle = i32::try_from(handle).ok().filter(|it| *it >= 0)?;
    // SAFETY: a new descriptor that nothing else owns.
    Some(unsafe { OwnedFd::from_raw_fd(handle) })
}
