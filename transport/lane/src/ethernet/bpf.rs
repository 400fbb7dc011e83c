//! The kernel's BPF, where aya does not ask it.

use std::io;

/// Calls the kernel with these attributes, of which what is behind is zero.
///
/// # Safety
/// What pointers among them name lives across the call, and is as long as they say.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    let start = std::ptr::from_ref(attributes);
    // SAFETY: the kernel reads so many bytes of the attributes, and what those name is the caller's promise.
    match unsafe { libc::syscall(libc::SYS_bpf, command, start, size_of::<T>()) } {
        -1 => Err(io::Error::last_os_error()),
        // Descriptors are of this type.
        done => Ok(done as libc::c_int),
    }
}
