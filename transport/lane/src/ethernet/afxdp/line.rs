//! Sends and receives the frames of one connection: its socket, its two rings, and its transmit frames.

use super::ring::Ring;
use super::umem::Layout;
use super::{Shared, system};
use crate::address::ethernet::Hardware;
use crate::ethernet::AROUND;
use crate::sync::Ordering;
use crate::threads::Process;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerolane_wire::HEADER_LEN;
use zerolane_wire::encapsulation::{ETHERTYPE, MIN_FRAME, padding};

/// The longest frame that is assembled from pieces.
const MAX_FRAME: usize = 65_535 + AROUND;
/// The frame continues in the next entry (XDP_PKT_CONTD).
const MORE: u32 = libc::XDP_PKT_CONTD;

/// A socket and its rings, for any connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) slot: u32,
    socket: OwnedFd,
    receive: Ring<libc::xdp_desc>,
    transmit: Ring<libc::xdp_desc>,
    /// Transmit frames that the kernel does not hold.
    free: Vec<u32>,
}

impl Line {
    pub(super) fn new(
        slot: u32,
        socket: OwnedFd,
        receive: Ring<libc::xdp_desc>,
        transmit: Ring<libc::xdp_desc>,
        free: impl Iterator<Item = u32>,
    ) -> Line {
        Line {
            slot,
            socket,
            receive,
            transmit,
            free: free.collect(),
        }
    }
}

/// An arrival.
pub(crate) enum Incoming<'q> {
    /// A frame, from its header on, valid until [`Queues::release`].
    Frame(&'q mut [u8]),
    /// Longer than any frame, or outside of the memory for received frames.
    Broken,
}

/// Contiguous received bytes.
struct Run {
    start: *mut u8,
    len: usize,
}

impl Run {
    const NONE: Run = Run {
        start: std::ptr::NonNull::dangling().as_ptr(),
        len: 0,
    };

    fn ends_at(&self, place: *mut u8) -> bool {
        self.len > 0 && self.start.wrapping_add(self.len) == place
    }

    /// # Safety
    /// The bytes were claimed, each once, and are not released during `'a`.
    unsafe fn bytes<'a>(&self) -> &'a mut [u8] {
        // SAFETY: received bytes of one memory, which the kernel does not access meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// The line of one connection.
#[derive(Debug)]
pub(crate) struct Queues {
    shared: Arc<Shared>,
    line: ManuallyDrop<Line>,
    /// The Ethernet header of each datagram sent.
    head: [u8; AROUND],
    /// Chunks to return to the kernel.
    taken: Vec<u64>,
    /// Frames assembled from pieces that were not contiguous; those up to the count are in use.
    whole: Vec<Vec<u8>>,
    in_use: usize,
    unsent: bool,
    process: Process,
}

impl Queues {
    /// The queues of `line`, between these hardware addresses.
    pub(super) fn new(
        shared: Arc<Shared>,
        line: Line,
        (own, peer): (Hardware, Hardware),
    ) -> Queues {
        let mut head = [0; AROUND];
        head[..6].copy_from_slice(&peer);
        head[6..12].copy_from_slice(&own);
        head[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
        let mut queues = Queues {
            shared,
            line: ManuallyDrop::new(line),
            head,
            taken: Vec::new(),
            whole: Vec::new(),
            in_use: 0,
            unsent: false,
            process: Process::current(),
        };
        // Frames for the connection that had the line before.
        while queues.next_frame().is_some() {}
        queues.release();
        queues
    }

    /// The slot in which the program finds it.
    pub(crate) fn slot(&self) -> u32 {
        self.line.slot
    }

    /// The socket, which is readable when a frame arrived.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.line.socket.as_fd()
    }

    /// Longest datagram that fits in both directions.
    pub(crate) fn longest(&self) -> usize {
        let layout = self.shared.layout();
        layout.longest_sent().min(layout.longest_received())
    }

    /// Payload that may arrive at a time, in bytes, with STUs of `stu` bytes: as much as the receive ring holds, with
    /// room for control operations.
    pub(crate) fn window(&self, stu: usize) -> u32 {
        let stus = self.shared.layout().receives() / 4 * 3;
        u32::try_from(stus as usize * stu).unwrap_or(u32::MAX)
    }

    /// Whether a frame has arrived.
    pub(crate) fn has_more(&self) -> bool {
        self.line.receive.has_more()
    }

    /// Makes the driver poll its queue after a look that found nothing, if it must be asked.
    pub(crate) fn look(&self) {
        let asks = self.shared.zero_copy && self.shared.pool().fill.needs_wakeup();
        if asks || self.shared.busy_poll.is_some() {
            system::look(self.socket());
        }
    }

    /// The next frame.
    pub(crate) fn next_frame(&mut self) -> Option<Incoming<'_>> {
        let first = self.line.receive.take()?;
        if first.options & MORE != 0 {
            return Some(self.next_in_pieces(first));
        }
        let len = first.len as usize;
        match self.claim(&first) {
            // SAFETY: received bytes, which the kernel does not access before `release`; each is claimed once.
            Some(start) => Some(Incoming::Frame(unsafe {
                std::slice::from_raw_parts_mut(start, len)
            })),
            None => Some(Incoming::Broken),
        }
    }

    /// The address of a piece, whose chunk returns with the next release.
    fn claim(&mut self, piece: &libc::xdp_desc) -> Option<*mut u8> {
        let place = Layout::place_of(piece.addr);
        let chunk = self.shared.layout().chunk_of(place, piece.len)?;
        self.taken.push(chunk);
        Some(self.shared.umem.at(place, piece.len as usize))
    }

    fn next_in_pieces(&mut self, first: libc::xdp_desc) -> Incoming<'_> {
        if self.whole.len() == self.in_use {
            self.whole.push(Vec::new());
        }
        let mut whole = std::mem::take(&mut self.whole[self.in_use]);
        whole.clear();
        // Contiguous pieces, which follow those in `whole`.
        let mut run = Run::NONE;
        let mut fits = true;
        let mut next = Some(first);
        while let Some(piece) = next {
            let len = piece.len as usize;
            let start = self.claim(&piece);
            let start = start.filter(|_| fits && whole.len() + run.len + len <= MAX_FRAME);
            match start {
                None => fits = false,
                Some(start) if run.ends_at(start) => run.len += len,
                Some(start) => {
                    // SAFETY: its pieces were claimed.
                    whole.extend_from_slice(unsafe { run.bytes() });
                    run = Run { start, len };
                }
            }
            // The kernel shows all pieces of a frame at once.
            next = match piece.options & MORE {
                0 => None,
                _ => self.line.receive.take(),
            };
        }
        if !whole.is_empty() {
            // SAFETY: as above.
            whole.extend_from_slice(unsafe { run.bytes() });
        }
        let slot = &mut self.whole[self.in_use];
        *slot = whole;
        match (fits, slot.is_empty()) {
            (false, _) => Incoming::Broken,
            // SAFETY: as above.
            (true, true) => Incoming::Frame(unsafe { run.bytes() }),
            (true, false) => {
                self.in_use += 1;
                Incoming::Frame(slot)
            }
        }
    }

    /// Whether a frame ever came in pieces that were not contiguous.
    #[cfg(test)]
    pub(crate) fn has_put_together(&self) -> bool {
        self.whole.iter().any(|it| it.capacity() > 0)
    }

    /// Returns the claimed chunks to the kernel.
    pub(crate) fn release(&mut self) {
        self.line.receive.release();
        self.shared.give_back(&self.taken);
        self.taken.clear();
        self.in_use = 0;
    }

    /// Whether there are transmit frames for this many datagrams.
    pub(crate) fn has_room(&mut self, datagrams: usize) -> bool {
        let chunks = self.shared.layout().chunks as usize;
        if self.line.free.len() < datagrams {
            let line = &mut *self.line;
            self.shared.take_free(line.slot, &mut line.free);
        }
        self.line.free.len() >= datagrams
            && self.line.transmit.room() as usize >= datagrams * chunks
    }

    /// The place of the next datagram, as long as the longest one, if there [is room](Queues::has_room).
    pub(crate) fn place(&mut self) -> Option<&mut [u8]> {
        let layout = self.shared.layout();
        let frame = *self.line.free.last()?;
        let len = layout.longest_sent();
        let start = self
            .shared
            .umem
            .at(layout.address(frame) + AROUND as u64, len);
        // SAFETY: the part of a transmit frame after its header; the frame belongs to this line, and the kernel does
        // not hold it.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Queues the datagram of `len` bytes in the [place](Queues::place).
    pub(crate) fn push(&mut self, len: usize) {
        let head = self.head;
        let Some(place) = self.place().filter(|it| it.len() >= len.max(MIN_FRAME)) else {
            return;
        };
        let len = match padding(place[0], len).filter(|_| len < MIN_FRAME) {
            None => len,
            Some((code, behind)) => {
                place[0] = code;
                place[len..HEADER_LEN + behind.len()].copy_from_slice(&behind[len - HEADER_LEN..]);
                HEADER_LEN + behind.len()
            }
        };
        let Some(frame) = self.line.free.pop() else {
            return;
        };
        let layout = *self.shared.layout();
        let start = layout.address(frame);
        let header = self.shared.umem.at(start, AROUND);
        // SAFETY: the part of the frame before the place.
        unsafe { header.copy_from_nonoverlapping(head.as_ptr(), AROUND) };
        let all = (len + AROUND) as u64;
        let chunk = u64::from(layout.chunk);
        let count = all.div_ceil(chunk);
        self.shared.sent[frame as usize].store(count as u8, Ordering::Relaxed);
        for number in 0..count {
            let at = number * chunk;
            self.line.transmit.write(libc::xdp_desc {
                addr: start + at,
                len: chunk.min(all - at) as u32,
                options: if number + 1 < count { MORE } else { 0 },
            });
        }
    }

    /// Whether a queued frame is not with the kernel yet: the next flush sends it.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent
    }

    /// Makes the kernel send queued frames, as many as it takes. Counts each call.
    ///
    /// # Errors
    /// Those of the interface.
    pub(crate) fn flush(&mut self, calls: &mut u64) -> io::Result<()> {
        self.line.transmit.publish();
        self.unsent = false;
        if self.shared.zero_copy {
            if self.line.transmit.needs_wakeup() {
                *calls += 1;
                let woken = system::send(self.socket());
                self.unsent = woken.map_or_else(is_busy, |()| Ok(false))?;
            }
            return Ok(());
        }
        // In copy mode each call sends some of them.
        let mut left = self.line.transmit.untaken();
        while left > 0 {
            *calls += 1;
            let sent = system::send(self.socket());
            let busy = sent.map_or_else(is_busy, |()| Ok(false))?;
            let before = std::mem::replace(&mut left, self.line.transmit.untaken());
            // The interface has no room for more, or dropped one.
            if left == before {
                self.unsent = busy;
                break;
            }
        }
        Ok(())
    }
}

/// Whether the kernel may accept it later.
fn is_busy(error: io::Error) -> io::Result<bool> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::EBUSY | libc::EINTR) => Ok(true),
        _ => Err(error),
    }
}

/// Frees the line for another connection.
impl Drop for Queues {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let line = unsafe { ManuallyDrop::take(&mut self.line) };
        // A child of fork has copies of the parent's line.
        if self.process.is_current() {
            self.shared.pool().idle.push(line);
        }
    }
}
