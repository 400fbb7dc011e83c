//! What tests ask of the kernel's BPF and aya does not do.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_LINK_GET_FD_BY_ID: libc::c_int = 30;
const BPF_LINK_DETACH: libc::c_int = 34;

/// Calls the kernel with these attributes, of which what is behind is zero.
///
/// # Safety
/// There are no pointers among them.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_long> {
    let start = std::ptr::from_ref(attributes);
    // SAFETY: the kernel reads so many bytes of the attributes, and they name nothing else.
    match unsafe { libc::syscall(libc::SYS_bpf, command, start, size_of::<T>()) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

fn descriptor(made: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel just made it, and nothing else has it.
    unsafe { OwnedFd::from_raw_fd(made as libc::c_int) }
}

/// Detaches the link with that number, whoever's it is: what `bpftool link detach` does.
pub(super) fn detach(link: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    let link = descriptor(unsafe { bpf(BPF_LINK_GET_FD_BY_ID, &[link])? });
    // SAFETY: no pointers.
    unsafe { bpf(BPF_LINK_DETACH, &[link.as_raw_fd()]) }.map(drop)
}
