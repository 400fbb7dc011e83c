//! Gives memory to the kernel instead of having it copied: by reference into a pipe (vmsplice), and from there to the
//! socket (splice), which segments it as in any send.
//!
//! Only trains are given: sealed ones in the lane's own memory, and plain ones from the user's. The kernel refers to
//! the pages until the peer's kernel has copied them. So the lane writes them again only once the peer has confirmed
//! the train, or one that left later; the user's memory must also wait until the socket's queue is empty. If that were
//! too early, the peer would find other bytes there, and the seal or digest of the train would not match: the price is
//! a repair, never a wrong byte. Unlike MSG_ZEROCOPY this is not undone on loopback and veth, and needs no report of
//! the kernel.

use super::method::Method;
use crate::address::is_own;
use crate::memory::Region;
use crate::socket::{self, system};
use socket2::Socket;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use zerolane_core::RegionId;

/// Bytes of memory for one train: whole pages.
pub(super) const SLOT: usize = 65_536;
/// Bytes for the end of a train that is given from the user's memory.
pub(super) const TRAIN_END: usize = 64;
/// Bytes of the block that is divided into such ends: a page.
const ENDS: usize = 4096;
/// Most trains that a connection has given away at a time (8 MiB): more than is in flight on a short path between two
/// reports of the peer. A train without a slot is copied.
const MAX_SLOTS: usize = 128;
/// Most trains of the user's memory that a connection has given away at a time: their ends are small.
const MAX_LENT: usize = 1024;
/// Most slots of a process (32 MiB).
const MAX_SLOTS_OF_PROCESS: usize = 512;

/// Slots that the process has made. This bounds its memory for all connections together.
static SLOTS: AtomicUsize = AtomicUsize::new(0);

/// Memory that the kernel may still read. The lane maps its own memory for this purpose alone and unmaps it with the
/// connection; the kernel keeps the pages unchanged. Heap memory would be reused, and the peer would receive the bytes
/// of another owner.
#[derive(Debug)]
pub(super) enum Given {
    Slot(Region),
    /// Memory of the user, and the end of the train.
    Lent(RegionId, Region),
}

thread_local! {
    /// The pipe of all connections that this thread drives, empty between two calls.
    static PIPE: Cell<Option<(OwnedFd, OwnedFd)>> = const { Cell::new(None) };
}

/// The memory that one connection has given away. It shares its slots with no other: if a slot is rewritten too early,
/// the bytes that the peer finds are meant for it as well.
#[derive(Debug, Default)]
pub(super) struct Giver {
    /// The kernel or its sandbox does not permit it.
    refused: bool,
    /// Given memory, by number of the burst.
    given: VecDeque<(u32, Given)>,
    free: Vec<Region>,
    free_ends: Vec<Region>,
    /// Number of slots made.
    slots: usize,
    /// The socket segments data without a size of its own after this many bytes; 0: not at all.
    segment: usize,
    /// Whether the peer is at an address of this host, once checked.
    stays_here: Option<bool>,
}

impl Giver {
    /// Records that the peer has seen the bursts up to `seen` of the path, which the highest `path_bits` bits of
    /// numbers name.
    #[inline]
    pub(super) fn settle(&mut self, seen: u32, path_bits: u32) {
        let is_over =
            |number: u32| (seen << path_bits).wrapping_sub(number << path_bits) <= u32::MAX / 2;
        while self.given.front().is_some_and(|it| is_over(it.0))
            && let Some((_, given)) = self.given.pop_front()
        {
            self.put_back(Some(given));
        }
    }

    /// Takes back memory that the kernel no longer reads, or that was not given after all.
    pub(super) fn put_back(&mut self, given: Option<Given>) {
        match given {
            Some(Given::Slot(slot)) => self.free.push(slot),
            Some(Given::Lent(_, end)) => self.free_ends.push(end),
            None => {}
        }
    }

    /// Memory for a train that leaves by `method`, if the method needs some and some is free.
    pub(super) fn slot_for(&mut self, method: Method) -> Option<Region> {
        if method != Method::Given || self.refused {
            return None;
        }
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots >= MAX_SLOTS {
            return None;
        }
        let slot = new_slot(&SLOTS, || Region::anonymous(SLOT))?;
        self.slots += 1;
        Some(slot)
    }

    /// Memory for the end of a train that leaves by `method` from the user's memory, if the method needs some and
    /// lending is permitted.
    pub(super) fn end_for(&mut self, method: Method, socket: &Socket) -> Option<Region> {
        let may = method == Method::Given && !self.stays_here(socket);
        may.then(|| self.end()).flatten()
    }

    /// Whether datagrams of `socket` stay on this host. Then the same pages lie in the peer's queue, and only the peer
    /// could tell when it is done with them: the user's memory is not lent.
    fn stays_here(&mut self, socket: &Socket) -> bool {
        let look = || {
            let peer = socket.peer_addr().ok().and_then(|it| it.as_socket());
            peer.is_none_or(|it| is_own(it.ip()))
        };
        *self.stays_here.get_or_insert_with(look)
    }

    /// Memory for the end of a train that is given from the user's memory, if one may be.
    fn end(&mut self) -> Option<Region> {
        if self.refused || self.given.len() >= MAX_LENT {
            return None;
        }
        if self.free_ends.is_empty() {
            let mut ends = Region::anonymous(ENDS).ok()?;
            while ends.len() > TRAIN_END {
                self.free_ends.push(ends.split_off(ends.len() - TRAIN_END));
            }
            self.free_ends.push(ends);
        }
        self.free_ends.pop()
    }

    /// Whether the kernel may still read memory of `region`.
    pub(super) fn holds(&self, socket: &Socket, region: RegionId) -> bool {
        let is_of = |it: &(u32, Given)| matches!(it.1, Given::Lent(of, _) if of == region);
        self.given.iter().any(is_of) && socket::has_unsent(socket)
    }

    /// Makes the kernel send `pieces` from where they lie, in the memory `given`, as burst `number`, segmented every
    /// `segment` bytes. Sets a segment size even if there is only one segment: without it the kernel itself computes the
    /// checksum of data that comes in two calls (seen on 6.18: wrong checksums).
    ///
    /// # Errors
    /// The kernel did not take all of the bytes, and keeps none: returns the memory.
    pub(super) fn give(
        &mut self,
        socket: &Socket,
        pieces: &[libc::iovec],
        given: Given,
        (number, segment): (u32, usize),
    ) -> Result<(), Given> {
        let sent = self
            .cut_after(socket, segment)
            .and_then(|()| send(pieces, socket));
        match sent {
            Ok(()) => {
                self.given.push_back((number, given));
                Ok(())
            }
            Err(error) => {
                self.refused |= is_refusal(&error);
                Err(given)
            }
        }
    }

    /// Prepares the socket to send the gathered pieces without segmentation.
    pub(super) fn leave_whole(&mut self, socket: &Socket, gathered: &[libc::iovec]) {
        let len = || gathered.iter().map(|it| it.iov_len).sum::<usize>();
        if self.segment > 0 && len() > self.segment {
            // If that fails, the send counts as lost: it is a path probe.
            let _ = self.cut_after(socket, 0);
        }
    }

    fn cut_after(&mut self, socket: &Socket, segment: usize) -> io::Result<()> {
        if self.segment != segment {
            socket::set_segment(socket, segment)?;
            self.segment = segment;
        }
        Ok(())
    }
}

/// Makes a slot with `make`, if the process, which has `slots`, may have one more.
fn new_slot(slots: &AtomicUsize, make: impl FnOnce() -> io::Result<Region>) -> Option<Region> {
    let more = |slots| (slots < MAX_SLOTS_OF_PROCESS).then_some(slots + 1);
    let reserved = slots.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    reserved.ok()?;
    let made = make();
    if made.is_err() {
        slots.fetch_sub(1, Ordering::Relaxed);
    }
    made.ok()
}

/// The kernel keeps the pages that it has not sent.
impl Drop for Giver {
    fn drop(&mut self) {
        SLOTS.fetch_sub(self.slots, Ordering::Relaxed);
    }
}

/// Makes the kernel send `pieces` from where they lie.
fn send(pieces: &[libc::iovec], socket: &Socket) -> io::Result<()> {
    let pipe = match PIPE.take() {
        Some(pipe) => pipe,
        None => system::pipe()?,
    };
    // SAFETY: the bytes are mapped. The kernel itself holds their pages until it has sent them, even after they are no
    // longer ours; what it then reads there does not concern Rust.
    unsafe { system::give(pieces, &pipe, socket.as_raw_fd()) }?;
    // It is empty again. On failure the pipe is closed, and its content is discarded.
    PIPE.set(Some(pipe));
    Ok(())
}

/// Whether the kernel will never accept it.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPERM | libc::ENOSYS | libc::EACCES)
    )
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use socket2::{Domain, Type};
    use std::io::Read;

    fn slot(giver: &mut Giver, seen: u32) -> Option<Region> {
        giver.settle(seen, 0);
        giver.slot_for(Method::Given)
    }

    #[test]
    fn slots__are_bounded_and_come_back_when_seen() {
        let mut giver = Giver::default();
        for number in 1..=MAX_SLOTS as u32 {
            let slot = slot(&mut giver, 0).expect("room");
            giver.given.push_back((number, Given::Slot(slot)));
        }
        assert!(slot(&mut giver, 0).is_none());
        let first = slot(&mut giver, 1).expect("the first was seen");
        assert!(slot(&mut giver, 1).is_none());
        giver.put_back(Some(Given::Slot(first)));
        let slot = slot(&mut giver, MAX_SLOTS as u32).expect("all were seen");
        assert!(giver.given.is_empty());
        giver.put_back(Some(Given::Slot(slot)));
        assert_eq!(giver.slots, MAX_SLOTS);
    }

    #[test]
    fn slots__numbers_wrap() {
        let mut giver = Giver::default();
        let first = slot(&mut giver, 0).expect("room");
        giver.given.push_back((u32::MAX, Given::Slot(first)));
        let other = slot(&mut giver, u32::MAX - 1).expect("room");
        assert_eq!(giver.given.len(), 1);
        giver.put_back(Some(Given::Slot(other)));
        let other = slot(&mut giver, 3).expect("room");
        assert!(giver.given.is_empty());
        giver.put_back(Some(Given::Slot(other)));
    }

    #[test]
    fn slots__of_a_process_are_bounded() {
        let slots = AtomicUsize::new(0);
        let is_made = || new_slot(&slots, || Ok(Region::empty())).is_some();
        let made = (0..2 * MAX_SLOTS_OF_PROCESS).filter(|_| is_made());
        assert_eq!(made.count(), MAX_SLOTS_OF_PROCESS);
        slots.fetch_sub(1, Ordering::Relaxed);
        assert!(is_made() && !is_made());
    }

    #[test]
    fn slots__that_cannot_be_mapped_are_not_counted() {
        let slots = AtomicUsize::new(0);
        for _ in 0..2 * MAX_SLOTS_OF_PROCESS {
            let made = new_slot(&slots, || Err(io::ErrorKind::OutOfMemory.into()));
            assert!(made.is_none());
        }
        assert!(new_slot(&slots, || Region::anonymous(SLOT)).is_some());
        assert_eq!(slots.into_inner(), 1);
    }

    #[test]
    fn holds__what_was_lent_until_it_has_left_or_was_seen() {
        // Datagrams that the other end has not read wait in the queue.
        let (socket, peer) = Socket::pair(Domain::UNIX, Type::DGRAM, None).expect("a pair");
        let region = |index| RegionId {
            index,
            generation: 1,
        };
        let mut giver = Giver::default();
        let end = giver.end().expect("room");
        giver.given.push_back((7, Given::Lent(region(1), end)));
        assert!(!giver.holds(&socket, region(1)), "nothing waits");
        socket.send(&[1; 100]).expect("sent");
        assert!(giver.holds(&socket, region(1)));
        assert!(!giver.holds(&socket, region(2)), "another's");
        giver.settle(6, 0);
        assert!(giver.holds(&socket, region(1)));
        (&peer).read_exact(&mut [0; 100]).expect("read");
        assert!(!giver.holds(&socket, region(1)), "it has left");
        socket.send(&[1; 100]).expect("sent");
        giver.settle(7, 0);
        assert!(!giver.holds(&socket, region(1)), "it was seen");
    }

    #[test]
    fn lent__no_more_than_the_limit() {
        let mut giver = Giver::default();
        let region = RegionId {
            index: 1,
            generation: 1,
        };
        for number in 1..=MAX_LENT as u32 {
            let end = giver.end().expect("room");
            giver.given.push_back((number, Given::Lent(region, end)));
        }
        assert!(giver.end().is_none());
        giver.settle(1, 0);
        assert!(giver.end().is_some());
    }

    #[test]
    fn give__memory_begins_a_page() {
        let mut giver = Giver::default();
        let slot = giver.slot_for(Method::Given).expect("room");
        assert_eq!(slot.as_ptr() as usize % 4096, 0);
        giver.put_back(Some(Given::Slot(slot)));
    }
}
