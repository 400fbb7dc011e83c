//! Giving memory to the kernel instead of having it copied: by reference into a pipe (vmsplice), and from there to the
//! socket (splice), which the kernel cuts as any send.
//!
//! What is given is a sealed train, in memory of the lane's own. The kernel refers to its pages until the peer's has
//! copied them, so they are written again when the peer said that it has seen the train, or one that left later. Had
//! it not, it would find another's ciphertext there, which no seal of the train fits: what is early costs a repair,
//! never a byte. Unlike MSG_ZEROCOPY this is not undone on loopback and veth, and needs no report of the kernel.

use crate::udp::{socket, system};
use socket2::Socket;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of memory for one train: whole pages.
const SLOT: usize = 65_536;
/// Pages with trains that a thread has given away at most, in slots (8 MiB): twice what is in flight on a short path
/// between two reports of the peer. A train that finds none is copied.
const MAX_SLOTS: usize = 128;

/// Memory for one train.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub(super) struct Slot([u8; SLOT]);

impl Slot {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// What the connections of a thread share.
#[derive(Debug, Default)]
struct Pool {
    free: Vec<Box<[Slot]>>,
    /// Slots that are not free.
    taken: usize,
    pipe: Option<(OwnedFd, OwnedFd)>,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// What one connection has given away.
#[derive(Debug, Default)]
pub(super) struct Giver {
    /// The kernel, or what it runs in, does not permit it.
    refused: bool,
    /// By number of the burst.
    given: VecDeque<(u32, Box<[Slot]>)>,
    /// The socket cuts what has no size of its own after so many bytes; 0: nothing.
    segment: usize,
}

impl Giver {
    /// Memory for a train, if there is some; the peer has seen the bursts up to `seen`.
    pub(super) fn slot(&mut self, seen: u32) -> Option<Box<[Slot]>> {
        let is_over = |number: u32| seen.wrapping_sub(number) <= u32::MAX / 2;
        POOL.with_borrow_mut(|pool| {
            while self.given.front().is_some_and(|it| is_over(it.0))
                && let Some((_, slot)) = self.given.pop_front()
            {
                pool.put_back(slot);
            }
            (!self.refused).then(|| pool.take()).flatten()
        })
    }

    /// The slot was not given.
    pub(super) fn put_back(&mut self, slot: Box<[Slot]>) {
        POOL.with_borrow_mut(|pool| pool.put_back(slot));
    }

    /// Gives the first `len` bytes of `slot`, burst `number`, to be cut after every `segment` of them.
    ///
    /// # Errors
    /// The kernel did not take all of it, and has none of it: the slot comes back.
    pub(super) fn give(
        &mut self,
        socket: &Socket,
        mut slot: Box<[Slot]>,
        (number, len, segment): (u32, usize, usize),
    ) -> Result<(), Box<[Slot]>> {
        let bytes = &slot[0].bytes()[..len];
        let given = self
            .cut_after(socket, segment)
            .and_then(|()| POOL.with_borrow_mut(|pool| pool.give(bytes, socket.as_raw_fd())));
        match given {
            Ok(()) => {
                self.given.push_back((number, slot));
                Ok(())
            }
            Err(error) => {
                self.refused |= is_refusal(&error);
                Err(slot)
            }
        }
    }

    /// What is gathered is to leave as it is, not cut.
    pub(super) fn leave_whole(&mut self, socket: &Socket, gathered: &[libc::iovec]) {
        let len = || gathered.iter().map(|it| it.iov_len).sum::<usize>();
        if self.segment > 0 && len() > self.segment {
            // As good as lost if it cannot be: a path probe.
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

/// The peer may not have seen all of it, but nothing more is sent that would need it.
impl Drop for Giver {
    fn drop(&mut self) {
        // A thread that ends may have no pool any more.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            for (_, slot) in self.given.drain(..) {
                pool.put_back(slot);
            }
        });
    }
}

impl Pool {
    fn take(&mut self) -> Option<Box<[Slot]>> {
        if self.taken >= MAX_SLOTS {
            return None;
        }
        self.taken += 1;
        let new = || vec![Slot([0; SLOT]); 1].into();
        Some(self.free.pop().unwrap_or_else(new))
    }

    fn put_back(&mut self, slot: Box<[Slot]>) {
        self.taken = self.taken.saturating_sub(1);
        if self.free.len() < MAX_SLOTS {
            self.free.push(slot);
        }
    }

    /// Has the kernel send `bytes` from where they lie.
    fn give(&mut self, bytes: &[u8], socket: i32) -> io::Result<()> {
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => system::pipe()?,
        };
        // SAFETY: the bytes are a slot's, which stays mapped as long as the thread or the connection lives; what
        // the kernel finds there later is no concern of Rust's.
        unsafe { system::give(bytes, &pipe, socket) }?;
        // Empty again. One that is not is closed, and what is in it goes with it.
        self.pipe = Some(pipe);
        Ok(())
    }
}

/// Whether the kernel will never take it.
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

    #[test]
    fn slots__are_bounded_and_come_back_when_seen() {
        let mut giver = Giver::default();
        for number in 1..=MAX_SLOTS as u32 {
            let slot = giver.slot(0).expect("room");
            giver.given.push_back((number, slot));
        }
        assert!(giver.slot(0).is_none());
        let slot = giver.slot(1).expect("the first was seen");
        assert!(giver.slot(1).is_none());
        giver.put_back(slot);
        let slot = giver.slot(MAX_SLOTS as u32).expect("all were seen");
        assert!(giver.given.is_empty());
        giver.put_back(slot);
    }

    #[test]
    fn slots__numbers_wrap() {
        let mut giver = Giver::default();
        let slot = giver.slot(0).expect("room");
        giver.given.push_back((u32::MAX, slot));
        let slot = giver.slot(u32::MAX - 1).expect("room");
        assert_eq!(giver.given.len(), 1);
        giver.put_back(slot);
        let slot = giver.slot(3).expect("room");
        assert!(giver.given.is_empty());
        giver.put_back(slot);
    }

    #[test]
    fn slots__come_back_with_their_connection() {
        let taken = || POOL.with_borrow(|pool| pool.taken);
        let mut giver = Giver::default();
        let slot = giver.slot(0).expect("room");
        giver.given.push_back((1, slot));
        assert_eq!(taken(), 1);
        drop(giver);
        assert_eq!(taken(), 0);
    }

    #[test]
    fn give__memory_begins_a_page() {
        let mut giver = Giver::default();
        let mut slot = giver.slot(0).expect("room");
        assert_eq!(slot[0].bytes().as_ptr() as usize % 4096, 0);
        giver.put_back(slot);
    }
}
