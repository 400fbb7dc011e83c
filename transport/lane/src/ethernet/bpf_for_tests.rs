//! Makes bpf(2) calls that tests need and aya does not offer.

use super::bpf::bpf;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_LINK_GET_FD_BY_ID: libc::c_int = 30;
const BPF_LINK_DETACH: libc::c_int = 34;

fn descriptor(made: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just made it, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(made) }
}

/// Detaches the link with that number, even another program's, as `bpftool link detach` does.
pub(crate) fn detach(link: u32) -> io::Result<()> {
    // SAFETY: the attributes have no pointers.
    let link = descriptor(unsafe { bpf(BPF_LINK_GET_FD_BY_ID, &[link])? });
    // SAFETY: the attributes have no pointers.
    unsafe { bpf(BPF_LINK_DETACH, &[link.as_raw_fd()]) }.map(drop)
}

/// Frames that the kernel itself makes and sends at an interface, without a socket buffer for each: the cheapest
/// generator (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18).
pub(super) struct Generator(OwnedFd);

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
}

#[repr(C)]
#[derive(Default)]
struct Run {
    program: u32,
    result: u32,
    len_in: u32,
    len_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_len: u32,
    context_out_len: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    /// The kernel refuses unknown fields unless they are zero, and padding of a structure might not be.
    zero: u32,
}

impl Generator {
    /// A generator at the interface with that index.
    pub(super) fn new(interface: u32) -> io::Result<Generator> {
        const XDP: u32 = 6;
        // The first argument, the second, a call of bpf_redirect, and the end.
        let code = [[0x01b7, interface], [0x02b7, 0], [0x0085, 23], [0x0095, 0]];
        let license = c"GPL";
        let load = Load {
            kind: XDP,
            instructions: code.len() as u32,
            code: code.as_ptr().expose_provenance() as u64,
            license: license.as_ptr().expose_provenance() as u64,
        };
        // SAFETY: code and license live across the call.
        Ok(Generator(descriptor(unsafe { bpf(BPF_PROG_LOAD, &load)? })))
    }

    /// Sends `frame` `count` times. The calling thread must be in the network namespace of the interface.
    pub(super) fn send(&self, frame: &[u8], count: u32) -> io::Result<()> {
        const LIVE_FRAMES: u32 = 1 << 1;
        let run = Run {
            program: self.0.as_raw_fd().cast_unsigned(),
            len_in: frame.len() as u32,
            data_in: frame.as_ptr().expose_provenance() as u64,
            repeat: count,
            flags: LIVE_FRAMES,
            batch: 64,
            ..Run::default()
        };
        // SAFETY: the frame lives across the call, and nothing is written.
        unsafe { bpf(BPF_PROG_TEST_RUN, &run) }.map(drop)
    }
}
