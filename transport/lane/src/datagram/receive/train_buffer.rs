//! Keeps parts of trains until the rest arrives, and tracks what is expected next.

use super::SPILL;
use crate::lane::Turn;
use zerolane_core::Span;
use zerolane_wire::{Assembled, Assembler, Header, Train};

/// Assembles the trains of a connection.
#[derive(Debug, Default)]
pub(super) struct TrainBuffer {
    assembler: Assembler,
    /// The thread's room, for the length of a call. The connection keeps it while a part of a train is in it.
    bytes: Box<[u8]>,
    /// The prediction for the next message.
    pub(super) expected: Expected,
    /// The train that is landing.
    pub(super) landing: Option<Landing>,
    /// Whether each datagram of the last payload had a header.
    headers: bool,
}

/// Where the next message is predicted to belong, while trains may come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expected {
    /// After the content of the buffer.
    #[default]
    Collected,
    /// In the place of its train.
    Landing,
    /// In pairs of header and place.
    Headers,
}

impl TrainBuffer {
    /// Takes the thread's room if trains are `expected` and the connection has none; if not expected, discards the
    /// content.
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

    /// Returns the room to the thread if it is empty.
    pub(super) fn end(&mut self, room: &mut Box<[u8]>) {
        if self.is_lent() && self.is_empty() {
            *room = std::mem::take(&mut self.bytes);
        }
    }

    /// Whether the next message goes to the buffer, unless it lands in place.
    pub(super) fn is_lent(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether it holds no part of a train.
    pub(super) fn is_empty(&self) -> bool {
        self.assembler.filled() == 0
    }

    /// Bytes of incomplete trains: in the buffer, and in place.
    pub(super) fn started(&self) -> [usize; 2] {
        let landed = self.landing.map_or(0, |it| it.filled);
        [self.assembler.filled(), landed]
    }

    /// Predicts whether the next payload has a header in each datagram.
    pub(super) fn expect_headers(&mut self, headers: bool) {
        self.headers = headers;
    }

    /// Whether payload is expected with a header in each datagram.
    pub(super) fn expects_headers(&self) -> bool {
        self.headers
    }

    /// Appends a piece of `len` bytes, as [`Assembler::take`]; `bytes` is the buffer, taken out.
    pub(super) fn assemble(
        &mut self,
        bytes: &[u8],
        piece: (usize, usize),
        check: usize,
        owns: impl Fn(&Header) -> bool,
    ) -> Assembled {
        self.assembler.take(bytes, piece, check, owns)
    }

    /// Takes out the buffer, and the length of its content; the caller must [put it back](TrainBuffer::put_back).
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

    /// Takes over a part of a train that landed in place: `len` bytes in datagrams of `datagram`, which `read` copies.
    /// False if `read` fails.
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
    /// Its start, with the granted and missing bytes from there on: at most as much as a train may have.
    pub(super) place: Span,
    /// Bytes of it that arrived.
    pub(super) filled: usize,
    /// Bytes of each of its datagrams so far.
    pub(super) datagram: usize,
}

impl Landing {
    /// Where its next bytes belong.
    pub(super) fn rest(&self) -> Span {
        let filled = self.filled as u64;
        self.place.part(filled, self.place.len - filled)
    }
}

/// Whether a datagram begins with a header of this connection. All others are parts of trains, or invalid. A message of
/// the key exchange, which has no such header, is late: payload granted under its keys is already arriving.
pub(super) fn is_operation(datagram: &[u8], turn: &Turn<'_>) -> bool {
    let ours = |it: Header| turn.core.owns(&it) && Train::of(&it) == Ok(None);
    Header::parse(datagram).is_ok_and(ours)
}
