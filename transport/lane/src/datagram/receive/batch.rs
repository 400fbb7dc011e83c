//! Holds the messages of one receive call: tells the kernel where to scatter them, and reads them back.

use super::cmsg::CONTROL;
use super::layout::{Layout, Message};
use crate::datagram::message::{empty_message, iovec};
use crate::ip118::IPV4_HEADER;
use crate::memory::Registry;
use crate::memory::cleanup::Source;
use crate::seal::{TRAILER_LEN, Trailer};
use crate::socket::MAX_MESSAGES;
use socket2::Socket;
use std::io;
use std::os::fd::AsRawFd;
use zerolane_core::{Run, Span};
use zerolane_wire::HEADER_LEN;

/// Segments in one GRO super-packet: the kernel merges at most 64.
pub(super) const MAX_SEGMENTS: usize = 64;
/// Bytes of spill per message: the largest datagram or super-packet.
pub(super) const SPILL: usize = 65_536;

/// The bytes between two payloads: the trailer of the datagram before, if datagrams have one, and the header of the
/// next. They are contiguous, so that one iovec takes both.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    trailer: Trailer,
    pub(super) header: [u8; HEADER_LEN],
}

const _: () = assert!(size_of::<Slot>() == TRAILER_LEN + HEADER_LEN);

impl Slot {
    const EMPTY: Slot = Slot {
        trailer: [0; TRAILER_LEN],
        header: [0; HEADER_LEN],
    };
}

/// Messages, at most [`MAX_MESSAGES`], and the lane's memory for what the prediction does not place.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) layouts: Vec<Layout>,
    pub(super) slots: Box<[Slot]>,
    /// Takes bytes beyond the prediction, [`SPILL`] bytes for each message.
    pub(super) spill: Box<[u8]>,
    pub(super) controls: Box<[[u64; CONTROL / 8]]>,
    iovs: Vec<libc::iovec>,
    /// Number of pieces of each message in front of the datagram.
    front: usize,
    pub(super) messages: Vec<libc::mmsghdr>,
    /// Takes the headers of raw sockets' packets. Nothing reads it.
    ip_header: [u8; IPV4_HEADER],
}

impl Batch {
    pub(super) fn allocate() -> Batch {
        Batch {
            layouts: (0..MAX_MESSAGES).map(|_| Layout::default()).collect(),
            slots: vec![Slot::EMPTY; MAX_MESSAGES.max(MAX_SEGMENTS) + 1].into(),
            spill: vec![0; MAX_MESSAGES * SPILL].into(),
            controls: vec![[0; CONTROL / 8]; MAX_MESSAGES].into(),
            iovs: Vec::with_capacity(3 * MAX_MESSAGES),
            front: 0,
            messages: Vec::with_capacity(MAX_MESSAGES),
            ip_header: [0; IPV4_HEADER],
        }
    }

    /// Starts another batch.
    pub(super) fn clear(&mut self) {
        self.iovs.clear();
        self.messages.clear();
        self.layouts[0].clear();
    }

    /// Makes the next bytes land at `start`.
    #[inline]
    pub(super) fn push(&mut self, start: *mut u8, len: usize) {
        self.iovs.push(iovec(start, len));
    }

    /// Makes the header after payload `slot` land in its slot, behind the trailer before it, if there is one.
    #[inline]
    pub(super) fn push_slot(&mut self, slot: usize, trailer: bool) {
        let slot = &mut self.slots[slot];
        let (start, len) = match trailer {
            true => (std::ptr::from_mut(slot).cast(), size_of::<Slot>()),
            false => (slot.header.as_mut_ptr(), HEADER_LEN),
        };
        self.push(start, len);
    }

    /// Makes the trailer after the last payload land in its slot.
    #[inline]
    pub(super) fn push_trailer(&mut self, slot: usize) {
        let start = self.slots[slot].trailer.as_mut_ptr();
        self.push(start, TRAILER_LEN);
    }

    /// Makes the rest of a message land in its spill.
    #[inline]
    pub(super) fn push_spill(&mut self, message: usize) {
        let start = self.spill[message * SPILL..][..SPILL].as_mut_ptr();
        self.push(start, SPILL);
    }

    /// Makes the IP header in front of the next message land where nothing reads it. The filter and the kernel have
    /// checked it, so all messages share one place.
    pub(super) fn push_ip_header(&mut self) {
        let start = self.ip_header.as_mut_ptr();
        self.push(start, IPV4_HEADER);
    }

    /// Makes the kernel's messages of the pieces pushed, of which `front` are in front of each datagram.
    pub(super) fn point(&mut self, count: usize, sealed: bool, front: usize) {
        self.front = front;
        let mut next = 0;
        for index in 0..count {
            let pairs = self.layouts[index].pairs;
            let iovs = match count {
                1 => self.iovs.len(),
                _ => front + 2 * pairs + 1 + usize::from(sealed && pairs > 0),
            };
            let mut message = empty_message();
            // A pointer into the whole vector, not to one element: the kernel and the reader of the message access
            // `iovs` pieces there.
            message.msg_iov = self.iovs.as_mut_ptr().wrapping_add(next);
            message.msg_iovlen = iovs;
            message.msg_control = self.controls[index].as_mut_ptr().cast();
            message.msg_controllen = CONTROL;
            self.messages.push(libc::mmsghdr {
                msg_hdr: message,
                msg_len: 0,
            });
            next += iovs;
        }
    }

    /// Lets the kernel fill the first `count` messages. Returns how many it filled.
    pub(super) fn fill(&mut self, socket: &Socket, count: usize) -> io::Result<usize> {
        let fd = socket.as_raw_fd();
        let received = if count == 1 {
            let message = &mut self.messages[0];
            // SAFETY: the message's iovecs name header slots, spill and control space of ours, and places that the
            // registry has open for writing and that the core granted, for the length of the call.
            let len = unsafe { libc::recvmsg(fd, &raw mut message.msg_hdr, libc::MSG_DONTWAIT) };
            message.msg_len = u32::try_from(len).unwrap_or(0);
            // An empty datagram counts as one.
            if len < 0 { -1 } else { 1 }
        } else {
            // SAFETY: as above, for all of them.
            unsafe {
                libc::recvmmsg(
                    fd,
                    self.messages.as_mut_ptr(),
                    count as u32,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            }
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// The first byte of a message.
    pub(super) fn first_byte(&mut self, message: Message) -> &mut u8 {
        let layout = &self.layouts[message.index];
        match layout.pairs {
            0 => &mut self.spill[message.index * SPILL],
            _ => &mut self.slots[layout.slot].header[0],
        }
    }

    /// The spill of a message, in which all of it lies if nothing was predicted.
    pub(super) fn spilled(&mut self, message: Message) -> &mut [u8] {
        &mut self.spill[message.index * SPILL..][..message.total]
    }

    /// Copies the message into `bytes`, which has its length. False if a part lies in a mapped file's page that is
    /// gone.
    pub(super) fn linearize(&self, message: Message, memory: &Registry, bytes: &mut [u8]) -> bool {
        let mut rest = bytes;
        let runs = &self.layouts[message.index].runs;
        let message = &self.messages[message.index].msg_hdr;
        // SAFETY: msg_iov and msg_iovlen still name the iovecs made for this call, which nothing has
        // touched since.
        let iovs = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
        for iov in &iovs[self.front..] {
            let (part, others) = rest.split_at_mut(iov.iov_len.min(rest.len()));
            let from = source_at(iov.iov_base.cast(), runs, memory);
            // SAFETY: the kernel wrote the first `total` bytes of the iovecs: into places that the
            // registry has open, in memory of the kind that `source_at` found, or into our own.
            if unsafe { from.read(part) }.is_err() {
                return false;
            }
            rest = others;
        }
        true
    }

    /// Copies the start of a scattered datagram of message `index` into `bytes`: its header from `slot`, the rest from
    /// its place, the next slot's trailer if it is `sealed`, and the spill. False if the page of the place is gone.
    pub(super) fn gather(
        &self,
        (index, slot): (usize, usize),
        place: Span,
        sealed: bool,
        bytes: &mut [u8],
        memory: &Registry,
    ) -> bool {
        let (head, rest) = bytes.split_at_mut(bytes.len().min(HEADER_LEN));
        head.copy_from_slice(&self.slots[slot].header[..head.len()]);
        let (placed, rest) = rest.split_at_mut(rest.len().min(place.len as usize));
        if !memory.read(place, placed) {
            return false;
        }
        let trailer = match sealed {
            true => &self.slots[slot + 1].trailer[..],
            false => &[],
        };
        let (behind, spilled) = rest.split_at_mut(rest.len().min(trailer.len()));
        behind.copy_from_slice(&trailer[..behind.len()]);
        spilled.copy_from_slice(&self.spill[index * SPILL..][..spilled.len()]);
        true
    }

    /// The trailer of the payload `landed`, whose header lies in `slot`, at the start of a place of `place` bytes. It
    /// is in the next slot or, if the payload is shorter than its place, begins in the place.
    pub(super) fn trailer(
        &self,
        slot: usize,
        landed: Span,
        place: u64,
        memory: &Registry,
    ) -> Option<Trailer> {
        let behind = self.slots[slot + 1].trailer;
        let mut trailer = behind;
        let before = (place - landed.len).min(TRAILER_LEN as u64) as usize;
        if before > 0 {
            let end = Span {
                offset: landed.offset + landed.len,
                len: before as u64,
                ..landed
            };
            if !memory.read(end, &mut trailer[..before]) {
                return None;
            }
            trailer[before..].copy_from_slice(&behind[..TRAILER_LEN - before]);
        }
        Some(trailer)
    }
}

/// The memory that `start` lies in: the place of one of `runs`, or the lane's own.
fn source_at(start: *const u8, runs: &[Run], memory: &Registry) -> Source {
    let lies_in = |run: &&Run| {
        let place = memory.source(run.span);
        place.is_some_and(|it| (start as usize).wrapping_sub(it as usize) < run.span.len as usize)
    };
    let region = runs.iter().find(lies_in).map(|run| run.span.region);
    Source {
        start,
        file: region.is_some_and(|it| memory.is_file(it)),
        shared: region.and_then(|it| memory.bounds(it)),
    }
}
