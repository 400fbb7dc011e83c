//! Describes what the lane must send next: a control datagram, or a burst of payload by reference.

use crate::limits::TRAIN_MULTIPLE;
use crate::request::Content;
use crate::span::Span;
use crate::transfer::TransferId;
use smallvec::SmallVec;
use zerolane_wire::checksum::Sum;
use zerolane_wire::{
    Flags, FrameHead, Frames, HEADER_LEN, Header, MAX_CONTROL, MAX_FRAME_HEAD_LEN, OPTIONS_LEN,
    Packet, PrivateData, Train,
};

/// The largest burst that the lane can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLimit {
    /// Datagrams, at least 1.
    pub segments: u32,
    /// Bytes, headers included.
    pub bytes: u32,
    /// Payload of a train, bytes: the lane passes all of it to the kernel at once. 0: no trains.
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

/// A transmission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// The current message of the key exchange, on its own and never sealed. The caller that runs the exchange holds
    /// it.
    Handshake,
    /// One control datagram.
    Control(ControlDatagram),
    /// Data operations from one contiguous span.
    Data(DataBurst),
    /// Small operations on the peer's memory.
    Operations(OperationBurst),
}

/// Room for the header of an operation that leaves alone, and its options or a short copy.
const ALONE: usize = 128;
const _: () = assert!(ALONE >= HEADER_LEN + OPTIONS_LEN);

/// Numbered operations in datagrams of equal length, of which only the last may be shorter, or in one train.
///
/// A burst may hold a thousand operations, so their bytes lie in one buffer, except payload in the user's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationBurst {
    /// Bytes of each datagram, except perhaps the last.
    pub segment: u32,
    /// Datagrams, at least 1.
    pub segments: u32,
    /// The bytes in front of each payload, one after the other. Copied payload is among them.
    heads: SmallVec<[u8; ALONE]>,
    /// Where the last datagram begins in `heads`.
    opening: usize,
    /// The operations in order, at least one.
    pieces: SmallVec<[Piece; 1]>,
    /// Set for a train: frames, padding, and this header, cut every `segment` bytes.
    train: Option<(Train, Header)>,
    /// Number of the first operation.
    pub(crate) first: u32,
    /// A caller waits for the end of one of the operations.
    pub(crate) awaited: bool,
}

/// The part of an operation that is not in `heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Empty if it has none.
    payload: Span,
    padding: u32,
    /// Its length in `heads`, bytes.
    head: u16,
    /// Whether it is the first of its datagram.
    opens: bool,
}

/// Building a burst.
impl OperationBurst {
    /// A burst of operations from number `first` on, up to `most` with about `bytes` bytes.
    pub(crate) fn new(first: u32, most: usize, bytes: u32) -> OperationBurst {
        let heads = match most {
            0 | 1 => SmallVec::new(),
            _ => SmallVec::with_capacity(HEADER_LEN + MAX_FRAME_HEAD_LEN + bytes as usize),
        };
        OperationBurst {
            segment: 0,
            segments: 0,
            heads,
            opening: 0,
            pieces: SmallVec::with_capacity(most),
            train: None,
            first,
            awaited: false,
        }
    }

    /// Removes all operations.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.pieces.clear();
        (self.opening, self.awaited) = (0, false);
    }

    /// Ends a train of frames, cut every `segment` bytes: `first` is the header of its first operation, and `around`
    /// bytes follow its content of `len` bytes.
    pub(crate) fn train(&mut self, first: &Header, len: u32, around: u32, segment: u32) {
        let (train, segments) = train_of(len, around, segment);
        self.train = Some((train, Frames::train_header(first, train)));
        (self.segment, self.segments) = (segment, segments);
    }

    /// Adds a datagram with a control operation.
    pub(crate) fn control(&mut self, packet: &Packet) {
        let (bytes, len) = packet.emit();
        self.open(&bytes[..len]);
        self.close(self.opening, &Content::NONE);
    }

    /// Adds a datagram with one operation.
    pub(crate) fn data(&mut self, header: &Header, content: &Content) {
        self.open(&header.emit());
        self.close(self.opening, content);
    }

    /// Adds a datagram whose first frame is operation `header`.
    pub(crate) fn frames(&mut self, header: &Header, head: FrameHead, content: &Content) {
        self.open(&Frames::header(header).emit());
        self.emit(head);
        self.close(self.opening, content);
    }

    /// Adds a frame to the last datagram.
    #[inline]
    pub(crate) fn frame(&mut self, head: FrameHead, content: &Content) {
        let at = self.heads.len();
        self.emit(head);
        self.close(at, content);
    }

    fn open(&mut self, head: &[u8]) {
        self.opening = self.heads.len();
        self.heads.extend_from_slice(head);
    }

    /// Ends the operation that begins at `at` with its content.
    #[inline]
    fn close(&mut self, at: usize, content: &Content) {
        let payload = match content {
            Content::Memory(span) => *span,
            Content::Placed(_) => Span::EMPTY,
            Content::Inline(bytes) => {
                self.heads.extend_from_slice(bytes);
                Span::EMPTY
            }
        };
        self.pieces.push(Piece {
            payload,
            padding: 0,
            head: (self.heads.len() - at) as u16,
            opens: at == self.opening,
        });
    }

    #[inline]
    fn emit(&mut self, head: FrameHead) {
        let at = self.heads.len();
        // Reserves the longest head and truncates it afterwards: a copy of variable length would cost more.
        self.heads.extend_from_slice(&[0; MAX_FRAME_HEAD_LEN]);
        let place = self.heads[at..].first_chunk_mut();
        let len = place.map_or(0, |place| head.emit_into(place));
        self.heads.truncate(at + len);
    }

    /// Ends the last datagram with `padding` zeros.
    pub(crate) fn pad(&mut self, padding: u32) {
        if let Some(it) = self.pieces.last_mut() {
            it.padding = padding;
        }
    }

    /// Makes the last datagram ask for a State, if it is Data.
    pub(crate) fn ask(&mut self) {
        if let Some((_, header)) = &mut self.train {
            header.flags = header.flags.with(Flags::SEND_STATE);
        } else if let Some(header) = self.heads[self.opening..].first_chunk_mut()
            && Header::is_data(header)
        {
            Header::add_flags(header, Flags::SEND_STATE);
        }
    }
}

/// Reading a burst.
impl OperationBurst {
    /// Number of operations.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The train that all operations are in, as frames, and the header behind it; `None` if they are in datagrams.
    pub fn as_train(&self) -> Option<(Train, Header)> {
        self.train
    }

    /// The datagrams, in order. The frames of a train count as one, whose header they lack.
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
    /// Its operations in order, at least one.
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
    /// The bytes in front of the payload. For the first operation of a datagram: the header, and options or a frame
    /// head. For the others, and in a train: a frame head. Payload that was copied when it was posted is the last of them.
    pub head: &'a [u8],
    /// Payload in memory that follows, if any.
    pub payload: Option<Span>,
    /// Zeros that follow the payload, bytes.
    pub padding: u32,
}

/// A control operation on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDatagram {
    bytes: [u8; MAX_CONTROL],
    len: usize,
    /// Length to which the datagram is padded with zeros, bytes (path probe); 0: no padding.
    pub pad_to: usize,
}

impl ControlDatagram {
    pub(crate) fn new(packet: &Packet, pad_to: usize) -> ControlDatagram {
        let (emitted, len) = packet.emit();
        let mut bytes = [0; MAX_CONTROL];
        bytes[..emitted.len()].copy_from_slice(&emitted);
        ControlDatagram { bytes, len, pad_to }
    }

    /// Adds private data, which the operation may have.
    pub(crate) fn with(mut self, data: Option<PrivateData>) -> ControlDatagram {
        if let Some(data) = data {
            self.len = data.attach(&mut self.bytes);
        }
        self
    }

    /// Data that carries a FetchOp's value, with a checksum if `checksum`.
    pub(crate) fn value(header: Header, value: u64, checksum: bool) -> ControlDatagram {
        let value = value.to_be_bytes();
        let header = match checksum {
            true => header.sealed(Sum::of(&value)),
            false => header,
        };
        let mut bytes = [0; MAX_CONTROL];
        bytes[..HEADER_LEN].copy_from_slice(&header.emit());
        bytes[HEADER_LEN..HEADER_LEN + value.len()].copy_from_slice(&value);
        ControlDatagram {
            bytes,
            len: HEADER_LEN + value.len(),
            pad_to: 0,
        }
    }

    /// Header, options and private data.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Consecutive STUs of one Block: equal size, only the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataBurst {
    /// Payload of the whole burst.
    pub span: Span,
    /// Payload bytes of every STU except perhaps the last. Of a train: bytes of every datagram except the last.
    pub stu: u32,
    /// Datagrams in the burst, at least 1.
    pub segments: u32,
    /// Set for a train: payload, padding, and [`DataBurst::train_header`], cut every `stu` bytes.
    pub train: Option<Train>,
    /// The DSCP of its packets; only datagrams of the program have one.
    pub dscp: u8,
    /// The Transfer that the train announces.
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

    /// The burst's number within the connection, which the peer's reports use.
    pub fn number(&self) -> u32 {
        self.first.sync
    }

    /// The header behind `train`, this burst's train.
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

/// Payload bytes of the longest train in `datagrams` datagrams of `datagram` bytes, with `around` bytes around its
/// payload. Its last datagram is shorter than the others, and the next train has the same alignment.
pub(crate) fn longest_train(datagrams: u32, datagram: u32, around: u32) -> u32 {
    let most = (datagrams * datagram).saturating_sub(around + 1);
    most / TRAIN_MULTIPLE * TRAIN_MULTIPLE
}

/// The train of `len` bytes of payload, with `around` bytes around it, and its number of datagrams of `datagram` bytes.
pub(crate) fn train_of(len: u32, around: u32, datagram: u32) -> (Train, u32) {
    let total = len + around;
    let padding = u16::from(total.is_multiple_of(datagram));
    let segments = (total + u32::from(padding)).div_ceil(datagram);
    (Train { len, padding }, segments)
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
