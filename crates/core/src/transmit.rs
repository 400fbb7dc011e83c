//! What is to leave: a control datagram, or a burst of Data described, not copied.

use crate::Span;
use smallvec::SmallVec;
use zerolane_wire::checksum::Sum;
use zerolane_wire::{Flags, FrameHead, Frames, HEADER_LEN, Header, OPTIONS_LEN, Packet, Train};

/// How much one burst may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLimit {
    /// Datagrams, at least 1.
    pub segments: u32,
    /// Bytes, headers included.
    pub bytes: u32,
    /// It may be a train: the lane hands all of it to the kernel at once.
    pub trains: bool,
}

impl Default for BurstLimit {
    fn default() -> BurstLimit {
        BurstLimit {
            segments: 64,
            bytes: 65_507,
            trains: false,
        }
    }
}

/// Something to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// The message of the key exchange that it is time for, on its own and never sealed. What runs the
    /// exchange has it.
    Handshake,
    /// One control datagram, on its own.
    Control(ControlDatagram),
    /// Data operations from one contiguous span.
    Data(DataBurst),
    /// Small operations on the peer's memory.
    Operations(OperationBurst),
}

/// Numbered operations in datagrams of equal length, of which only the last may be shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationBurst {
    /// Bytes of each datagram but perhaps the last.
    pub segment: u32,
    /// Datagrams, at least 1.
    pub segments: u32,
    /// Each, at least one, in order.
    pub operations: SmallVec<[Outgoing; 1]>,
    /// Number of the first.
    pub(crate) first: u32,
}

impl OperationBurst {
    /// The datagrams: what of each of its operations stands in it, one behind the other.
    pub fn datagrams(&self) -> impl Iterator<Item = &[Outgoing]> {
        Outgoing::datagrams(&self.operations)
    }
}

/// One small operation on the wire: in a datagram of its own, or as a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    bytes: [u8; HEADER_LEN + OPTIONS_LEN],
    len: usize,
    /// It is the first of its datagram.
    opens: bool,
    /// Payload that follows, if any.
    pub payload: Option<Span>,
    /// Zeros that follow that, bytes.
    pub padding: u32,
}

impl Outgoing {
    pub(crate) fn control(packet: &Packet) -> Outgoing {
        let (bytes, len) = packet.emit();
        Outgoing {
            bytes,
            len,
            opens: true,
            payload: None,
            padding: 0,
        }
    }

    pub(crate) fn data(header: &Header, payload: Option<Span>) -> Outgoing {
        let mut bytes = [0; HEADER_LEN + OPTIONS_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&header.emit());
        Outgoing {
            bytes,
            len: HEADER_LEN,
            opens: true,
            payload,
            padding: 0,
        }
    }

    /// Operation `it` as a frame behind `before`; without one, behind the header of their datagram, which it brings.
    pub(crate) fn frame(before: Option<&Header>, it: &Header, payload: Option<Span>) -> Outgoing {
        let len = payload.map_or(0, |span| span.len as u16);
        let frame = FrameHead::new(before, it, len);
        let mut bytes = [0; HEADER_LEN + OPTIONS_LEN];
        let mut head = 0;
        if before.is_none() {
            bytes[..HEADER_LEN].copy_from_slice(&Frames::header(it).emit());
            head = HEADER_LEN;
        }
        if let Some(place) = bytes[head..].first_chunk_mut() {
            head += frame.emit_into(place);
        }
        Outgoing {
            bytes,
            len: head,
            opens: before.is_none(),
            payload,
            padding: 0,
        }
    }

    /// The datagrams that `operations` are in.
    pub fn datagrams(operations: &[Outgoing]) -> impl Iterator<Item = &[Outgoing]> {
        operations.chunk_by(|_, it| !it.opens)
    }

    /// Whether it is the first of its datagram.
    pub(crate) fn opens(&self) -> bool {
        self.opens
    }

    /// The datagram that it opens asks for a State, if that is of Data.
    pub(crate) fn ask(&mut self) {
        if let Some(header) = self.bytes.first_chunk_mut()
            && Header::is_data(header)
        {
            Header::add_flags(header, Flags::SEND_STATE);
        }
    }

    /// What is in front of the payload: of the first of a datagram its header, and options or the head of a
    /// frame; of the others that.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A control operation on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDatagram {
    bytes: [u8; HEADER_LEN + OPTIONS_LEN],
    len: usize,
    /// The datagram is to be padded with zeros to this many bytes (path probe); 0: no padding.
    pub pad_to: usize,
}

impl ControlDatagram {
    pub(crate) fn new(packet: &Packet, pad_to: usize) -> ControlDatagram {
        let (bytes, len) = packet.emit();
        ControlDatagram { bytes, len, pad_to }
    }

    /// Data of the few bytes of a value, with a checksum if `checksum`.
    pub(crate) fn value(header: Header, value: u64, checksum: bool) -> ControlDatagram {
        let value = value.to_be_bytes();
        let header = match checksum {
            true => header.sealed(Sum::of(&value)),
            false => header,
        };
        let mut bytes = [0; HEADER_LEN + OPTIONS_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&header.emit());
        bytes[HEADER_LEN..HEADER_LEN + value.len()].copy_from_slice(&value);
        ControlDatagram {
            bytes,
            len: HEADER_LEN + value.len(),
            pad_to: 0,
        }
    }

    /// Header and options.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Consecutive STUs of one Block: equal size, only the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataBurst {
    /// Payload of the whole burst.
    pub span: Span,
    /// Payload bytes of every STU but perhaps the last; of a train, bytes of every datagram but the last.
    pub stu: u32,
    /// Datagrams in the burst, at least 1.
    pub segments: u32,
    /// It is a train: payload, padding, and [`DataBurst::train_header`], cut every `stu` bytes.
    pub train: Option<Train>,
    pub(crate) first: Header,
    pub(crate) address: u64,
    pub(crate) buffer_log2: u8,
    pub(crate) last_flags: Flags,
}

impl DataBurst {
    /// Writes the headers of all STUs, one into each of `places`.
    ///
    /// # Panics
    /// There are fewer places than STUs.
    pub fn emit_headers(&self, places: &mut [[u8; HEADER_LEN]]) {
        let places = &mut places[..self.segments as usize];
        let first = self.header(0).emit();
        for (index, place) in (0..).zip(places.iter_mut()) {
            let next = self.header(index);
            *place = first;
            Header::repoint(place, next.param, next.bufx, next.offset);
        }
        if let (Some(last), true) = (places.last_mut(), self.last_flags != self.first.flags) {
            self.header(self.segments - 1).emit_into(last);
        }
    }

    /// Its number among the bursts of the connection, by which the peer reports it.
    pub fn number(&self) -> u32 {
        self.first.sync
    }

    /// The header behind `train`, which the burst is.
    pub fn train_header(&self, train: Train) -> Header {
        train.header(Header {
            flags: self.last_flags,
            ..self.first
        })
    }

    /// The header of STU `index` of the burst.
    pub fn header(&self, index: u32) -> Header {
        let (bufx, offset) = split(
            self.address + u64::from(index) * u64::from(self.stu),
            self.buffer_log2,
        );
        let last = index + 1 == self.segments;
        Header {
            flags: if last {
                self.last_flags
            } else {
                self.first.flags
            },
            param: self.first.param.wrapping_add(index as u16),
            bufx,
            offset,
            ..self.first
        }
    }
}

/// Payload bytes of the longest train in so many datagrams, each of which would hold `stu` bytes with `around` around
/// them. It leaves the last one shorter than the others.
pub(crate) fn longest_train(datagrams: u32, stu: u32, around: u32) -> u32 {
    datagrams * (stu + around) - around - 1
}

/// Bufx and Offset of an address in a receiver with buffers of `2^buffer_log2` bytes.
pub(crate) fn split(address: u64, buffer_log2: u8) -> (u32, u32) {
    (
        (address >> buffer_log2) as u32,
        (address & ((1 << buffer_log2) - 1)) as u32,
    )
}

/// The address that Bufx and Offset name.
pub(crate) fn join(bufx: u32, offset: u32, buffer_log2: u8) -> u64 {
    (u64::from(bufx) << buffer_log2) + u64::from(offset)
}
