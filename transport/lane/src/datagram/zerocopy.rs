//! Sends without the kernel's copy (MSG_ZEROCOPY), if the kernel really omits it.
//!
//! The kernel accepts the flag and may copy anyway; loopback and veth always do. It reports that afterwards, on the
//! error queue. So the first path probe, a datagram of the lane's own memory, is sent with the flag, and the kernel's
//! report decides for the connection. Memory lent to the kernel is kept, and not written, until the kernel reports its
//! release.

use crate::account::Zerocopy;
use crate::socket::system;
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use zerolane_core::{DataBurst, RegionId};
use zerolane_wire::HEADER_LEN;

/// Most fragments of one send: the kernel's MAX_SKB_FRAGS.
const MAX_FRAGMENTS: usize = 17;
/// Page size for counting fragments; larger pages only reduce their number.
const PAGE: usize = 4096;
/// Least payload of one send for which avoiding the copy pays, in bytes. The kernel's documentation names 10 KB for
/// each call; but a burst with the copy carries up to 64 KiB, so avoiding it needs more calls.
const WORTHWHILE: usize = 16 << 10;
/// Most sends that the kernel may hold at a time. Each holds headers, and the kernel has its own limit.
const MAX_HELD: usize = 256;
/// Most network errors that one read of the error queue skips: the next read continues after them.
const MAX_SKIPPED: usize = 64;
/// Bytes for one header: its 40 bytes must not cross a page boundary.
const SLOT: usize = 64;
/// Most datagrams of one send: each header takes a fragment, and each payload at least one.
pub(super) const MAX_DATAGRAMS: usize = MAX_FRAGMENTS / 2;
/// Room for one report: an address and a sock_extended_err.
const CONTROL_LEN: usize = 128;
/// `ee_origin` of a report of zerocopy (linux/errqueue.h).
const ORIGIN_ZEROCOPY: u8 = 5;
/// `ee_code` if the kernel copied.
const COPIED: u8 = 1;

#[repr(C, align(512))]
#[derive(Debug)]
pub(super) struct Headers(pub(super) [[u8; SLOT]; MAX_DATAGRAMS]);

const _: () =
    assert!(SLOT >= HEADER_LEN && size_of::<Headers>() == 512 && PAGE.is_multiple_of(512));

/// A send whose memory the kernel still holds.
#[derive(Debug)]
struct LentSend {
    /// Its number: the kernel counts the sends of a socket, from 0.
    number: u32,
    /// The region of its payload; `None` for a probe.
    region: Option<RegionId>,
    headers: Box<Headers>,
}

#[derive(Debug)]
pub(super) struct ZerocopyTracker {
    state: Zerocopy,
    next: u32,
    held: VecDeque<LentSend>,
    #[allow(clippy::vec_box, reason = "the kernel has their addresses")]
    free: Vec<Box<Headers>>,
}

impl ZerocopyTracker {
    pub(super) fn new(socket: &Socket, wanted: bool) -> ZerocopyTracker {
        let state = match wanted {
            false => Zerocopy::Off,
            true if crate::socket::enable_zerocopy(socket) => Zerocopy::Untried,
            true => Zerocopy::Refused,
        };
        ZerocopyTracker {
            state,
            next: 0,
            held: VecDeque::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> Zerocopy {
        self.state
    }

    /// Whether the kernel holds memory of this end.
    pub(super) fn is_lending(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether the kernel holds memory of `region`.
    pub(super) fn holds(&self, region: RegionId) -> bool {
        self.held.iter().any(|held| held.region == Some(region))
    }

    /// Datagrams with `stu` bytes of payload for one send. 0 if lending does not pay, or is not possible.
    pub(super) fn datagrams(&self, stu: usize) -> usize {
        if self.state != Zerocopy::Used || self.held.len() >= MAX_HELD {
            return 0;
        }
        // One for the header, and the payload may begin anywhere in its first page.
        let fragments = 1 + stu.div_ceil(PAGE) + 1;
        let datagrams = MAX_FRAGMENTS / fragments;
        if datagrams * stu < WORTHWHILE {
            0
        } else {
            datagrams
        }
    }

    /// Whether to lend this burst.
    pub(super) fn pays(&self, burst: &DataBurst) -> bool {
        burst.segments as usize <= self.datagrams(burst.stu as usize)
            && burst.span.len >= WORTHWHILE as u64
    }

    /// Headers to fill for the next send.
    pub(super) fn headers(&mut self) -> Box<Headers> {
        let new = || Box::new(Headers([[0; SLOT]; MAX_DATAGRAMS]));
        self.free.pop().unwrap_or_else(new)
    }

    /// A probe's own memory, if a probe should be sent now.
    pub(super) fn probe(&mut self, bytes: &[u8]) -> Option<Box<Headers>> {
        if self.state != Zerocopy::Untried {
            return None;
        }
        let mut headers = self.headers();
        headers.0.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        Some(headers)
    }

    /// Records a send that the kernel took.
    pub(super) fn lent(&mut self, headers: Box<Headers>, region: Option<RegionId>) {
        if self.state == Zerocopy::Untried {
            self.state = Zerocopy::Probing;
        }
        self.held.push_back(LentSend {
            number: self.next,
            region,
            headers,
        });
        self.next = self.next.wrapping_add(1);
    }

    /// Records a send that the kernel refused. True if the cause is zerocopy, so that a send with the copy is worth
    /// trying.
    pub(super) fn refused(&mut self, headers: Box<Headers>, error: &io::Error) -> bool {
        self.free.push(headers);
        match error.raw_os_error() {
            // Too many reports, too many pinned pages, pages that cannot be pinned, or too many fragments. Or an
            // unrelated cause, which then fails the send with the copy as well.
            Some(libc::ENOBUFS | libc::EMSGSIZE | libc::EFAULT) => true,
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPERM | libc::EIO) => {
                self.state = Zerocopy::Refused;
                true
            }
            _ => false,
        }
    }

    /// Takes the kernel's reports. True if it released anything.
    pub(super) fn settle(&mut self, socket: &Socket) -> bool {
        let held = self.held.len();
        // The kernel may merge several sends into one report, but never splits one.
        for _ in 0..held {
            let Some(report) = next_report(socket) else {
                break;
            };
            self.apply(report);
        }
        self.held.len() < held
    }

    fn apply(&mut self, report: Report) {
        self.state = match self.state {
            Zerocopy::Probing | Zerocopy::Used if report.copied => Zerocopy::Copied,
            Zerocopy::Probing => Zerocopy::Used,
            state => state,
        };
        let span = report.last.wrapping_sub(report.first);
        let mut index = 0;
        while let Some(held) = self.held.get(index) {
            if held.number.wrapping_sub(report.first) > span {
                index += 1;
            } else if let Some(held) = self.held.remove(index) {
                self.free.push(held.headers);
            }
        }
    }
}

/// The kernel may still read this memory, so it is never freed.
impl Drop for ZerocopyTracker {
    fn drop(&mut self) {
        for held in self.held.drain(..) {
            std::mem::forget(held.headers);
        }
    }
}

/// The kernel released the sends `first..=last`.
#[derive(Clone, Copy, Debug)]
struct Report {
    first: u32,
    last: u32,
    copied: bool,
}

/// The next report of the error queue; skips up to [`MAX_SKIPPED`] other entries.
fn next_report(socket: &Socket) -> Option<Report> {
    for _ in 0..MAX_SKIPPED {
        let mut control = [0u64; CONTROL_LEN / 8];
        let mut message = super::message::empty_message();
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_LEN;
        // SAFETY: the control buffer is ours and as large as said.
        unsafe { system::receive_error(socket.as_raw_fd(), &mut message) }.ok()?;
        if let Some(report) = read_report(&message) {
            return Some(report);
        }
    }
    None
}

fn read_report(message: &libc::msghdr) -> Option<Report> {
    // SAFETY: the kernel wrote msg_controllen bytes of well-formed control messages; the macros walk
    // them within that length.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let is_error = matches!(
                ((*header).cmsg_level, (*header).cmsg_type),
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            );
            if is_error {
                let error = libc::CMSG_DATA(header)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned();
                if error.ee_origin == ORIGIN_ZEROCOPY {
                    return Some(Report {
                        first: error.ee_info,
                        last: error.ee_data,
                        copied: is_copied(error.ee_code),
                    });
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

fn is_copied(code: u8) -> bool {
    #[cfg(test)]
    if system::seam::says_not_copied() {
        return false;
    }
    code == COPIED
}

#[cfg(test)]
#[path = "zerocopy_tests.rs"]
mod tests;
