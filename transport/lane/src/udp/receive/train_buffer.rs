//! Where parts of trains are kept until the rest of them comes, and what is known of what comes next.

use super::SPILL;
use crate::Turn;
use zerolane_core::Span;
use zerolane_wire::{Assembled, Assembler, Header, Train};

/// Where a connection's trains are put together.
#[derive(Debug, Default)]
pub(super) struct TrainBuffer {
    assembler: Assembler,
    /// The thread's, for the length of a call; the connection's own as long as there is a part of a train in it.
    bytes: Box<[u8]>,
    /// What was predicted of the message that comes next.
    pub(super) expected: Expected,
    /// The train that is landing.
    pub(super) landing: Option<Landing>,
    /// The payload that came last had a header in each datagram.
    headers: bool,
}

/// Where a message is predicted to belong, while trains may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expected {
    /// Behind what the buffer has.
    #[default]
    Collected,
    /// In the place of its train.
    Landing,
    /// In pairs of header and place.
    Headers,
}

impl TrainBuffer {
    /// Takes the thread's room if trains are `expected` and none is at hand; forgets what is there if not.
    pub(super) fn begin(&mut self, expected: bool, room: &mut Box<[u8]>) {
        if !expected {
            (self.assembler, self.landing) = (Assembler::default(), None);
            self.headers = false;
            self.end(room);
        } else if !self.is_lent() {
            self.bytes = match room.is_empty() {
                true => vec![0; Assembler::BUFFER].into(),
                false => std::mem::take(room),
            };
        }
    }

    /// Leaves the room to the thread's other connections, if there is nothing in it.
    pub(super) fn end(&mut self, room: &mut Box<[u8]>) {
        if self.is_lent() && self.is_empty() {
            *room = std::mem::take(&mut self.bytes);
        }
    }

    /// Whether what comes goes here, unless it belongs to where it lands.
    pub(super) fn is_lent(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether there is no part of a train.
    pub(super) fn is_empty(&self) -> bool {
        self.assembler.filled() == 0
    }

    /// Bytes of trains of which the rest has not come: put together, and in their place.
    pub(super) fn begun(&self) -> [usize; 2] {
        let landed = self.landing.map_or(0, |it| it.filled);
        [self.assembler.filled(), landed]
    }

    /// The payload that comes next is likely to have a header in each datagram, or not.
    pub(super) fn expect_headers(&mut self, headers: bool) {
        self.headers = headers;
    }

    /// Whether payload comes with a header in each datagram, as far as known.
    pub(super) fn expects_headers(&self) -> bool {
        self.headers
    }

    /// Takes a piece of `len` bytes behind what is there, as [`Assembler::take`]; `bytes` are the buffer, taken.
    pub(super) fn assemble(
        &mut self,
        bytes: &[u8],
        piece: (usize, usize),
        check: usize,
        owns: impl Fn(&Header) -> bool,
    ) -> Assembled {
        self.assembler.take(bytes, piece, check, owns)
    }

    /// The buffer, and how much of it is filled; to be [put back](TrainBuffer::put_back).
    pub(super) fn take_bytes(&mut self) -> (Box<[u8]>, usize) {
        (std::mem::take(&mut self.bytes), self.assembler.filled())
    }

    pub(super) fn put_back(&mut self, bytes: Box<[u8]>) {
        self.bytes = bytes;
    }

    /// Where the next message goes.
    pub(super) fn place(&mut self) -> &mut [u8] {
        let rest = &mut self.bytes[self.assembler.filled()..];
        let len = rest.len().min(SPILL);
        &mut rest[..len]
    }

    /// Takes what landed of a train elsewhere: `len` bytes in datagrams of `datagram`, which `read` writes. False if
    /// it does not.
    pub(super) fn take_over(
        &mut self,
        (len, datagram): (usize, usize),
        check: usize,
        read: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let there = read(&mut self.bytes[..len]);
        if there {
            let piece = (len, datagram);
            self.assembler.take(&self.bytes, piece, check, |_| false);
        }
        there
    }
}

/// A train that lands in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landing {
    /// Where it begins, and what is granted and missing from there on: as much as a train may have at most.
    pub(super) place: Span,
    /// Bytes of it that came.
    pub(super) filled: usize,
    /// Bytes of each of its datagrams so far.
    pub(super) datagram: usize,
}

impl Landing {
    /// Where the next of it belongs.
    pub(super) fn rest(&self) -> Span {
        let filled = self.filled as u64;
        self.place.part(filled, self.place.len - filled)
    }
}

/// Whether a datagram has a header of this connection in front: all others are parts of trains, or nothing. A message
/// of the key exchange, which has none, is late: what was granted under its keys comes already.
pub(super) fn is_operation(datagram: &[u8], turn: &Turn<'_>) -> bool {
    let ours = |it: Header| turn.core.owns(&it) && Train::of(&it) == Ok(None);
    Header::parse(datagram).is_ok_and(ours)
}
