//! Attaches a program to an interface, and detaches it.
//!
//! aya's links cannot be detached and do not expose their descriptor: they can only be closed. So this module makes its
//! own.

use crate::ethernet::bpf::bpf;
use aya::programs::ProgramFd;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_DETACH: libc::c_int = 34;

/// The attach type of programs that see frames in the driver's form.
const BPF_XDP: u32 = 37;

/// Where a program runs: the XDP_FLAGS of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// In the kernel, once it has made a packet of the frame.
    Generic = 1 << 1,
    /// In the interface's driver.
    Driver = 1 << 2,
}

/// An attached program, until this is dropped or the process ends.
///
/// The kernel detaches a program once the last copy of the descriptor is closed, and a child that another thread forks
/// has a copy until it executes a program. So this detaches it explicitly; otherwise the interface could refuse the
/// next program.
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
    /// Attaches `program` to the interface with that index in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's. EBUSY: the interface has a program.
    pub(super) fn new(program: &ProgramFd, interface: u32, mode: Mode) -> io::Result<Attachment> {
        let create = Create {
            program: program.as_fd().as_raw_fd(),
            interface,
            kind: BPF_XDP,
            flags: mode as u32,
        };
        // SAFETY: the attributes have no pointers.
        let made = unsafe { bpf(BPF_LINK_CREATE, &create)? };
        // SAFETY: the kernel has just made it, and nothing else owns it.
        Ok(Attachment(unsafe { OwnedFd::from_raw_fd(made) }))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // It fails if the interface is gone, or another program detached it: then there is nothing to do.
        // SAFETY: the attributes have no pointers.
        let _ = unsafe { bpf(BPF_LINK_DETACH, &[self.0.as_raw_fd()]) };
    }
}
