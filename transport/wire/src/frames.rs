//! Packs several numbered operations into one Data datagram or one train, as frames, and parses them.
//!
//! The header holds the shared fields, each frame its own. A frame omits everything that follows from the one before
//! it, so that a put into the same region costs seven bytes. A parsed frame is the header that the operation would have
//! on its own, and is handled like any other.

use crate::header::{Field, Flags, HEADER_LEN, Header, ParseError, Problem};
use crate::train::Train;

/// Fewest bytes in front of a frame's payload.
pub const FRAME_HEAD_LEN: usize = 7;
/// Most bytes in front of a frame's payload.
pub const MAX_FRAME_HEAD_LEN: usize = FRAME_HEAD_LEN + PLACE_LEN + 4 + 4;
/// Most frames in one datagram: bounds the work that a datagram causes.
pub const MAX_FRAMES: usize = 256;
/// Most frames in one train.
pub const MAX_TRAIN_FRAMES: usize = 1024;

/// Bytes of B_id, Bufx and D_id.
const PLACE_LEN: usize = 10;

/// Set in the D_id of every numbered operation.
const NUMBERED: u32 = 1 << 31;

/// Set in the first byte of every frame. A byte of 0 starts padding, which reaches to the end.
const FRAME: u8 = 0x80;
/// B_id, Bufx and D_id follow: they differ from those of the previous frame.
const PLACE: u8 = 0x10;
/// B_num follows: it is not 0.
const NUMBER: u8 = 0x20;
/// S_id follows: it is not one more than that of the previous frame.
const ID: u8 = 0x40;
/// Flags of the operation, at their positions in Flags.
const FLAGS: u16 = Flags::SILENT
    .with(Flags::INTERRUPT)
    .with(Flags::CONTINUES)
    .bits();

/// The header fields that frames encode: those that operations of one datagram may not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFields {
    /// [`Flags::SILENT`], [`Flags::INTERRUPT`] and [`Flags::CONTINUES`]; others are not encoded.
    pub flags: Flags,
    /// B_id.
    pub b_id: u16,
    /// Buffer index.
    pub bufx: u32,
    /// Offset within the buffer, bytes.
    pub offset: u32,
    /// B_num.
    pub b_num: u32,
    /// D_id.
    pub d_id: u32,
    /// S_id.
    pub s_id: u32,
}

impl FrameFields {
    /// The fields of `header`.
    pub fn of(header: &Header) -> FrameFields {
        FrameFields {
            flags: header.flags,
            b_id: header.b_id,
            bufx: header.bufx,
            offset: header.offset,
            b_num: header.b_num,
            d_id: header.d_id,
            s_id: header.s_id,
        }
    }
}

/// The bytes in front of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The fields that follow, as bits.
    told: u8,
    /// Bytes of the payload.
    payload: u16,
    it: FrameFields,
}

impl FrameHead {
    /// The head of operation `it`, with `len` bytes of payload, behind `before`, the previous operation of the
    /// datagram, if there is one.
    #[inline]
    pub fn new(before: Option<FrameFields>, it: FrameFields, len: u16) -> FrameHead {
        FrameHead {
            told: fields(before, it),
            payload: len,
            it,
        }
    }

    /// Its length, bytes.
    #[inline]
    pub fn size(&self) -> usize {
        FRAME_HEAD_LEN + fields_len(self.told)
    }

    /// Writes it to the start of `bytes`; the rest is then undefined. Returns its length.
    #[inline]
    pub fn emit_into(&self, bytes: &mut [u8; MAX_FRAME_HEAD_LEN]) -> usize {
        let it = &self.it;
        let what = FRAME | self.told | (it.flags.bits() & FLAGS) as u8;
        let [high, low] = self.payload.to_be_bytes();
        let [a, b, c, d] = it.offset.to_be_bytes();
        bytes[..FRAME_HEAD_LEN].copy_from_slice(&[what, high, low, a, b, c, d]);
        let mut len = FRAME_HEAD_LEN;
        if self.told == 0 {
            return len;
        }
        if self.told & PLACE != 0 {
            push(bytes, &mut len, it.b_id.to_be_bytes());
            push(bytes, &mut len, it.bufx.to_be_bytes());
            push(bytes, &mut len, it.d_id.to_be_bytes());
        }
        if self.told & NUMBER != 0 {
            push(bytes, &mut len, it.b_num.to_be_bytes());
        }
        if self.told & ID != 0 {
            push(bytes, &mut len, it.s_id.to_be_bytes());
        }
        len
    }
}

fn push<const N: usize>(bytes: &mut [u8; MAX_FRAME_HEAD_LEN], len: &mut usize, field: [u8; N]) {
    bytes[*len..*len + N].copy_from_slice(&field);
    *len += N;
}

/// The fields of `it` that do not follow from `before`.
#[inline]
fn fields(before: Option<FrameFields>, it: FrameFields) -> u8 {
    let number = if it.b_num == 0 { 0 } else { NUMBER };
    let Some(before) = before else {
        // The header of the datagram has the other fields.
        return number;
    };
    let same = before.b_id == it.b_id && before.bufx == it.bufx && before.d_id == it.d_id;
    let place = if same { 0 } else { PLACE };
    let id = match before.s_id.wrapping_add(1) == it.s_id {
        true => 0,
        false => ID,
    };
    number | place | id
}

#[inline]
fn fields_len(fields: u8) -> usize {
    let len = |field: u8, len: usize| if fields & field == 0 { 0 } else { len };
    len(PLACE, PLACE_LEN) + len(NUMBER, 4) + len(ID, 4)
}

/// The frames of a datagram, whose form was checked as a whole. Yields each frame as the header that the operation
/// would have on its own, and its payload.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    /// Fields of the next frame, unless it states others.
    next: Header,
    rest: &'a [u8],
    left: usize,
    /// The last frame asks for a State.
    asks: bool,
}

impl<'a> Frames<'a> {
    /// The header of a datagram whose first operation is `first`.
    pub fn header(first: &Header) -> Header {
        let asks = first.flags.contains(Flags::SEND_STATE);
        Header {
            flags: Flags::FRAMES.with_if(Flags::SEND_STATE, asks),
            offset: 0,
            b_num: 0,
            ..*first
        }
    }

    /// The header behind `train`, whose first operation is `first`: fields that a train needs for itself stand in
    /// Offset (S_id) and B_num (Param).
    pub fn train_header(first: &Header, train: Train) -> Header {
        train.header(Header {
            offset: first.s_id,
            b_num: first.param.into(),
            ..Frames::header(first)
        })
    }

    /// The header of the first operation, from the one of its datagram or train.
    fn opening(header: &Header) -> Header {
        let (param, s_id) = match header.flags.contains(Flags::TRAIN) {
            true => (header.b_num as u16, header.offset),
            false => (header.param, header.s_id),
        };
        Header {
            flags: Flags::NONE,
            checksum: 0,
            param,
            s_id,
            ..*header
        }
    }

    /// Parses the bytes behind `header`, or in front of it in a train. It has [`Flags::FRAMES`].
    ///
    /// # Errors
    /// [`Field::Frame`]: there is none, one is longer than the datagram, or there are more than [`MAX_FRAMES`], in a
    /// train [`MAX_TRAIN_FRAMES`]; [`Field::DId`]: one is no numbered operation.
    pub fn parse(header: &Header, content: &'a [u8]) -> Result<Frames<'a>, ParseError> {
        let (mut rest, mut left) = (content, 0);
        let most = match header.flags.contains(Flags::TRAIN) {
            true => MAX_TRAIN_FRAMES,
            false => MAX_FRAMES,
        };
        numbered(header.d_id)?;
        while let Some(&what) = rest.first()
            && what != 0
        {
            if what & FRAME == 0 {
                return Err(broken(Problem::Unassigned(what.into())));
            }
            let short = broken(Problem::Truncated(rest.len()));
            let &[_, high, low, ..] = rest else {
                return Err(short);
            };
            let payload = u16::from_be_bytes([high, low]);
            let len = FRAME_HEAD_LEN + fields_len(what) + usize::from(payload);
            let frame;
            (frame, rest) = rest.split_at_checked(len).ok_or(short)?;
            if let (true, &[_, _, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..]) =
                (what & PLACE != 0, frame)
            {
                numbered(u32::from_be_bytes([a, b, c, d]))?;
            }
            left += 1;
        }
        if left == 0 || left > most {
            return Err(broken(Problem::OutOfRange(left as u64)));
        }
        Ok(Frames {
            next: Frames::opening(header),
            rest: content,
            left,
            asks: header.flags.contains(Flags::SEND_STATE),
        })
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*field)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = (Header, &'a [u8]);

    fn next(&mut self) -> Option<(Header, &'a [u8])> {
        self.left = self.left.checked_sub(1)?;
        let [what, high, low, offset @ ..] = self.take::<FRAME_HEAD_LEN>()?;
        if what & PLACE != 0 {
            self.next.b_id = u16::from_be_bytes(self.take()?);
            self.next.bufx = u32::from_be_bytes(self.take()?);
            self.next.d_id = u32::from_be_bytes(self.take()?);
        }
        let b_num = match what & NUMBER {
            0 => 0,
            _ => u32::from_be_bytes(self.take()?),
        };
        if what & ID != 0 {
            self.next.s_id = u32::from_be_bytes(self.take()?);
        }
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (payload, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        let flags = Flags::from_bits(u16::from(what) & FLAGS);
        let header = Header {
            flags: flags.with_if(Flags::SEND_STATE, self.asks && self.left == 0),
            offset: u32::from_be_bytes(offset),
            b_num,
            ..self.next
        };
        self.next.sync = self.next.sync.wrapping_add(1);
        self.next.s_id = self.next.s_id.wrapping_add(1);
        Some((header, payload))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Frames<'_> {}

fn numbered(d_id: u32) -> Result<(), ParseError> {
    match d_id & NUMBERED {
        0 => Err(ParseError::new(
            Field::DId,
            Problem::OutOfRange(d_id.into()),
        )),
        _ => Ok(()),
    }
}

const fn broken(problem: Problem) -> ParseError {
    ParseError::new(Field::Frame, problem)
}

const _: () = assert!(FLAGS & (PLACE | NUMBER | ID | FRAME) as u16 == 0);
// The first frame of a datagram fits behind the header, in the place of the options.
const _: () = assert!(HEADER_LEN + MAX_FRAME_HEAD_LEN <= HEADER_LEN + crate::OPTIONS_LEN);

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
