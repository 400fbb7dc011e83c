//! Exchanges records with the peer by two rings, and wakes it by a socket.
//!
//! The socket is the one by which the two processes met. A byte in it wakes the peer; end of file means that the peer's
//! process is gone. One descriptor replaces an eventfd for each direction and one for the end.

use super::lease::LEASES;
use super::mapping::{RING, Shared};
use super::peer::{Mark, PeerProcess};
use super::rendezvous;
use super::ring::{ALIGN, ARRIVAL, Consumer, Producer, ROOM};
use crate::memory::shared;
use crate::memory::shared::Bounds;
use crate::unavailable::RingFault;
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerolane_wire::HEADER_LEN;
use zerolane_wire::encapsulation::MAX_MEMORY_STU;

/// Most bytes of a record after its first word: the longest datagram.
pub(super) const MAX_RECORD: usize = MAX_MEMORY_STU + HEADER_LEN;
const _: () = assert!(3 * (MAX_RECORD + WORD).next_multiple_of(ALIGN as usize) <= RING);
/// Bytes of the word before a record: its length, and in the lowest byte its kind.
const WORD: usize = 8;
const CAPACITY: u64 = RING as u64;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A datagram.
    Datagram = 1,
    /// Headers of payload, and the payload's address in the producer's memory.
    Reference = 2,
    /// A description of memory that the peer may map, whose descriptor is in the socket.
    Region = 3,
}

/// Shorter payload is copied through the ring although it could be read in place: a system call costs more than two
/// copies of so little.
const SHORT: u32 = 8 << 10;
/// All possible payload by reference.
const ALL: u32 = 1;
/// No payload by reference.
const NONE: u32 = u32::MAX;

/// Whether this end may read the peer's memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// Not tried yet.
    Unknown,
    /// It may, and checks this mark.
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
    /// All payload must come by reference, because it must not be copied here.
    strict: bool,
    /// A number that the peer reads from here to learn whether it may read this process's memory.
    #[allow(dead_code, reason = "read by another process")]
    mark: Box<u64>,
    /// This end has announced that it sleeps.
    armed: AtomicBool,
    /// The peer has written to the socket, or is about to.
    owed: bool,
    /// The other end of the socket is closed.
    closed: bool,
    /// Descriptors that came with wake-up bytes and that no record has named yet.
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
            // The Initiator announced it on behalf of the Responder.
            armed: AtomicBool::new(responds),
            owed: false,
            closed: false,
            passed: VecDeque::new(),
        }
    }

    /// Announces, for the end that made the memory, that the peer must be woken by the first record.
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
        self.publish_reading();
    }
}

/// Operations of tests that no honest peer would do.
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

    /// Writes a record of `parts`, one after the other. False if it does not fit now. [`Link::written`] is its end.
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

    /// Wakes the peer if it sleeps and wants to be woken by new records.
    pub(super) fn wake_if_asleep(&self) {
        if self.shared.peers_end().claim_wake(ARRIVAL) {
            self.wake();
        }
    }

    fn wake(&self) {
        // EAGAIN means a wake-up is already queued; EPIPE means the peer is gone.
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let _ = self.socket.send_with_flags(&[1], flags);
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.producer.position()
    }

    /// Of these, the bytes that the peer has released. The peer may report a wrong number, but at most the bytes
    /// written.
    pub(super) fn taken(&mut self) -> u64 {
        // The next read or write reports the fault.
        let _ = self.producer.look(self.shared.way_out());
        self.producer.taken()
    }

    /// Retires all records written so far: the memory that they name returns to its owner.
    pub(super) fn retire(&self) {
        self.producer.retire(self.shared.way_out());
    }

    /// Least length of payload to send by reference, as the peer requested.
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
    /// Passes `memory` to the peer. A later record must name it.
    ///
    /// # Errors
    /// The socket has no room, or the system refuses.
    pub(super) fn pass(&self, memory: BorrowedFd<'_>) -> io::Result<()> {
        rendezvous::pass(&self.socket, &[1], memory)
    }

    /// Takes the first descriptor that satisfies `is_it`. Closes those before it, because their records are gone.
    pub(super) fn take_passed(
        &mut self,
        is_it: impl Fn(BorrowedFd<'_>) -> bool,
    ) -> Option<OwnedFd> {
        // It was passed before its record was written, after fewer descriptors than there are leases, and after wake-up
        // bytes.
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
    /// Copies the next record into `record`. Returns its kind and its start.
    pub(super) fn next(&mut self, record: &mut Vec<u8>) -> Result<Option<(Kind, u64)>, RingFault> {
        let available = self.consumer.available(self.shared.way_in(), CAPACITY)?;
        if available == 0 {
            return Ok(None);
        }
        let ring = self.shared.ring_in();
        let at = self.consumer.position();
        // SAFETY: as in `push`; unaligned lengths are never available, so there is at least a word.
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

    /// Whether there is a record to read.
    pub(super) fn has_more(&self) -> bool {
        self.consumer.has_more(self.shared.way_in())
    }

    /// Releases the records read: their place, and the memory that they named, belong to the peer again.
    pub(super) fn release(&self) {
        self.consumer.release(self.shared.way_in());
        if self.shared.peers_end().claim_wake(ROOM) {
            self.wake();
        }
    }

    /// Whether the peer has retired the record at `position`, so that its memory may hold other bytes.
    pub(super) fn is_retired(&self, position: u64) -> bool {
        self.consumer.is_retired(self.shared.way_in(), position)
    }

    /// Finds out whether this end may read the peer's memory, once the peer has published a mark, and publishes the
    /// result.
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
        self.publish_reading();
    }

    /// Records that the kernel no longer permits it.
    pub(super) fn stop_reading(&mut self) {
        self.reading = Reading::Refused;
        self.publish_reading();
    }

    /// Publishes which payload should come by reference, once that is known.
    fn publish_reading(&self) {
        let from = match (self.reading, self.strict) {
            (Reading::Unknown, _) => return,
            (Reading::Works(_), true) => ALL,
            (Reading::Works(_), false) => SHORT,
            (Reading::Refused, _) => NONE,
        };
        let own = self.shared.own_end();
        own.by_reference_from.store(from, Ordering::Relaxed);
    }

    /// Whether this end may read the peer's memory, and the peer this end's. `None`: not known yet.
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
    /// Announces that this end is about to sleep until the socket is readable; `room`: also until there is room to
    /// write. False if there is something to do already: then it must not sleep.
    pub(super) fn arm(&self, room: bool) -> bool {
        let wanted = if room { ARRIVAL | ROOM } else { ARRIVAL };
        self.shared.own_end().arm(wanted);
        self.armed.store(true, Ordering::Relaxed);
        !(self.has_more() || room && self.has_made_room())
    }

    /// Whether the peer has released records since the last check.
    pub(super) fn has_made_room(&self) -> bool {
        self.producer.is_behind(self.shared.way_out())
    }

    /// Ends the announcement, and reads wake-up bytes from the socket; `look`: even if no wake-up is known.
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

    /// Reads bytes from the socket, and the descriptors that came with them. False if there was nothing.
    fn read_socket(&mut self) -> bool {
        let mut bytes = [0; 64];
        match rendezvous::read(&self.socket, &mut bytes) {
            Ok(read) if read.len > 0 => {
                self.owed = false;
                self.passed.extend(read.passed);
                // An honest peer has no more leases to pass descriptors for.
                self.passed.truncate(LEASES);
                return true;
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
            Ok(_) | Err(_) => self.closed = true,
        }
        false
    }

    /// Whether this end announced sleep, and has not turned since.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Whether the peer is gone: it writes nothing any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Checks whether the peer's process ended although its end of the socket is open, for example in a child of that
    /// process.
    pub(super) fn look_at_process(&mut self) {
        self.closed |= self.process.is_gone();
    }
}

/// The place in a ring of position `at`.
fn place(at: u64) -> usize {
    (at % CAPACITY) as usize
}

/// Writes `bytes`, which are part of a record, at position `at` of a ring.
fn write(ring: Bounds, at: u64, bytes: &[u8]) {
    let start = place(at);
    let (first, rest) = bytes.split_at(bytes.len().min(RING - start));
    // SAFETY: both lie in the ring, which is mapped as long as the link and is only accessed atomically.
    unsafe {
        shared::store(ring, start, first);
        if !rest.is_empty() {
            shared::store(ring, 0, rest);
        }
    }
}

/// Reads `bytes.len()` bytes from position `at` of a ring.
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
