//! What is to leave: a control datagram, or a burst of Data described, not copied.

use crate::limits::TRAIN_MULTIPLE;
use crate::{Span, TransferId};
use smallvec::SmallVec;
use zerolane_wire::checksum::Sum;
use zerolane_wire::{
    FRAME_HEAD_LEN, Flags, FrameHead, Frames, HEADER_LEN, Header, MAX_FRAME_HEAD_LEN, OPTIONS_LEN,
    Packet, Train,
};

/// How much one burst may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLimit {
    /// Datagrams, at least 1.
    pub segments: u32,
    /// Bytes, headers included.
    pub bytes: u32,
    /// Payload of a train, bytes: the lane hands all of it to the kernel at once. 0: no trains.
    pub train: u32,
}

impl Default for BurstLimit {
    fn default() -> BurstLimit {
        BurstLimit {
            segments: 64,
            bytes: 65_507,
            train: 0,
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

/// Room for the header and the options of an operation that leaves alone.
const ALONE: usize = 96;
const _: () = assert!(ALONE >= HEADER_LEN + OPTIONS_LEN);

/// Numbered operations in datagrams of equal length, of which only the last may be shorter.
///
/// Flat, for there may be a thousand in a burst: what is in front of their payloads lies in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationBurst {
    /// Bytes of each datagram but perhaps the last.
    pub segment: u32,
    /// Datagrams, at least 1.
    pub segments: u32,
    /// What is in front of the payload of each, one behind the other.
    heads: SmallVec<[u8; ALONE]>,
    /// Where the last datagram begins in `heads`.
    opening: usize,
    /// Each, at least one, in order.
    pieces: SmallVec<[Piece; 1]>,
    /// Number of the first.
    pub(crate) first: u32,
    /// A caller waits for the end of one of them.
    pub(crate) awaited: bool,
}

/// What `heads` does not tell of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Empty if it has none.
    payload: Span,
    padding: u32,
    /// Its bytes of `heads`.
    head: u16,
    /// It is the first of its datagram.
    opens: bool,
}

/// Making one.
impl OperationBurst {
    /// Of operations from number `first` on, up to `most`.
    pub(crate) fn new(first: u32, most: usize) -> OperationBurst {
        let heads = match most {
            0 | 1 => SmallVec::new(),
            _ => SmallVec::with_capacity(HEADER_LEN + MAX_FRAME_HEAD_LEN + most * FRAME_HEAD_LEN),
        };
        OperationBurst {
            segment: 0,
            segments: 0,
            heads,
            opening: 0,
            pieces: SmallVec::with_capacity(most),
            first,
            awaited: false,
        }
    }

    /// Adds a datagram of a control operation.
    pub(crate) fn control(&mut self, packet: &Packet) {
        let (bytes, len) = packet.emit();
        self.open(&bytes[..len], Span::EMPTY);
    }

    /// Adds a datagram of one operation.
    pub(crate) fn data(&mut self, header: &Header, payload: Span) {
        self.open(&header.emit(), payload);
    }

    /// Adds a datagram that begins with operation `header`, which is a frame there.
    pub(crate) fn frames(&mut self, header: &Header, head: FrameHead, payload: Span) {
        self.open(&Frames::header(header).emit(), payload);
        let len = self.emit(head);
        if let Some(it) = self.pieces.last_mut() {
            it.head += len;
        }
    }

    /// Adds a frame to the last datagram.
    #[inline]
    pub(crate) fn frame(&mut self, head: FrameHead, payload: Span) {
        let head = self.emit(head);
        self.pieces.push(Piece {
            payload,
            padding: 0,
            head,
            opens: false,
        });
    }

    fn open(&mut self, head: &[u8], payload: Span) {
        self.opening = self.heads.len();
        self.heads.extend_from_slice(head);
        self.pieces.push(Piece {
            payload,
            padding: 0,
            head: head.len() as u16,
            opens: true,
        });
    }

    #[inline]
    fn emit(&mut self, head: FrameHead) -> u16 {
        let at = self.heads.len();
        // As much as it may be, and then what it is: no copy of a length known only then.
        self.heads.extend_from_slice(&[0; MAX_FRAME_HEAD_LEN]);
        let place = self.heads[at..].first_chunk_mut();
        let len = place.map_or(0, |place| head.emit_into(place));
        self.heads.truncate(at + len);
        len as u16
    }

    /// The last datagram ends with `padding` zeros.
    pub(crate) fn pad(&mut self, padding: u32) {
        if let Some(it) = self.pieces.last_mut() {
            it.padding = padding;
        }
    }

    /// The last datagram asks for a State, if it is Data.
    pub(crate) fn ask(&mut self) {
        if let Some(header) = self.heads[self.opening..].first_chunk_mut()
            && Header::is_data(header)
        {
            Header::add_flags(header, Flags::SEND_STATE);
        }
    }
}

/// What is in it.
impl OperationBurst {
    /// Operations.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The datagrams, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = OperationDatagram<'_>> + Clone {
        let mut rest = &self.heads[..];
        self.pieces.chunk_by(|_, it| !it.opens).map(move |pieces| {
            let len = pieces.iter().map(|it| usize::from(it.head)).sum();
            let heads;
            (heads, rest) = rest.split_at(len);
            OperationDatagram { heads, pieces }
        })
    }
}

/// A datagram of numbered operations: one, or several as frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationDatagram<'a> {
    heads: &'a [u8],
    pieces: &'a [Piece],
}

impl<'a> OperationDatagram<'a> {
    /// Its operations, in order, at least one.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = Outgoing<'a>> + Clone + use<'a> {
        let mut rest = self.heads;
        self.pieces.iter().map(move |it| {
            let head;
            (head, rest) = rest.split_at(it.head.into());
            Outgoing {
                head,
                payload: (it.payload.len > 0).then_some(it.payload),
                padding: it.padding,
            }
        })
    }
}

/// One small operation on the wire: in a datagram of its own, or as a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// What is in front of the payload: of the first of a datagram its header, and options or the head of a
    /// frame; of the others that.
    pub head: &'a [u8],
    /// Payload that follows, if any.
    pub payload: Option<Span>,
    /// Zeros that follow that, bytes.
    pub padding: u32,
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
    /// The train announces this Transfer.
    pub(crate) announces: Option<TransferId>,
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
        let data = Header {
            flags: self.last_flags,
            ..self.first
        };
        train.header(match self.announces {
            Some(id) => Train::announcing(data, id),
            None => data,
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

/// Payload bytes of the longest train in so many datagrams of `datagram` bytes, with `around` bytes around its payload.
/// It leaves the last one shorter than the others, and what follows as it is aligned itself.
pub(crate) fn longest_train(datagrams: u32, datagram: u32, around: u32) -> u32 {
    let most = (datagrams * datagram).saturating_sub(around + 1);
    most / TRAIN_MULTIPLE * TRAIN_MULTIPLE
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
