//! Reads and writes messages: a bundle of frames, or a chunk of one stream.
//!
//! A message is the content of one Transfer. All numbers are little-endian.
//!
//! ```text
//! bundle   1 | frame ...
//! chunk    2 | 0 x 7 | stream 8 | offset 8 | payload ...        the payload needs no copy
//!
//! hello    0 | version 2 | "zerolane"                           the first frame of each end, once
//! open     1 | stream 8 | priority 1 | length 2 | purpose
//! accept   2 | stream 8
//! data     3 | stream 8 | offset 8 | length 2 | payload
//! finish   4 | stream 8 | bytes 8                               bytes of the whole direction
//! credit   5 | stream 8 | limit 8                               offset up to which the peer may send
//! blocked  6 | stream 8 | limit 8                               the sender has more than its credit
//! reset    7 | stream 8 | code 4 | length 2 | words             ends both directions
//! ```

use crate::limits::{MAX_PURPOSE, MAX_WORDS, PRIORITIES};
use std::fmt;

/// The version of this protocol.
pub(crate) const VERSION: u16 = 1;
const MAGIC: &[u8] = b"zerolane";

/// Bytes in front of a chunk's payload.
pub(crate) const CHUNK_HEADER: usize = 24;
/// Bytes of a data frame without its payload.
pub(crate) const DATA_HEADER: usize = 19;

const BUNDLE: u8 = 1;
const CHUNK: u8 = 2;

/// Identifies a stream of a connection: even if the connecting end opened it, odd otherwise. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a stream was reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The reason, for programs.
    pub code: ResetCode,
    /// The reason, for people.
    pub words: String,
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// The kinds of a [`Reset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCode {
    /// The program at the other end gave the stream up, or its socket was reset.
    Aborted,
    /// The opener has no right to what it asked for.
    Denied,
    /// What it asked for cannot be reached.
    Unreachable,
    /// The other end has too many streams.
    TooMany,
    /// A number of a later version.
    Other(u32),
}

impl From<u32> for ResetCode {
    fn from(number: u32) -> ResetCode {
        match number {
            0 => ResetCode::Aborted,
            1 => ResetCode::Denied,
            2 => ResetCode::Unreachable,
            3 => ResetCode::TooMany,
            other => ResetCode::Other(other),
        }
    }
}

impl From<ResetCode> for u32 {
    fn from(code: ResetCode) -> u32 {
        match code {
            ResetCode::Aborted => 0,
            ResetCode::Denied => 1,
            ResetCode::Unreachable => 2,
            ResetCode::TooMany => 3,
            ResetCode::Other(number) => number,
        }
    }
}

/// A frame of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The first frame of each end.
    Hello {
        /// The version of the protocol.
        version: u16,
    },
    /// A new stream.
    Open {
        /// The stream.
        stream: StreamId,
        /// Which streams are sent first.
        priority: u8,
        /// What the stream is for.
        purpose: &'a [u8],
    },
    /// The program at the other end took the stream.
    Accept {
        /// The stream.
        stream: StreamId,
    },
    /// Payload.
    Data {
        /// The stream.
        stream: StreamId,
        /// Bytes before.
        offset: u64,
        /// The payload.
        bytes: &'a [u8],
    },
    /// No payload follows.
    Finish {
        /// The stream.
        stream: StreamId,
        /// Bytes of the whole direction.
        length: u64,
    },
    /// The peer may send up to this offset.
    Credit {
        /// The stream.
        stream: StreamId,
        /// The offset.
        limit: u64,
    },
    /// The sender has more to send than its credit, which ends at this offset.
    Blocked {
        /// The stream.
        stream: StreamId,
        /// The offset.
        limit: u64,
    },
    /// The stream ends at once, in both directions.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The reason, for programs.
        code: u32,
        /// The reason, for people.
        words: &'a str,
    },
}

/// A parsed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Frames.
    Bundle(Frames<'a>),
    /// Payload of one stream.
    Chunk {
        /// The stream.
        stream: StreamId,
        /// Bytes before.
        offset: u64,
        /// The payload.
        bytes: &'a [u8],
    },
}

/// Names the first part of a message that has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of the peer is malformed: {0}")]
pub struct Malformed(pub &'static str);

impl<'a> Message<'a> {
    /// Parses a message. Its frames are parsed as they are taken.
    ///
    /// # Errors
    /// It is neither a bundle nor a chunk.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut rest = Bytes(bytes);
        match rest.u8().ok_or(Malformed("kind"))? {
            BUNDLE => Ok(Message::Bundle(Frames(rest))),
            CHUNK => {
                rest.take(7)
                    .filter(|it| **it == [0; 7])
                    .ok_or(Malformed("padding"))?;
                let stream = rest.stream().ok_or(Malformed("stream"))?;
                let offset = rest.u64().ok_or(Malformed("offset"))?;
                let bytes = rest.0;
                Ok(Message::Chunk {
                    stream,
                    offset,
                    bytes,
                })
            }
            _ => Err(Malformed("kind")),
        }
    }
}

/// The frames of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'a>(Bytes<'a>);

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let frame = frame(&mut self.0);
        if frame.is_err() {
            self.0 = Bytes(&[]);
        }
        Some(frame)
    }
}

fn frame<'a>(from: &mut Bytes<'a>) -> Result<Frame<'a>, Malformed> {
    let kind = from.u8().ok_or(Malformed("frame"))?;
    if kind == 0 {
        let version = from.u16().ok_or(Malformed("version"))?;
        let magic = from.take(MAGIC.len()).filter(|it| *it == MAGIC);
        magic.ok_or(Malformed("not of streams"))?;
        return Ok(Frame::Hello { version });
    }
    let stream = from.stream().ok_or(Malformed("stream"))?;
    Ok(match kind {
        1 => {
            let priority = from.u8().filter(|&it| usize::from(it) < PRIORITIES);
            let priority = priority.ok_or(Malformed("priority"))?;
            let purpose = from.counted().filter(|it| it.len() <= MAX_PURPOSE);
            let purpose = purpose.ok_or(Malformed("purpose"))?;
            Frame::Open {
                stream,
                priority,
                purpose,
            }
        }
        2 => Frame::Accept { stream },
        3 => {
            let offset = from.u64().ok_or(Malformed("offset"))?;
            let bytes = from.counted().ok_or(Malformed("payload"))?;
            Frame::Data {
                stream,
                offset,
                bytes,
            }
        }
        4 => {
            let length = from.u64().ok_or(Malformed("length"))?;
            Frame::Finish { stream, length }
        }
        5 => {
            let limit = from.u64().ok_or(Malformed("credit"))?;
            Frame::Credit { stream, limit }
        }
        6 => {
            let limit = from.u64().ok_or(Malformed("credit"))?;
            Frame::Blocked { stream, limit }
        }
        7 => {
            let code = from.u32().ok_or(Malformed("code"))?;
            let words = from.counted().filter(|it| it.len() <= MAX_WORDS);
            let words = words.and_then(|it| std::str::from_utf8(it).ok());
            let words = words.ok_or(Malformed("words"))?;
            Frame::Reset {
                stream,
                code,
                words,
            }
        }
        _ => return Err(Malformed("frame")),
    })
}

impl Frame<'_> {
    /// Appends the frame to a bundle; begins the bundle if it is empty.
    pub fn write(&self, bundle: &mut Vec<u8>) {
        if bundle.is_empty() {
            bundle.push(BUNDLE);
        }
        let mut to = Writer(bundle);
        match *self {
            Frame::Hello { version } => {
                to.0.push(0);
                to.0.extend(version.to_le_bytes());
                to.0.extend(MAGIC);
            }
            Frame::Open {
                stream,
                priority,
                purpose,
            } => {
                to.begin(1, stream);
                to.0.push(priority);
                to.counted(purpose);
            }
            Frame::Accept { stream } => to.begin(2, stream),
            Frame::Data {
                stream,
                offset,
                bytes,
            } => {
                to.begin(3, stream);
                to.0.extend(offset.to_le_bytes());
                to.counted(bytes);
            }
            Frame::Finish { stream, length } => to.numbered(4, stream, length),
            Frame::Credit { stream, limit } => to.numbered(5, stream, limit),
            Frame::Blocked { stream, limit } => to.numbered(6, stream, limit),
            Frame::Reset {
                stream,
                code,
                words,
            } => {
                to.begin(7, stream);
                to.0.extend(code.to_le_bytes());
                to.counted(words.as_bytes());
            }
        }
    }
}

/// Writes the header of a chunk to the start of its memory.
pub(crate) fn write_chunk_header(to: &mut [u8], stream: StreamId, offset: u64) {
    to[..8].copy_from_slice(&u64::from(CHUNK).to_le_bytes());
    to[8..16].copy_from_slice(&stream.0.to_le_bytes());
    to[16..CHUNK_HEADER].copy_from_slice(&offset.to_le_bytes());
}

struct Writer<'v>(&'v mut Vec<u8>);

impl Writer<'_> {
    fn begin(&mut self, kind: u8, stream: StreamId) {
        self.0.push(kind);
        self.0.extend(stream.0.to_le_bytes());
    }

    fn numbered(&mut self, kind: u8, stream: StreamId, number: u64) {
        self.begin(kind, stream);
        self.0.extend(number.to_le_bytes());
    }

    fn counted(&mut self, bytes: &[u8]) {
        // Callers keep to the limits, all of which fit.
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_le_bytes());
        self.0.extend(&bytes[..usize::from(length)]);
    }
}

/// What is left to parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[it]| it)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn stream(&mut self) -> Option<StreamId> {
        self.u64().map(StreamId)
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
