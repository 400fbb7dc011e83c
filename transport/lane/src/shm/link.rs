//! Two rings, the socket by which one process wakes the other, and the process at its other end.
//!
//! The socket is the one by which the two met. A byte in it wakes; its end tells that the peer's process is gone. One
//! descriptor does what an eventfd for each direction and one for the end would.

use super::lease::LEASES;
use super::mapping::{RING, Shared};
use super::peer::{Mark, PeerProcess};
use super::rendezvous;
use super::ring::{ALIGN, ARRIVAL, Consumer, Producer, ROOM, RingFault};
use crate::shared::{self, Bounds};
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerolane_wire::HEADER_LEN;
use zerolane_wire::encapsulation::MAX_MEMORY_STU;

/// Most bytes of a record behind its first word: the longest datagram.
pub(super) const MAX_RECORD: usize = MAX_MEMORY_STU + HEADER_LEN;
const _: () = assert!(3 * (MAX_RECORD + WORD).next_multiple_of(ALIGN as usize) <= RING);
/// The word in front of a record: its length, and in the lowest byte its kind.
const WORD: usize = 8;
const CAPACITY: u64 = RING as u64;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A datagram.
    Datagram = 1,
    /// Headers of payload, and where it lies in the producer's memory.
    Reference = 2,
    /// What is said of memory that the peer may map, whose descriptor is in the socket.
    Region = 3,
}

/// Payload shorter than this is copied through the ring although it could be read where it lies: a system call costs more
/// than two copies of so little.
const SHORT: u32 = 8 << 10;
/// All payload that can, by reference.
const ALL: u32 = 1;
/// None.
const NONE: u32 = u32::MAX;

/// Whether this end may read the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// It was not tried yet.
    Unknown,
    /// It may, where this is.
    Works(Mark),
    /// The kernel refuses: payload comes through the ring.
    Refused,
}

#[derive(Debug)]
pub(super) struct Link {
    socket: Socket,
    shared: Arc<Shared>,
    pub(super) process: PeerProcess,
    producer: Producer,
    consumer: Consumer,
    pub(super) reading: Reading,
    /// All payload is to come by reference: it must not be copied here.
    strict: bool,
    /// A number that the peer reads here, to learn whether it may read what is here.
    #[allow(dead_code, reason = "read by another process")]
    mark: Box<u64>,
    /// It said that it sleeps.
    armed: AtomicBool,
    /// The peer has written to the socket, or is about to.
    owed: bool,
    /// The other end of the socket is closed.
    closed: bool,
    /// Descriptors that were read with what wakes, and no record named yet.
    passed: VecDeque<OwnedFd>,
}

/// Bytes that a record of `len` bytes takes in the ring.
pub(super) fn record_len(len: usize) -> u64 {
    (WORD + len).next_multiple_of(ALIGN as usize) as u64
}

impl Link {
    pub(super) fn new(
        socket: Socket,
        shared: Shared,
        process: PeerProcess,
        mark: u64,
        strict: bool,
    ) -> Link {
        let responds = shared.is_passed();
        let mark = Box::new(mark);
        let end = shared.own_end();
        end.mark.store(*mark, Ordering::Relaxed);
        let address = std::ptr::from_ref::<u64>(&mark).expose_provenance();
        end.mark_address.store(address as u64, Ordering::Release);
        Link {
            socket,
            shared: Arc::new(shared),
            process,
            producer: Producer::default(),
            consumer: Consumer::default(),
            reading: Reading::Unknown,
            strict,
            mark,
            // The Initiator said so for it.
            armed: AtomicBool::new(responds),
            owed: false,
            closed: false,
            passed: VecDeque::new(),
        }
    }

    /// Of the end that made the memory: the other one is to be woken by the first record.
    pub(super) fn await_peer(&self) {
        self.shared.peers_end().arm(ARRIVAL);
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn raw_socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
        self.say_reading();
    }
}

/// What tests do to a link that no peer would.
#[cfg(test)]
impl Link {
    pub(super) fn hang_up(&self) {
        self.socket
            .shutdown(std::net::Shutdown::Both)
            .expect("open");
    }
}

/// Writing.
impl Link {
    /// Whether `len` more bytes fit.
    pub(super) fn has_room(&mut self, len: u64) -> Result<bool, RingFault> {
        self.producer.has_room(self.shared.way_out(), CAPACITY, len)
    }

    /// Writes a record of `parts`, one behind the other. False if it does not fit now. Where it ends: see
    /// [`Link::written`].
    pub(super) fn push(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<bool, RingFault> {
        let len = parts.iter().map(|it| it.len()).sum();
        debug_assert!(len <= MAX_RECORD, "{len}");
        if !self.has_room(record_len(len))? {
            return Ok(false);
        }
        let word = (len as u64) << 8 | kind as u64;
        let ring = self.shared.ring_out();
        let mut at = self.producer.position();
        // SAFETY: records begin at whole words of the ring, which is mapped as long as the link.
        unsafe { shared::word(ring, place(at)) }.store(word, Ordering::Relaxed);
        at += WORD as u64;
        for part in parts {
            write(ring, at, part);
            at += part.len() as u64;
        }
        self.producer
            .publish(self.shared.way_out(), record_len(len));
        Ok(true)
    }

    /// Wakes the peer, if it sleeps and what was written is to wake it.
    pub(super) fn tell_written(&self) {
        if self.shared.peers_end().claim(ARRIVAL) {
            self.wake();
        }
    }

    fn wake(&self) {
        // A full socket wakes as well, and a closed one has nobody to be woken.
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let _ = self.socket.send_with_flags(&[1], flags);
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.producer.position()
    }

    /// Of these, the bytes that the peer is done with. What it says may be wrong, but not more than was written.
    pub(super) fn taken(&mut self) -> u64 {
        // A fault is named when something is written or read.
        let _ = self.producer.look(self.shared.way_out());
        self.producer.taken()
    }

    /// The memory that records written so far name goes back to its owner.
    pub(super) fn void(&self) {
        self.producer.void(self.shared.way_out());
    }

    /// Payload of so many bytes is to be sent by reference: what the peer said.
    pub(super) fn by_reference_from(&self) -> u32 {
        let from = &self.shared.peers_end().by_reference_from;
        match from.load(Ordering::Relaxed) {
            0 => NONE,
            from => from,
        }
    }
}

/// Descriptors.
impl Link {
    /// Passes `memory` to the peer, which a record is to name behind it.
    ///
    /// # Errors
    /// The socket has no room, or the system.
    pub(super) fn pass(&self, memory: BorrowedFd<'_>) -> io::Result<()> {
        rendezvous::pass(&self.socket, &[1], memory)
    }

    /// The first descriptor passed that `is_it`; those before it are closed, for their records are gone.
    pub(super) fn take_passed(
        &mut self,
        is_it: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Option<OwnedFd> {
        // It was passed before its record was written, behind fewer than there are leases, and bytes that wake.
        for _ in 0..2 * LEASES {
            while let Some(passed) = self.passed.pop_front() {
                if is_it(passed.as_fd()) {
                    return Some(passed);
                }
            }
            if !self.read_socket() {
                break;
            }
        }
        None
    }
}

/// Reading.
impl Link {
    /// Copies the next record into `record`. Its kind, and where it began.
    pub(super) fn next(&mut self, record: &mut Vec<u8>) -> Result<Option<(Kind, u64)>, RingFault> {
        let available = self.consumer.available(self.shared.way_in(), CAPACITY)?;
        if available == 0 {
            return Ok(None);
        }
        let ring = self.shared.ring_in();
        let at = self.consumer.position();
        // SAFETY: as in `push`; what is not aligned is not available, so there is at least a word.
        let word = unsafe { shared::word(ring, place(at)) }.load(Ordering::Relaxed);
        let kind = match word & 0xff {
            1 => Kind::Datagram,
            2 => Kind::Reference,
            3 => Kind::Region,
            _ => return Err(RingFault::Record),
        };
        let len = usize::try_from(word >> 8).map_err(|_| RingFault::Record)?;
        if len > MAX_RECORD || record_len(len) > available {
            return Err(RingFault::Record);
        }
        record.resize(len, 0);
        read(ring, at + WORD as u64, record);
        self.consumer.take(record_len(len));
        Ok(Some((kind, at)))
    }

    /// Whether something can be read.
    pub(super) fn has_more(&self) -> bool {
        self.consumer.has_more(self.shared.way_in())
    }

    /// What was read is done with: its place, and the memory that it named, are the peer's again.
    pub(super) fn release(&self) {
        self.consumer.release(self.shared.way_in());
        if self.shared.peers_end().claim(ROOM) {
            self.wake();
        }
    }

    /// Whether what a record at `position` named is not the peer's to give any more.
    pub(super) fn is_void(&self, position: u64) -> bool {
        self.consumer.is_void(self.shared.way_in(), position)
    }

    /// Finds out whether this end may read the peer's memory, and says so, once the peer has said where to try.
    pub(super) fn try_reading(&mut self) {
        let peers = self.shared.peers_end();
        let address = peers.mark_address.load(Ordering::Acquire);
        if !matches!(self.reading, Reading::Unknown) || address == 0 {
            return;
        }
        let value = peers.mark.load(Ordering::Relaxed);
        let mark = Mark { address, value };
        // SAFETY: there are no targets.
        let works = unsafe { self.process.read(&[], mark) }.is_ok();
        self.reading = match works {
            true => Reading::Works(mark),
            false => Reading::Refused,
        };
        self.say_reading();
    }

    /// The kernel does not permit it any more.
    pub(super) fn stop_reading(&mut self) {
        self.reading = Reading::Refused;
        self.say_reading();
    }

    /// Says which payload is to come by reference, once that is known.
    fn say_reading(&self) {
        let from = match (self.reading, self.strict) {
            (Reading::Unknown, _) => return,
            (Reading::Works(_), true) => ALL,
            (Reading::Works(_), false) => SHORT,
            (Reading::Refused, _) => NONE,
        };
        let own = self.shared.own_end();
        own.by_reference_from.store(from, Ordering::Relaxed);
    }

    /// Whether this end may read the peer's memory, and the peer this one's. `None`: not known yet.
    pub(super) fn readable(&self) -> [Option<bool>; 2] {
        let own = match self.reading {
            Reading::Unknown => None,
            Reading::Works(_) => Some(true),
            Reading::Refused => Some(false),
        };
        let said = &self.shared.peers_end().by_reference_from;
        let peers = match said.load(Ordering::Relaxed) {
            0 => None,
            from => Some(from != NONE),
        };
        [own, peers]
    }
}

/// Sleeping.
impl Link {
    /// It is about to sleep until the socket is readable; `room`: also for room to write. False if there is something to
    /// do already: then it must not.
    pub(super) fn arm(&self, room: bool) -> bool {
        let wanted = if room { ARRIVAL | ROOM } else { ARRIVAL };
        self.shared.own_end().arm(wanted);
        self.armed.store(true, Ordering::Relaxed);
        !(self.has_more() || room && self.has_made_room())
    }

    /// Whether the peer has taken more than when it was looked last.
    pub(super) fn has_made_room(&self) -> bool {
        self.producer.is_behind(self.shared.way_out())
    }

    /// It sleeps no more. Takes what woke it out of the socket; `look`: also where nothing says that there is anything.
    pub(super) fn disarm(&mut self, look: bool) {
        let armed = std::mem::take(self.armed.get_mut());
        if armed {
            self.owed |= self.shared.own_end().disarm();
        }
        if !(armed || self.owed || look) || self.closed {
            return;
        }
        self.read_socket();
    }

    /// Takes bytes out of the socket, and the descriptors that came with them. False if there was nothing.
    fn read_socket(&mut self) -> bool {
        let mut bytes = [0; 64];
        match rendezvous::read(&self.socket, &mut bytes) {
            Ok(read) if read.len > 0 => {
                self.owed = false;
                self.passed.extend(read.passed);
                // An honest peer has no more leases to pass them for.
                self.passed.truncate(LEASES);
                return true;
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
            Ok(_) | Err(_) => self.closed = true,
        }
        false
    }

    /// Whether it said that it sleeps, and was not turned since.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Whether the peer is gone: nothing is written any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Looks whether the peer's process ended although its end of the socket is open, as where a child of it has a copy.
    pub(super) fn look_at_process(&mut self) {
        self.closed |= self.process.is_gone();
    }
}

/// Where position `at` of a ring lies in it.
fn place(at: u64) -> usize {
    (at % CAPACITY) as usize
}

/// Writes `bytes` at position `at` of a ring, of which they are a part.
fn write(ring: Bounds, at: u64, bytes: &[u8]) {
    let start = place(at);
    let (first, rest) = bytes.split_at(bytes.len().min(RING - start));
    // SAFETY: both lie in the ring, which is mapped as long as the link and touched by atomic accesses alone.
    unsafe {
        shared::store(ring, start, first);
        if !rest.is_empty() {
            shared::store(ring, 0, rest);
        }
    }
}

/// Reads as many bytes from position `at` of a ring.
fn read(ring: Bounds, at: u64, bytes: &mut [u8]) {
    let start = place(at);
    let len = bytes.len();
    let (first, rest) = bytes.split_at_mut(len.min(RING - start));
    // SAFETY: as in `write`.
    unsafe {
        shared::load(ring, start, first);
        if !rest.is_empty() {
            shared::load(ring, 0, rest);
        }
    }
}
