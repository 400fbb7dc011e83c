//! What holds a program at an interface.
//!
//! aya makes such links, and neither detaches one nor tells its descriptor: closing it is all that can be done there. So these are
//! this lane's own.

use crate::ethernet::bpf::bpf;
use aya::programs::ProgramFd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_DETACH: libc::c_int = 34;

/// The attach type of programs that see frames as the driver has them.
const BPF_XDP: u32 = 37;

/// Which part of the system runs a program: the XDP_FLAGS of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// The kernel, once it has made a packet of the frame.
    Generic = 1 << 1,
    /// The interface's driver.
    Driver = 1 << 2,
}

/// A program is at an interface until this is dropped or the process ends.
///
/// The kernel takes a program off once the last copy of the descriptor is closed, and a child that another thread forks has a copy
/// until it executes something. So it is detached, lest the interface refuses the next program meanwhile.
#[derive(Debug)]
pub(super) struct Attachment(OwnedFd);

/// The attributes of `BPF_LINK_CREATE`.
#[repr(C)]
struct Create {
    program: i32,
    interface: u32,
    kind: u32,
    flags: u32,
}

impl Attachment {
    /// Of `program` to the interface with that number in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's. EBUSY: it has a program.
    pub(super) fn new(program: &ProgramFd, interface: u32, mode: Mode) -> io::Result<Attachment> {
        let create = Create {
            program: program.as_fd().as_raw_fd(),
            interface,
            kind: BPF_XDP,
            flags: mode as u32,
        };
        // SAFETY: they have no pointers.
        let made = unsafe { bpf(BPF_LINK_CREATE, &create)? };
        // SAFETY: the kernel just made it, and nothing else has it.
        Ok(Attachment(unsafe { OwnedFd::from_raw_fd(made) }))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // It fails if the interface is gone, or another program detached it: then there is nothing to do.
        // SAFETY: they have no pointers.
        let _ = unsafe { bpf(BPF_LINK_DETACH, &[self.0.as_raw_fd()]) };
    }
}
