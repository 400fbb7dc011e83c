//! Makes bpf(2) calls that aya does not offer.

use std::io;

/// Calls the kernel with these attributes; those that follow are zero.
///
/// # Safety
/// The memory that pointers among them name lives across the call, and has the length that they state.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    let start = std::ptr::from_ref(attributes);
    // SAFETY: the kernel reads as many bytes of the attributes as given; the caller answers for the memory that they
    // name.
    match unsafe { libc::syscall(libc::SYS_bpf, command, start, size_of::<T>()) } {
        -1 => Err(io::Error::last_os_error()),
        // Descriptors have this type.
        done => Ok(done as libc::c_int),
    }
}
